package garbage

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Config is what the controller needs. Store, Fence and Now are required.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence   func() store.Fence
	Now     store.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

type controller struct {
	Config

	mu   sync.Mutex
	gone map[store.Key]map[types.UID]bool // owners that may be gone and may have dependents
	// astray are dependents that name owners which cannot be theirs, by their key, until
	// that is told; told are those of which it was.
	astray map[store.Key]astray
	told   map[types.UID]bool
	events *event.Recorder
}

// New returns the controller's loop.
func New(cfg Config) *reconcile.Loop {
	c := &controller{Config: cfg, gone: map[store.Key]map[types.UID]bool{}, astray: map[store.Key]astray{}, told: map[types.UID]bool{},
		events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "garbage-collector-controller", Log: cfg.Log}}
	var watches []reconcile.Watch
	for _, k := range api.Kinds() {
		if k.GroupResource() != api.Events() {
			watches = append(watches, reconcile.Watch{Resource: k.GroupResource(), Keys: c.concerned})
		}
	}
	return reconcile.New(reconcile.Config{
		Name: "garbage", Reconciler: c, Watches: watches, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
	})
}

// sweepKey is the key of the look at all events.
func sweepKey() reconcile.Key { return store.Key{GroupResource: api.Events()} }

// list looks at all metadata for owners that are gone and objects that wait.
func (c *controller) list() []reconcile.Key {
	keys := []reconcile.Key{sweepKey()}
	for _, k := range api.Kinds() {
		if k.GroupResource() == api.Events() {
			continue
		}
		for _, obj := range c.Store.List(k.GroupResource(), "") {
			keys = append(keys, c.missing(obj)...)
			if finishing(obj) {
				keys = append(keys, store.KeyOf(obj))
			}
		}
	}
	return keys
}

// concerned says which owners an event makes worth a look.
func (c *controller) concerned(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	if e.Deleted() {
		c.forgetAstray(e.Previous.GetUID())
		if len(c.Store.Owned(e.Previous.GetUID())) > 0 {
			c.note(e.Key, e.Previous.GetUID())
			keys = append(keys, e.Key)
		}
		for _, ref := range e.Previous.GetOwnerReferences() { // an owner may have waited for it
			if key, ok := ownerKey(e.Key.Namespace, ref); ok && c.waits(key) {
				keys = append(keys, key)
			}
		}
		return keys
	}
	if finishing(e.Object) {
		keys = append(keys, e.Key)
	}
	if e.Previous == nil || len(e.Previous.GetOwnerReferences()) != len(e.Object.GetOwnerReferences()) {
		keys = append(keys, c.missing(e.Object)...)
	}
	return keys
}

// missing notes and returns the owners of obj that the cache does not show.
func (c *controller) missing(obj api.Object) []reconcile.Key {
	var keys []reconcile.Key
	for _, ref := range obj.GetOwnerReferences() {
		key, ok := ownerKey(obj.GetNamespace(), ref)
		if !ok {
			if obj.GetNamespace() == "" && namespaced(ref) {
				keys = append(keys, c.noteAstray(obj, "ownerRef "+textOf(ref)+" is in a namespace, and its dependent is not"))
			}
			continue
		}
		if owner := c.Store.Get(key); owner == nil || owner.GetUID() != ref.UID {
			if c.elsewhere(key, ref.UID) {
				keys = append(keys, c.noteAstray(obj, fmt.Sprintf("ownerRef %s does not exist in namespace %q", textOf(ref), obj.GetNamespace())))
			}
			c.note(key, ref.UID)
			keys = append(keys, key)
		} else if owner.GetDeletionTimestamp() != nil && held(owner, metav1.FinalizerDeleteDependents) {
			keys = append(keys, key)
		}
	}
	return keys
}

