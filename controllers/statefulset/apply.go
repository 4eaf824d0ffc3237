package statefulset

import (
	"context"
	"maps"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// admitAll asks whether the pods that steps create may enter, and puts the admitted
// ones in their place. When one may not, it returns its step.
func (c *controller) admitAll(steps []Step, ns *corev1.Namespace) (Step, error) {
	for i, s := range steps {
		if s.Verb != create {
			continue
		}
		admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: s.Pod}, admission.FactsFor(ns, c.Store))
		if err != nil {
			return s, err
		}
		steps[i].Pod = admitted.(*corev1.Pod)
	}
	return Step{}, nil
}

// apply does all steps in one transaction, in the state that was observed or not at
// all.
func (c *controller) apply(ctx context.Context, o observed, p plan, now time.Time) error {
	txn := store.Txn{Fence: c.Fence(), If: p.conditions}
	add := func(ops ...store.Op) { txn.Ops = append(txn.Ops, ops...) }
	tell := func(kind, reason, message string) { add(c.events.Op(o.set, kind, reason, message)...) }
	for _, s := range p.steps {
		switch s.Verb {
		case adopt:
			add(podset.Adopt(s.Pod, o.set))
		case release:
			add(podset.Release(s.Pod, o.set))
		case relabel:
			add(c.relabel(o, s.Pod))
			tell(corev1.EventTypeNormal, "SuccessfulUpdate", "Update Pod "+s.Pod.Name+" in StatefulSet "+o.set.Name+" successful")
		case keep:
			verb := store.Update
			if s.Object.GetResourceVersion() == "" {
				store.Stamp(s.Object, now)
				s.Object.SetGeneration(0) // revisions have none
				verb = store.Create
			}
			add(store.Op{Verb: verb, Object: s.Object})
		case prune:
			add(podset.RemoveAny(s.Object, now)...)
		case claim:
			made := admission.Claim(s.Object.(*corev1.PersistentVolumeClaim), c.Store.List(api.StorageClasses(), "")).DeepCopy()
			store.Stamp(made, now)
			made.Generation = 0 // claims have none
			add(store.Op{Verb: store.Create, Object: made})
			tell(corev1.EventTypeNormal, "SuccessfulCreate", "Create Claim "+s.Object.GetName()+" Pod "+s.Message+" in StatefulSet "+o.set.Name+" success")
		case ownClaim:
			add(store.Op{Verb: store.Update, Object: s.Object})
		case create:
			store.Stamp(s.Pod, now)
			add(store.Op{Verb: store.Create, Object: s.Pod})
			tell(corev1.EventTypeNormal, "SuccessfulCreate", "Create Pod "+s.Pod.Name+" in StatefulSet "+o.set.Name+" successful")
		case remove:
			add(podset.Remove(s.Pod, now)...)
			tell(corev1.EventTypeNormal, "SuccessfulDelete", "Delete Pod "+s.Pod.Name+" in StatefulSet "+o.set.Name+" successful")
		case report:
			add(store.Op{Verb: store.Update, Object: s.Set})
		case complain:
			tell(corev1.EventTypeWarning, "FailedCreate", s.Message)
		case misclaimed:
			tell(corev1.EventTypeWarning, "ConflictingController", s.Message)
		}
	}
	if len(txn.Ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, txn)
	if podset.Refused(err) {
		c.events.Undo(txn.Ops)
	}
	return err
}

// relabel gives a pod the labels of its identity.
func (c *controller) relabel(o observed, pod *corev1.Pod) store.Op {
	n, _ := ordinalOf(o.set.Name, pod.Name)
	out := *pod
	out.ObjectMeta = *pod.ObjectMeta.DeepCopy()
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	maps.Copy(out.Labels, identity(o.set, n))
	return store.Op{Verb: store.Update, Object: &out}
}
