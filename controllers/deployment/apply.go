package deployment

import (
	"context"
	"slices"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// admit gives new sets their identity, asks whether the pods that steps create
// may enter, and gives each step the pod that its pods are copies of. When one
// may not, it names the set.
func (c *controller) admit(steps []Step, namespace string) (set string, err error) {
	var ns *corev1.Namespace
	for i := range steps {
		s := steps[i].Set
		if steps[i].Verb != write {
			continue
		}
		if s.is == nil {
			store.Stamp(s.to, c.Now())
		}
		if s.create == 0 {
			continue
		}
		if ns == nil {
			ns, _ = c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: namespace}).(*corev1.Namespace)
		}
		pod := podset.New(s.to, &s.to.Spec.Template)
		admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod}, admission.FactsFor(ns, c.Store))
		if err != nil {
			return s.to.Name, err
		}
		steps[i].Pod = admitted.(*corev1.Pod)
	}
	return "", nil
}

// apply does all steps in one transaction, in the state that was observed or not
// at all.
func (c *controller) apply(ctx context.Context, o observed, p plan, now time.Time) error {
	txn := store.Txn{Fence: c.Fence(), If: p.conditions}
	add := func(ops ...store.Op) { txn.Ops = append(txn.Ops, ops...) }
	for _, step := range p.steps {
		switch step.Verb {
		case release:
			rs := step.Stranger.DeepCopy()
			rs.OwnerReferences = slices.DeleteFunc(rs.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == o.deployment.UID })
			add(store.Op{Verb: store.Update, Object: rs})
		case write:
			add(c.writeSet(step, now)...)
			if refused := o.refused[step.Set.to.Name]; refused != "" {
				add(c.setEvents.Op(step.Set.to, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+refused)...)
			}
		case prune:
			add(podset.RemoveAny(step.Set.is, now)...)
		case report:
			add(store.Op{Verb: store.Update, Object: step.Deployment})
		}
		if step.Message != "" {
			add(c.events.Op(o.deployment, corev1.EventTypeNormal, "ScalingReplicaSet", step.Message)...)
		}
	}
	if len(txn.Ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, txn)
	if podset.Refused(err) {
		c.events.Undo(txn.Ops)
		c.setEvents.Undo(txn.Ops)
	}
	return err
}

// writeSet is a set and its pods.
func (c *controller) writeSet(step Step, now time.Time) []store.Op {
	s := step.Set
	verb := store.Update
	if s.is == nil {
		verb = store.Create
	}
	ops := []store.Op{{Verb: verb, Object: s.to}}
	for _, pod := range s.claim.Release {
		ops = append(ops, podset.Release(pod, s.to))
	}
	victims := map[*corev1.Pod]bool{}
	for _, pod := range s.victims {
		victims[pod] = true
		ops = append(ops, podset.Remove(pod, now)...)
		ops = append(ops, c.setEvents.Op(s.to, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+pod.Name)...)
	}
	for _, pod := range s.claim.Adopt {
		if !victims[pod] {
			ops = append(ops, podset.Adopt(pod, s.to))
		}
	}
	for range s.create {
		pod := podset.Copy(step.Pod, podset.Name(s.to.Name, c.Random()), now)
		ops = append(ops, store.Op{Verb: store.Create, Object: pod})
		ops = append(ops, c.setEvents.Op(s.to, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)...)
	}
	return ops
}