// ownerKey is the key of the owner that ref names; ok is false for a kind that we
// do not know, and for an owner that cannot be one: in a namespace, of an object
// that is in none.
func ownerKey(namespace string, ref metav1.OwnerReference) (key store.Key, ok bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return store.Key{}, false
	}
	k, ok := api.KindFor(gv.WithKind(ref.Kind))
	if !ok || k.Namespaced && namespace == "" || ref.Name == "" || ref.UID == "" {
		return store.Key{}, false
	}
	key = store.Key{GroupResource: k.GroupResource(), Name: ref.Name}
	if k.Namespaced {
		key.Namespace = namespace
	}
	return key, true
}

func (c *controller) note(key store.Key, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone[key] == nil {
		c.gone[key] = map[types.UID]bool{}
	}
	c.gone[key][uid] = true
}

func (c *controller) forget(key store.Key, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.gone[key], uid)
	if len(c.gone[key]) == 0 {
		delete(c.gone, key)
	}
}

func (c *controller) noted(key store.Key) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.gone[key]))
}

// waits says whether an owner is noted as gone, or is being deleted.
func (c *controller) waits(key store.Key) bool {
	if len(c.noted(key)) > 0 {
		return true
	}
	owner := c.Store.Get(key)
	return owner != nil && owner.GetDeletionTimestamp() != nil
}

// Reconcile works one owner, or one sweep. What does not fit into one transaction
// is done in the next, at once.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	if key.Name == "" {
		return c.sweep(ctx)
	}
	c.tellAstray(ctx, key)
	now := c.Now()
	owner := c.Store.Get(key)
	for _, uid := range c.noted(key) {
		// Forgotten before it is looked at: what comes later is noted again.
		c.forget(key, uid)
		if owner != nil && owner.GetUID() == uid {
			continue // it is there after all
		}
		dependents := c.Store.Owned(uid)
		if len(dependents) == 0 {
			continue
		}
		c.note(key, uid)
		p := planGone(observed{owner: owner, uid: uid, dependents: c.resolve(dependents)}, now)
		if err := c.apply(ctx, p, now); err != nil {
			return fmt.Errorf("dependents of %s: %w", key, err)
		}
		if len(p.steps) > 0 {
			return reconcile.After(again, "what is left of the dependents")
		}
	}
	if owner == nil || !finishing(owner) {
		return nil
	}
	dependents := c.resolve(c.Store.Owned(owner.GetUID()))
	for i := range dependents {
		dependents[i].circle = c.waitsFor(dependents[i].object, owner.GetUID())
	}
	p := planFinish(observed{owner: owner, uid: owner.GetUID(), dependents: dependents}, now)
	if err := c.apply(ctx, p, now); err != nil {
		return fmt.Errorf("finish the deletion of %s: %w", key, err)
	}
	if p.more {
		return reconcile.After(again, "what is left of the dependents")
	}
	return nil
}

// waitsFor says whether an object that is being deleted only waits for an owner, itself
// or by what it waits for: each of a circle owns the next, and none would go.
func (c *controller) waitsFor(obj api.Object, owner types.UID) bool {
	seen := map[types.UID]bool{}
	for todo := []api.Object{obj}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		if at.GetUID() == owner {
			return true
		}
		if !seen[at.GetUID()] && waiting(at) {
			todo = append(todo, c.Store.Owned(at.GetUID())...)
		}
		seen[at.GetUID()] = true
	}
	return false
}

// resolve looks up every owner of the dependents.
func (c *controller) resolve(objects []api.Object) []dependent {
	out := make([]dependent, 0, len(objects))
	for _, obj := range objects {
		d := dependent{object: obj, hasDependents: len(c.Store.Owned(obj.GetUID())) > 0}
		for _, ref := range obj.GetOwnerReferences() {
			o := owner{ref: ref}
			if o.key, o.known = ownerKey(obj.GetNamespace(), ref); o.known {
				o.live = c.Store.Get(o.key)
			}
			d.owners = append(d.owners, o)
		}
		out = append(out, d)
	}
	return out
}
