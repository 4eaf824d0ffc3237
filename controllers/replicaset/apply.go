package replicaset

import (
	"context"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// admit asks whether the pods that steps create may enter, and gives the steps
// the pod that they are copies of.
func admit(owner api.Object, set *appsv1.ReplicaSet, steps []Step, facts admission.Facts) error {
	for i := range steps {
		if steps[i].Verb != create {
			continue
		}
		pod := podset.New(owner, &set.Spec.Template)
		admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod}, facts)
		if err != nil {
			return err
		}
		steps[i].Pod = admitted.(*corev1.Pod)
	}
	return nil
}

// apply does all steps in one transaction. The owner is written in it, so it
// happens only in the state that was observed.
func (c *controller) apply(ctx context.Context, owner api.Object, steps []Step, refused string, now time.Time) error {
	txn := store.Txn{Fence: c.Fence()}
	for _, s := range steps {
		switch s.Verb {
		case adopt:
			txn.Ops = append(txn.Ops, podset.Adopt(s.Pod, owner))
		case release:
			txn.Ops = append(txn.Ops, podset.Release(s.Pod, owner))
		case create:
			for range s.Count {
				pod := podset.Copy(s.Pod, podset.Name(owner.GetName(), c.Random()), now)
				txn.Ops = append(txn.Ops, store.Op{Verb: store.Create, Object: pod})
				txn.Ops = append(txn.Ops, c.events.Op(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)...)
			}
		case remove:
			txn.Ops = append(txn.Ops, podset.Remove(s.Pod, now)...)
			txn.Ops = append(txn.Ops, c.events.Op(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+s.Pod.Name)...)
		case report:
			txn.Ops = append(txn.Ops, store.Op{Verb: store.Update, Object: c.kind.reported(owner, s.Status)})
			if refused != "" {
				txn.Ops = append(txn.Ops, c.events.Op(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+refused)...)
			}
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
