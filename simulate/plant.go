package simulate

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
)

// Plant is one wrong decision, put between a component and what it acts on, which a
// rule must find. It is how the simulator is shown to be able to fail.
type Plant string

// A planted wrong decision for each rule.
const (
	PlantR4     Plant = "R4"     // a deposed leader writes with the fence of its successor
	PlantR5     Plant = "R5"     // the CronJob does not remember its slot, and names are not the slot's
	PlantR6     Plant = "R6"     // a rollout deletes one available pod more
	PlantR7     Plant = "R7"     // a Job gets one pod more
	PlantR9     Plant = "R9"     // an agent without a session takes nothing as assigned
	PlantR10    Plant = "R10"    // a StatefulSet's pod is removed before its agent has stopped it
	PlantR11    Plant = "R11"    // every pod goes to the first node
	PlantR13    Plant = "R13"    // no commit is applied while a rollout is under way
	PlantBudget Plant = "budget" // one eviction more is allowed
	PlantQuota  Plant = "quota"  // a quota's use is forgotten
	PlantEnd    Plant = "end"    // nobody removes what belongs to nothing any more
)

// Plants are all of them.
func Plants() []Plant {
	return []Plant{PlantR4, PlantR5, PlantR6, PlantR7, PlantR9, PlantR10, PlantR11, PlantR13, PlantBudget, PlantQuota, PlantEnd}
}

// writer is the store as one part of a server sees it.
type writer struct {
	*store.Store
	s    *server
	part string
}

// Commit writes, after the planted decision has changed what.
func (v *writer) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if v.s.w.opts.Plant != "" {
		v.spoil(&t)
	}
	return v.Store.Commit(ctx, t)
}

// withheld says whether a planted decision keeps a part from working.
func (w *World) withheld(s *server, part string) bool {
	switch {
	case w.opts.Plant == PlantEnd:
		return part == "garbage"
	case w.opts.Plant == PlantR13 && part == "syncer":
		return slices.ContainsFunc(s.store.List(api.Deployments(), ""), func(o api.Object) bool {
			d := o.(*appsv1.Deployment)
			return d.Status.UnavailableReplicas > 0
		})
	}
	return false
}

func (v *writer) spoil(t *store.Txn) {
	switch plant := v.s.w.opts.Plant; {
	case plant == PlantR4:
		if _, fence := v.s.w.leader(); fence > 0 {
			t.Fence.Revision = fence
		}
	case plant == PlantR5 && v.part == "cronjob":
		v.forgetSlot(t)
	case plant == PlantR6 && v.part == "deployment":
		v.deleteMore(t)
	case plant == PlantR7 && v.part == "job":
		for _, op := range t.Ops {
			if pod, ok := op.Object.(*corev1.Pod); ok && op.Verb == store.Create {
				t.Ops = append(t.Ops, store.Op{Verb: store.Create, Object: podset.Copy(pod, pod.Name+"-more", v.s.now())})
				return
			}
		}
	case plant == PlantR10 && v.part == "statefulset":
		for i, op := range t.Ops {
			if pod, ok := op.Object.(*corev1.Pod); ok && op.Verb == store.Update && pod.DeletionTimestamp != nil {
				t.Ops[i].Verb = store.Delete
			}
		}
	case plant == PlantBudget && v.part == "disruption":
		for _, op := range t.Ops {
			if b, ok := op.Object.(*policyv1.PodDisruptionBudget); ok {
				b.Status.DisruptionsAllowed++
			}
		}
	case plant == PlantQuota && v.part == "quota":
		for _, op := range t.Ops {
			if q, ok := op.Object.(*corev1.ResourceQuota); ok {
				q.Status.Used = corev1.ResourceList{}
			}
		}
	case plant == PlantR11 && v.part == "scheduler":
		for _, op := range t.Ops {
			if pod, ok := op.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				pod.Spec.NodeName = v.s.w.nodes[0].name
			}
		}
	}
}

func (v *writer) forgetSlot(t *store.Txn) {
	if !slices.ContainsFunc(t.Ops, func(op store.Op) bool { _, ok := op.Object.(*batchv1.Job); return ok && op.Verb == store.Create }) {
		return
	}
	var kept []store.Op
	for _, op := range t.Ops {
		switch o := op.Object.(type) {
		case *batchv1.CronJob, *api.SlotRecord:
			continue
		case *batchv1.Job:
			if op.Verb == store.Create {
				o.Name += "-" + v.s.w.suffix()
			}
		}
		kept = append(kept, op)
	}
	t.Ops = kept
}

func (v *writer) deleteMore(t *store.Txn) {
	written := map[store.Key]bool{}
	for _, op := range t.Ops {
		written[store.KeyOf(op.Object)] = true
	}
	for _, op := range t.Ops {
		rs, ok := op.Object.(*appsv1.ReplicaSet)
		if !ok || op.Verb != store.Update {
			continue
		}
		for _, o := range v.Owned(rs.UID) {
			pod, ok := o.(*corev1.Pod)
			if ok && pod.DeletionTimestamp == nil && podset.Ready(pod) && !written[store.KeyOf(pod)] {
				t.Ops = append(t.Ops, podset.Remove(pod, v.s.now())...)
				t.If = slices.DeleteFunc(t.If, func(o api.Object) bool { return store.KeyOf(o) == store.KeyOf(pod) })
				return
			}
		}
	}
}
