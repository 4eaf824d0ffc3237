package store

import (
	"time"

	"headway.dev/headway/api"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Stamp fills what every new object has and its author does not choose: uid,
// creationTimestamp and generation 1. Call it before a Create.
func Stamp(obj api.Object, now time.Time) {
	obj.SetUID(types.UID(uuid.NewUUID()))
	obj.SetCreationTimestamp(metav1.NewTime(now.Truncate(time.Second)))
	obj.SetGeneration(1)
}
