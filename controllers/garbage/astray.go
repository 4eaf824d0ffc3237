package garbage

import (
	"context"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// astray is an object that names an owner which cannot be its: in another namespace,
// or in one while it is in none. Kubernetes tells of it in an event, and so do we.
type astray struct {
	object api.Object
	why    string
}

// noteAstray has it told once, and returns the key to work for that.
func (c *controller) noteAstray(obj api.Object, why string) reconcile.Key {
	key := store.KeyOf(obj)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told[obj.GetUID()] {
		c.astray[key] = astray{object: obj, why: why}
	}
	return key
}

func (c *controller) forgetAstray(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, uid)
}

func (c *controller) tellAstray(ctx context.Context, key reconcile.Key) {
	there := c.Store.Get(key) != nil
	c.mu.Lock()
	a, ok := c.astray[key]
	delete(c.astray, key)
	if ok && there {
		c.told[a.object.GetUID()] = true
	}
	c.mu.Unlock()
	if ok {
		c.events.Event(ctx, a.object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", a.why)
	}
}

// elsewhere says whether the owner is in another namespace than its dependent.
func (c *controller) elsewhere(key store.Key, uid types.UID) bool {
	if key.Namespace == "" {
		return false
	}
	for _, obj := range c.Store.List(key.GroupResource, "") {
		if obj.GetUID() == uid {
			return obj.GetNamespace() != key.Namespace
		}
	}
	return false
}

// namespaced says whether the owner is of a kind that we know and that has namespaces.
func namespaced(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return false
	}
	k, ok := api.KindFor(gv.WithKind(ref.Kind))
	return ok && k.Namespaced
}

func textOf(ref metav1.OwnerReference) string {
	return fmt.Sprintf("[%s/%s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, ref.Name, ref.UID)
}
