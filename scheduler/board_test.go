package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// wishes are arguments of pods that ask for all there is to ask.
func wishes() []string {
	return []string{
		"cpu=1", "cpu=500m", "memory=1Gi", "gpu=1", "port=80", "port=80@10.0.0.1", "select:zone=a", "require=zone+in+a,b", "tolerate=a=b:NoSchedule", "tolerate=a",
		"label:app=x", "label:app=y", "label:rev=1", "label:rev=2", "ns=other", "priority=5", "priority=-5", "priority=9", "owner=o",
		"apart=kubernetes.io/hostname:app=x", "apart=zone:app=y", "apart=zone:app=x;ns=other", "apart=zone:*;mismatch=rev", "apart=kubernetes.io/hostname:app=x;spaces=team=a",
		"near=zone:app=x", "near=kubernetes.io/hostname:app=y", "near=zone:app=x;spaces=*", "near=zone:*;match=rev",
		"spread=1/zone:app=x", "spread=1/kubernetes.io/hostname:app=x", "spread=2/zone:*;min=3", "spread=1/zone:app=x;affinity=Ignore", "spread=1/zone:app=y;taints=Honor", "spread=1/zone:app=x;match=rev",
		"likes=10/zone:app=x", "dislikes=20/zone:app=y", "spread=1/zone:app=x;soft",
	}
}

func draw(rt *rapid.T, label string, most int, words ...string) []string {
	return rapid.SliceOfN(rapid.SampledFrom(words), 0, most).Draw(rt, label)
}

func nodeWords() []string {
	return []string{"label:zone=a", "label:zone=b", "label:zone=c", "taint=a=b:NoSchedule", "taint=a=c:NoExecute", "taint=a=c:PreferNoSchedule", "unschedulable", "notready", "cpu=1", "memory=1Gi", "pods=2", "gpu=1"}
}

// TestR11_TheBoardAgreesWithTheOracle: after any history of nodes, namespaces and
// pods, and in the middle of a batch, the counts that are kept give for every pod and
// every node the answer that looking at everything gives. Each decision is checked in
// its turn: a pod is placed only where the oracle allows it, and waits only when the
// oracle allows it nowhere.
func TestR11_TheBoardAgreesWithTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		v := newView(w.st)
		w.st.OnEvents((&scheduler{Config: Config{Store: w.st}, view: v, queue: newQueue(), waiting: map[store.Key]wait{}}).handle)
		nodes, pods := 0, 0
		pick := func(objs []api.Object) api.Object {
			if len(objs) == 0 {
				return nil
			}
			return rapid.SampledFrom(objs).Draw(rt, "which").DeepCopyObject().(api.Object)
		}
		somePod := func() *corev1.Pod {
			pod, _ := pick(w.st.List(api.Pods(), "")).(*corev1.Pod)
			return pod
		}
		anew := func() *corev1.Pod {
			pods++
			return aPod(t, fmt.Sprintf("p%d", pods), w.now, draw(rt, "wishes", 4, wishes()...))
		}
		addNode := func(*rapid.T) {
			if nodes == 5 {
				return
			}
			nodes++
			name := fmt.Sprintf("n%d", nodes)
			w.commit(store.Create, aNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}, draw(rt, "node", 2, nodeWords()...)))
			w.lease(name)
		}
		addNode(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"node": addNode,
			"edit": func(*rapid.T) {
				if n, ok := pick(w.st.List(api.Nodes(), "")).(*corev1.Node); ok {
					w.commit(store.Update, aNode(t, n, draw(rt, "node", 2, nodeWords()...)))
				}
			},
			"remove": func(*rapid.T) {
				if n := pick(w.st.List(api.Nodes(), "")); n != nil && rapid.IntRange(0, 3).Draw(rt, "really") == 0 {
					w.commit(store.Delete, n)
				}
			},
			"namespace": func(*rapid.T) {
				w.namespace(rapid.SampledFrom([]string{"default", "other"}).Draw(rt, "name"), draw(rt, "labels", 1, "label:team=a", "label:team=b"))
			},
			"pod": func(*rapid.T) {
				pod := anew()
				if n := pick(w.st.List(api.Nodes(), "")); n != nil {
					pod.Spec.NodeName = n.GetName()
				}
				w.commit(store.Create, pod)
			},
			"relabel": func(*rapid.T) {
				if pod := somePod(); pod != nil {
					pod.Labels = map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "app")}
					w.commit(store.Update, pod)
				}
			},
			"stop": func(*rapid.T) {
				if pod := somePod(); pod != nil && pod.DeletionTimestamp == nil {
					pod.DeletionTimestamp = &metav1.Time{Time: w.now}
					w.commit(store.Update, pod)
				}
			},
			"end": func(*rapid.T) {
				if pod := somePod(); pod != nil {
					pod.Status.Phase = corev1.PodFailed
					w.commit(store.Update, pod)
				}
			},
			"delete": func(*rapid.T) {
				if pod := somePod(); pod != nil {
					w.commit(store.Delete, pod)
				}
			},
			"plan": func(*rapid.T) {
				var batch []*corev1.Pod
				for range rapid.IntRange(1, 5).Draw(rt, "pods") {
					batch = append(batch, anew())
				}
				b := v.look()
				checkPlan(rt, oracleOf(w.st), plan(b, batch))
				// The plan left no trace.
				checkNodes(rt, b, oracleOf(w.st), anew())
			},
			"": func(rt *rapid.T) {
				checkNodes(rt, v.look(), oracleOf(w.st), aPod(t, "probe", w.now, draw(rt, "probe", 4, wishes()...)))
			},
		})
	})
}

