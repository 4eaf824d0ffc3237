package daemonset

import (
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile/reconciletest"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// "A DaemonSet ensures that all eligible nodes run a copy of a Pod: one is created
// for each, with spec.affinity.nodeAffinity matching the target host by its
// metadata.name" (DaemonSet, how daemon pods are scheduled).
func TestOnePodPerNode(t *testing.T) {
	w := newWorld(t, t, three()...)
	w.Create(logs(func(s *appsv1.DaemonSet) {
		s.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n2"}}}}}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 3}},
		}}
	}))
	w.Settle()
	w.see("n1:a! n3:a!")
	w.seeStatus("2/2/0/2/0/2/0")
	p := w.on("n3")[0]
	a := p.Spec.Affinity.NodeAffinity
	terms := a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if p.Spec.NodeName != "" || len(terms) != 1 || len(terms[0].MatchExpressions) != 0 || terms[0].MatchFields[0].Key != "metadata.name" || terms[0].MatchFields[0].Values[0] != "n3" || len(a.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("node %q, affinity %+v", p.Spec.NodeName, a)
	}
	rev := w.Store.List(api.ControllerRevisions(), "shop")[0].(*appsv1.ControllerRevision)
	hash := p.Labels["controller-revision-hash"]
	if rev.Name != "logs-"+hash || rev.Labels["controller-revision-hash"] != hash || p.Labels["pod-template-generation"] != "1" || p.GenerateName != "logs-" || !metav1.IsControlledBy(p, w.set()) {
		t.Errorf("labels %v of a pod of revision %s", p.Labels, rev.Name)
	}
	w.ready("n1")
	w.seeStatus("2/2/1/2/1/1/0")
	if got := w.Events("shop", "SuccessfulCreate"); len(got) != 2 || !strings.HasPrefix(got[0], "Created pod: logs-") {
		t.Errorf("events %v", got)
	}
	if w.set().Status.ObservedGeneration != w.set().Generation {
		t.Errorf("status %+v", w.set().Status)
	}
}

// "As nodes are added to the cluster, Pods are added to them. As nodes are removed,
// those Pods are garbage collected."
func TestNodesComeAndGo(t *testing.T) {
	w := rolledOut(t, []string{"n1"})
	w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	w.Settle()
	w.see("n1:a n2:a!")
	w.Commit(store.Op{Verb: store.Delete, Object: w.Store.Get(store.Key{GroupResource: api.Nodes(), Name: "n2"})})
	w.Settle()
	w.see("n1:a") // it was never bound
	w.seeStatus("1/1/1/1/1/0/0")
}

// "If you specify a .spec.template.spec.nodeSelector, Pods are made on nodes which
// match it"; with nodeName on that one alone. A pod on a node that matches no more
// goes.
func TestPlacementBySelector(t *testing.T) {
	w := rolledOut(t, three(), nodeSelector(map[string]string{"name": "n2"}))
	w.see("n2:a")
	w.node("n3", func(n *corev1.Node) { n.Labels["name"] = "n2" })
	w.see("n2:a n3:a!")
	w.node("n2", func(n *corev1.Node) { n.Labels["name"] = "other" })
	w.see("n2:a- n3:a!")
	w.seeStatus("1/1/0/1/0/1/1")
	w.work()
	w.see("n3:a")

	w = newWorld(t, t, three()...)
	w.Create(logs(func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.NodeName = "n2" }))
	w.Settle()
	w.see("n2:a!")
	if p := w.on("n2")[0]; p.Spec.NodeName != "n2" {
		t.Errorf("it is bound to %q", p.Spec.NodeName)
	}
}

