package simulate

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/store"
)

const (
	applyWithin    = 5 * time.Minute  // a commit, once nothing goes wrong (R13)
	convergeWithin = 45 * time.Minute // everything: back-offs are up to five minutes, several times
	stable         = 90 * time.Second // what has converged stays so
)

// converge steps until everything is as the last commit says, and stays so.
func (w *World) converge() {
	began := time.Now()
	var since time.Time
	for w.failed == "" {
		look := time.Now().Add(3 * time.Second)
		for w.failed == "" && time.Now().Before(look) {
			w.step()
		}
		now := time.Now()
		if source, ok := w.truth.Get(sourceKey()).(*api.Source); now.Sub(began) > applyWithin && (!ok || source.Status.Applied != w.user.head) {
			w.fail("R13", "commit %s is not applied %v after the last fault", short(w.user.head), applyWithin)
		}
		why := w.unsettled()
		switch {
		case why == "" && since.IsZero():
			since = now
		case why == "" && now.Sub(since) > stable:
			w.rules.checked["converges"]++
			return
		case why != "":
			since = time.Time{}
			if now.Sub(began) > convergeWithin {
				w.fail("converges", "%v after the last fault: %s", convergeWithin, why)
			}
		}
	}
}

// unsettled says what is not as the head declares; "" when everything is.
func (w *World) unsettled() string {
	source, _ := w.truth.Get(sourceKey()).(*api.Source)
	if source == nil || source.Status.Applied != w.user.head || source.Status.Applying != "" {
		return "the head is not applied"
	}
	rendered, err := w.user.repository.Render(context.Background(), w.user.head, "")
	if err != nil {
		return err.Error()
	}
	declared := map[store.Key]bool{}
	for _, m := range rendered.Manifests {
		key := store.KeyOf(m.Object)
		declared[key] = true
		if why := w.asDeclared(key, m); why != "" {
			return key.String() + " " + why
		}
	}
	uids := map[types.UID]bool{}
	for _, k := range api.Kinds() {
		for _, o := range w.truth.List(k.GroupResource(), "") {
			uids[o.GetUID()] = true
			if _, ours := api.ProvenanceOf(o); ours && !declared[store.KeyOf(o)] {
				return store.KeyOf(o).String() + " is not declared any more"
			}
		}
	}
	for _, k := range api.Kinds() {
		for _, o := range w.truth.List(k.GroupResource(), "") {
			if owner := metav1.GetControllerOfNoCopy(o); owner != nil && !uids[owner.UID] {
				return fmt.Sprintf("%s belongs to %s %s, which is gone", store.KeyOf(o), owner.Kind, owner.Name)
			}
		}
	}
	return w.machinesUnsettled()
}

func (w *World) asDeclared(key store.Key, m *api.Manifest) string {
	live := w.truth.Get(key)
	if live == nil {
		if _, job := m.Object.(*batchv1.Job); job && w.truth.Get(store.Key{GroupResource: api.DoneRecords(), Namespace: key.Namespace, Name: key.Name}) != nil {
			return ""
		}
		return "is not there"
	}
	switch want := m.Object.(type) {
	case *corev1.ConfigMap:
		if got := live.(*corev1.ConfigMap); got.Data["k"] != want.Data["k"] {
			return "has other data"
		}
	case *appsv1.StatefulSet:
		return w.inOrder(want, live.(*appsv1.StatefulSet))
	case *appsv1.DaemonSet:
		return w.everywhere(want, live.(*appsv1.DaemonSet))
	case *corev1.Service:
		return w.reachable(live.(*corev1.Service))
	case *appsv1.Deployment:
		return w.rolledOut(want, live.(*appsv1.Deployment))
	case *batchv1.Job:
		job := live.(*batchv1.Job)
		for _, c := range job.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				if t := w.rules.tally(job.UID); !t.stopped && int(job.Status.Succeeded) != len(t.succeeded) {
					w.fail("R7", "job %s is over and counts %d succeeded pods, %d have", job.Name, job.Status.Succeeded, len(t.succeeded))
				}
				return ""
			}
		}
		return "is not over"
	case *batchv1.CronJob:
		if live.(*batchv1.CronJob).Spec.ConcurrencyPolicy != want.Spec.ConcurrencyPolicy {
			return "has another policy"
		}
	}
	return ""
}

func (w *World) rolledOut(want, live *appsv1.Deployment) string {
	n := *want.Spec.Replicas
	image := want.Spec.Template.Spec.Containers[0].Image
	st := live.Status
	switch {
	case *live.Spec.Replicas != n || live.Spec.Template.Spec.Containers[0].Image != image || live.Spec.MinReadySeconds != want.Spec.MinReadySeconds:
		return "has drifted"
	case st.ObservedGeneration != live.Generation:
		return "has not been observed"
	case st.Replicas != n || st.UpdatedReplicas != n || st.AvailableReplicas != n || st.UnavailableReplicas != 0:
		return fmt.Sprintf("has %d pods, %d updated, %d available of %d", st.Replicas, st.UpdatedReplicas, st.AvailableReplicas, n)
	}
	pods := 0
	for _, set := range w.truth.Owned(live.UID) {
		for _, o := range w.truth.Owned(set.GetUID()) {
			pod, ok := o.(*corev1.Pod)
			if !ok {
				continue
			}
			pods++
			if pod.DeletionTimestamp != nil || pod.Spec.Containers[0].Image != image {
				return "still has pod " + pod.Name
			}
			if !w.runs(pod) {
				return "has pod " + pod.Name + ", which does not run on " + pod.Spec.NodeName
			}
		}
	}
	if pods != int(n) {
		return fmt.Sprintf("has %d pods, not %d", pods, n)
	}
	return ""
}

// runs says whether a pod's one container really runs, once.
func (w *World) runs(pod *corev1.Pod) bool {
	found := 0
	for _, n := range w.nodes {
		for _, r := range n.machine.running {
			if r.uid == pod.UID {
				found++
				if n.name != pod.Spec.NodeName || r.image != pod.Spec.Containers[0].Image {
					return false
				}
			}
		}
	}
	return found == 1
}

// machinesUnsettled says what is wrong with the nodes, and what is on them.
func (w *World) machinesUnsettled() string {
	pods := w.pods()
	for _, n := range w.nodes {
		node, _ := w.truth.Get(store.Key{GroupResource: api.Nodes(), Name: n.name}).(*corev1.Node)
		if node == nil || len(node.Spec.Taints) > 0 {
			return n.name + " is not there or tainted"
		}
		states, err := n.machine.List(context.Background())
		if err != nil {
			return err.Error()
		}
		for _, s := range states {
			pod := pods[s.UID]
			if pod == nil || pod.Spec.NodeName != n.name {
				return fmt.Sprintf("%s still has pod %s/%s", n.name, s.Namespace, s.Name)
			}
			running := 0
			for _, c := range s.Containers {
				if c.Phase == agent.Running {
					running++
				}
			}
			if running > 1 {
				return fmt.Sprintf("%s runs pod %s/%s %d times", n.name, s.Namespace, s.Name, running)
			}
		}
	}
	return ""
}