// handle is what the loop does with events.
func (s *scheduler) handle(events []store.Event) {
	for _, e := range events {
		switch e.Key.GroupResource {
		case api.Pods():
			s.ofPod(e)
		case api.Nodes():
			s.ofNode(e)
		case api.Leases():
			s.ofLease(e)
		case api.Namespaces():
			s.ofNamespace(e)
		}
	}
}

// checkNodes compares board and oracle about one pod on each node.
func checkNodes(t *rapid.T, b *board, o *oracle, pod *corev1.Pod) {
	trial := b.trial(b.record(pod))
	if len(b.slots) != len(o.nodes) {
		t.Fatalf("%d nodes on the board, %d there are", len(b.slots), len(o.nodes))
	}
	for name, slot := range b.slots {
		got, want := trial.why(slot), o.objection(pod, name)
		if (got == fits) != (want == "") {
			t.Fatalf("%s on %s: the board says %q, the oracle %q", pod.Name, name, got, want)
		}
	}
}

// checkPlan follows the decisions of a plan.
func checkPlan(t *rapid.T, o *oracle, decisions []decision) {
	kept := map[string][]*corev1.Pod{} // nominated, by node
	for _, d := range decisions {
		allowed := func(name string) bool {
			if o.objection(d.pod, name) != "" {
				return false
			}
			var beside []*corev1.Pod
			for _, p := range kept[name] {
				if priorityOf(p) >= priorityOf(d.pod) {
					beside = append(beside, onNode(p, name))
				}
			}
			return o.with(beside...).objection(d.pod, name) == ""
		}
		if d.node != nil {
			if !allowed(d.node.Name) {
				t.Fatalf("%s is placed on %s: %s", d.pod.Name, d.node.Name, o.objection(d.pod, d.node.Name))
			}
			o.pods = append(o.pods, onNode(d.pod, d.node.Name))
			continue
		}
		for name := range o.nodes {
			if allowed(name) {
				t.Fatalf("%s waits although %s allows it: %s", d.pod.Name, name, d.message)
			}
		}
		if d.nominated != "" {
			checkVictims(t, o, &d, kept[d.nominated])
			kept[d.nominated] = slices.DeleteFunc(kept[d.nominated], func(p *corev1.Pod) bool { return slices.Contains(d.displaced, p) })
			kept[d.nominated] = append(kept[d.nominated], d.pod)
			for i, p := range o.pods {
				if slices.ContainsFunc(d.victims, func(v *corev1.Pod) bool { return v.UID == p.UID }) {
					going := p.DeepCopy()
					going.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
					o.pods[i] = going
				}
			}
		}
	}
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func onNode(pod *corev1.Pod, node string) *corev1.Pod {
	out := pod.DeepCopy()
	out.Spec.NodeName = node
	return out
}

func (o *oracle) with(pods ...*corev1.Pod) *oracle {
	out := *o
	out.pods = append(slices.Clone(o.pods), pods...)
	return &out
}

// checkVictims: victims have a lower priority, without them and those that are going
// anyway the pod fits, and none of them could stay.
func checkVictims(t *rapid.T, o *oracle, d *decision, kept []*corev1.Pod) {
	without := *o
	without.pods = slices.DeleteFunc(slices.Clone(o.pods), func(p *corev1.Pod) bool {
		going := p.DeletionTimestamp != nil && priorityOf(p) < priorityOf(d.pod) && p.Spec.NodeName == d.nominated
		return going || slices.ContainsFunc(d.victims, func(v *corev1.Pod) bool { return v.UID == p.UID })
	})
	for _, p := range kept {
		if priorityOf(p) >= priorityOf(d.pod) {
			without.pods = append(without.pods, onNode(p, d.nominated))
		}
	}
	if why := without.objection(d.pod, d.nominated); why != "" {
		t.Fatalf("%s does not fit on %s even without its victims: %s", d.pod.Name, d.nominated, why)
	}
	for _, v := range d.victims {
		if priorityOf(v) >= priorityOf(d.pod) || v.Spec.NodeName != d.nominated || v.DeletionTimestamp != nil {
			t.Fatalf("%s is no victim for %s", v.Name, d.pod.Name)
		}
	}
}