// The tolerations that "the DaemonSet controller automatically adds", by which its
// pods run on nodes that have something wrong with them.
func TestAutomaticTolerations(t *testing.T) {
	want := map[string]corev1.TaintEffect{
		"node.kubernetes.io/not-ready": corev1.TaintEffectNoExecute, "node.kubernetes.io/unreachable": corev1.TaintEffectNoExecute,
		"node.kubernetes.io/disk-pressure": corev1.TaintEffectNoSchedule, "node.kubernetes.io/memory-pressure": corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/pid-pressure": corev1.TaintEffectNoSchedule, "node.kubernetes.io/unschedulable": corev1.TaintEffectNoSchedule,
	}
	w := newWorld(t, t, "n1")
	w.node("n1", func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		for key, effect := range want {
			taint(key, effect)(n)
		}
	})
	seconds := int64(10)
	w.Create(logs(func(s *appsv1.DaemonSet) {
		s.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}}
	}))
	w.Settle()
	w.see("n1:a!")
	p := w.on("n1")[0]
	if len(p.Spec.Tolerations) != len(want) {
		t.Errorf("tolerations %+v", p.Spec.Tolerations)
	}
	for _, tol := range p.Spec.Tolerations {
		if want[tol.Key] != tol.Effect || tol.Operator != corev1.TolerationOpExists || tol.TolerationSeconds != nil {
			t.Errorf("toleration %+v", tol)
		}
	}
	// "node.kubernetes.io/network-unavailable: only added for pods that request host
	// networking".
	spec := corev1.PodSpec{HostNetwork: true}
	if !slices.ContainsFunc(tolerations(&spec), func(t corev1.Toleration) bool { return t.Key == "node.kubernetes.io/network-unavailable" }) {
		t.Error("with hostNetwork network-unavailable is not tolerated")
	}
}

// "A taint that the Pods do not tolerate keeps them off; NoSchedule lets one that
// runs stay, NoExecute does not." A pod that stays counts as misscheduled.
func TestTaints(t *testing.T) {
	w := rolledOut(t, three())
	w.node("n1", taint("gpu", corev1.TaintEffectNoSchedule))
	w.node("n2", taint("gpu", corev1.TaintEffectPreferNoSchedule))
	w.node("n3", taint("gpu", corev1.TaintEffectNoExecute))
	w.see("n1:a n2:a n3:a-")
	w.work()
	w.see("n1:a n2:a")
	w.seeStatus("1/1/1/1/1/0/1")
	w.Commit(podset.Remove(w.on("n1")[0], w.Now)...)
	w.work()
	w.see("n2:a")
	w.node("n1", untaint)
	w.node("n3", untaint)
	w.see("n1:a! n2:a n3:a!")
	w.change(func(s *appsv1.DaemonSet) {
		s.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	})
	w.work()
	w.node("n1", taint("gpu", corev1.TaintEffectNoExecute))
	w.see("n1:a n2:a n3:a")
}

// Without surge the next pod of a node is made when the one before is gone.
func TestAReplacementWaits(t *testing.T) {
	w := rolledOut(t, []string{"n1"})
	w.Commit(podset.Remove(w.on("n1")[0], w.Now)...)
	w.Settle()
	w.see("n1:a-")
	w.ready("n1")
	w.see("n1:a!")
}

// A failed pod is deleted, and so replaced: at once the first time, then with a
// back-off from one second on that doubles; a succeeded one always at once.
func TestEndedPodsAreReplacedWithBackOff(t *testing.T) {
	w := rolledOut(t, []string{"n1", "n2"})
	end := func(phase corev1.PodPhase) {
		t.Helper()
		p := w.on("n1")[0].DeepCopy()
		p.Spec.NodeName, p.Status.Phase = "n1", phase
		w.Update(p)
		w.Settle()
	}
	end(corev1.PodFailed)
	w.see("n1:a! n2:a")
	if got := w.Events("shop", "FailedDaemonPod"); len(got) != 1 || !strings.HasPrefix(got[0], "Found failed daemon pod shop/logs-") || !strings.HasSuffix(got[0], " on node n1, will try to kill it") {
		t.Errorf("events %v", got)
	}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		end(corev1.PodFailed)
		w.see("n1:ax n2:a")
		w.Now = w.Now.Add(wait - time.Millisecond)
		w.Settle()
		w.see("n1:ax n2:a")
		w.Now = w.Now.Add(time.Millisecond)
		w.Settle()
		w.see("n1:a! n2:a")
	}
	end(corev1.PodSucceeded)
	w.see("n1:a! n2:a")
	if got := w.Events("shop", "SucceededDaemonPod"); len(got) != 1 {
		t.Errorf("events %v", got)
	}
}

