package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
)

// claimCreation makes new claims Pending. In Kubernetes the defaulting of what etcd has
// does so on each read; here objects are kept as they are written.
type claimCreation struct{ rest.RESTCreateStrategy }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s claimCreation) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.RESTCreateStrategy.PrepareForCreate(ctx, obj)
	obj.(*core.PersistentVolumeClaim).Status.Phase = core.ClaimPending
}
