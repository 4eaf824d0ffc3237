package syncer

import (
	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// maxStored bounds a declared object, so that a commit whose objects the store would
// not take is refused and not half applied (R2). Kubernetes' validation counts only a
// part of an object, such as the values of a ConfigMap. The rest of what the store
// takes is for the status, and for the seal of a Secret.
const maxStored = store.ObjectBytes - 64<<10

// stored is how many bytes an object has in the store, about.
func stored(obj api.Object) int {
	sized, ok := obj.(interface{ Size() int })
	if !ok {
		return 0
	}
	return sized.Size()
}
