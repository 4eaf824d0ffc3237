package daemonset

import (
	"context"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// admitFirst asks whether the pods that steps create may enter, and gives the steps
// the pod that theirs are copies of: they differ by their node only.
func (c *controller) admitFirst(o observed, steps []Step) error {
	var pod *corev1.Pod
	for i := range steps {
		if steps[i].Verb != create {
			continue
		}
		if pod == nil {
			admitted, err := c.admit(admission.Request{Verb: admission.Create, Object: newPod(o.set, o.update.Hash())}, admission.FactsFor(o.namespace, c.Store))
			if err != nil {
				return err
			}
			pod = admitted.(*corev1.Pod)
		}
		steps[i].Pod = pod
	}
	return nil
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
		case create:
			pod := podset.Copy(s.Pod, podset.Name(o.set.Name, c.Random()), now)
			pod.Spec.Affinity = pinned(pod.Spec.Affinity, s.Node)
			add(store.Op{Verb: store.Create, Object: pod})
			tell(corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)
		case remove:
			add(podset.Remove(s.Pod, now)...)
			switch {
			case s.Failed:
				tell(corev1.EventTypeWarning, "FailedDaemonPod", s.Message)
			case s.Message != "":
				tell(corev1.EventTypeNormal, "SucceededDaemonPod", s.Message)
			}
			tell(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+s.Pod.Name)
		case report:
			add(store.Op{Verb: store.Update, Object: s.Set})
		case complain:
			tell(corev1.EventTypeWarning, "FailedCreate", s.Message)
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