func TestBackOffIsBoundedAndForgotten(t *testing.T) {
	f := &failures{}
	now := reconciletest.Noon()
	for range 20 {
		f.note("u", "n1", now)
		now = now.Add(f.left("u", "n1", now))
	}
	f.note("u", "n1", now)
	if got := f.left("u", "n1", now); got != mostDelay {
		t.Errorf("it waits %s", got)
	}
	if got := f.left("u", "n1", now.Add(-time.Hour)); got != mostDelay {
		t.Errorf("with the clock set back it waits %s", got)
	}
	now = now.Add(2*mostDelay + time.Second)
	f.note("u", "n1", now)
	if got := f.left("u", "n1", now); got != firstDelay {
		t.Errorf("after a long time it waits %s", got)
	}
	for i := range 3 * maxTracked {
		f.note("u", strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String(), now)
	}
	if len(f.known) > maxTracked {
		t.Errorf("%d are remembered", len(f.known))
	}
}

// Two pods on one node: without surge the younger goes.
func TestAnExcessPodGoes(t *testing.T) {
	w := rolledOut(t, []string{"n1"})
	twin := w.on("n1")[0].DeepCopy()
	twin.Name, twin.ResourceVersion = "twin", ""
	w.Now = w.Now.Add(time.Minute)
	w.Create(twin)
	w.Settle()
	for _, p := range w.on("n1") {
		if (p.Name == "twin") != (p.DeletionTimestamp != nil) {
			t.Errorf("%s: %v", p.Name, p.DeletionTimestamp)
		}
	}
}

// A pod that the selector matches and nobody controls is adopted; one that it does
// not match any more is released.
func TestAdoptionAndRelease(t *testing.T) {
	w := rolledOut(t, []string{"n1"})
	orphan := w.on("n1")[0].DeepCopy()
	orphan.OwnerReferences = nil
	w.Update(orphan)
	w.Settle()
	if !metav1.IsControlledBy(w.on("n1")[0], w.set()) || len(w.pods()) != 1 {
		t.Errorf("it was not adopted: %s", w.picture())
	}
	stranger := w.on("n1")[0].DeepCopy()
	stranger.Labels["app"] = "other"
	w.Update(stranger)
	w.Settle()
	if len(w.on("n1")) != 2 {
		t.Errorf("it was not replaced: %s", w.picture())
	}
	if metav1.GetControllerOf(w.Store.Get(store.KeyOf(stranger))) != nil {
		t.Error("it was not released")
	}
}

// R12: a pod that may not enter is told of.
func TestR12_ARefusedPodIsToldOf(t *testing.T) {
	w := newWorld(t, t, "n1", "n2")
	w.Create(logs(func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.RuntimeClassName = new("gvisor") }))
	w.Settle()
	w.see("")
	if got := w.Events("shop", "FailedCreate"); len(got) != 1 || !strings.HasPrefix(got[0], "Error creating: ") || !strings.Contains(got[0], "spec.runtimeClassName") {
		t.Errorf("events %v", got)
	}
	w.seeStatus("2/0/0/0/0/2/0")
}

// In a namespace that is being deleted nothing is made.
func TestAClosedNamespace(t *testing.T) {
	w := newWorld(t, t, "n1")
	ns := w.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: "shop"}).DeepCopyObject().(*corev1.Namespace)
	ns.Status.Phase = corev1.NamespaceTerminating
	w.Update(ns)
	w.Create(logs())
	w.Settle()
	w.see("")
}

// Nothing is written when nothing is to be done, and a node's status is no reason
// to look.
func TestSteadyStateIsSilent(t *testing.T) {
	w := rolledOut(t, three())
	before := w.Commits
	w.node("n1", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	w.Now = w.Now.Add(10 * time.Minute)
	w.Settle()
	if w.Commits != before {
		t.Errorf("%d commits", w.Commits-before)
	}
}

// More nodes than one transaction holds.
func TestManyNodes(t *testing.T) {
	var nodes []string
	for i := range 130 {
		nodes = append(nodes, "n"+time.Duration(i).String())
	}
	w := newWorld(t, t, nodes...)
	w.Create(logs())
	w.Settle()
	w.seeStatus("130/130/0/130/0/130/0")
}
