package garbage

import (
	"context"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// again is how soon the rest of what did not fit is looked at: time for the cache
// to show what was just written.
const again = 2 * time.Millisecond

// apply does all steps in one transaction, conditioned on every absent owner being
// absent in the backend too.
func (c *controller) apply(ctx context.Context, p plan, now time.Time) error {
	txn := store.Txn{Fence: c.Fence()}
	seen := map[store.Key]bool{}
	for _, o := range p.absent {
		if seen[o.key] {
			continue
		}
		seen[o.key] = true
		txn.If = append(txn.If, asSeen(o))
	}
	for _, s := range p.steps {
		switch s.Verb {
		case remove:
			txn.Ops = append(txn.Ops, podset.RemoveAny(s.Object, now)...)
		case cascade:
			obj := copyOf(s.Object)
			if !held(obj, metav1.FinalizerDeleteDependents) {
				obj.SetFinalizers(append(obj.GetFinalizers(), metav1.FinalizerDeleteDependents))
			}
			txn.Ops = append(txn.Ops, podset.RemoveAny(obj, now)...)
		case disown:
			obj := copyOf(s.Object)
			obj.SetOwnerReferences(slices.DeleteFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return slices.Contains(s.UIDs, r.UID) }))
			txn.Ops = append(txn.Ops, store.Op{Verb: store.Update, Object: obj})
		case release:
			if removable(s.Object, []string{s.Finalizer}) {
				txn.Ops = append(txn.Ops, store.Op{Verb: store.Delete, Object: s.Object})
				continue
			}
			obj := copyOf(s.Object)
			obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == s.Finalizer }))
			txn.Ops = append(txn.Ops, store.Op{Verb: store.Update, Object: obj})
		}
	}
	if len(txn.Ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, txn)
	return err
}

func copyOf(obj api.Object) api.Object { return obj.DeepCopyObject().(api.Object) }

// asSeen is the condition that under the owner's key is what the cache showed:
// nothing, or another object.
func asSeen(o owner) api.Object {
	if o.live != nil {
		return o.live
	}
	k, _ := api.ResourceKind(o.key.GroupResource)
	obj := k.New()
	obj.SetNamespace(o.key.Namespace)
	obj.SetName(o.key.Name)
	return obj
}
