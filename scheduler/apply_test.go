package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (w *world) eventsOf(pod string) (out []string) {
	for _, obj := range w.st.List(api.Events(), "default") {
		e := obj.(*corev1.Event)
		if e.InvolvedObject.Name == pod {
			out = append(out, e.Type+" "+e.Reason+" "+e.Message)
		}
	}
	return out
}

func TestWaitingPodSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=1")
	w.command("pod a cpu=2")
	w.run()
	const why = "0/1 nodes are available: 1 Insufficient cpu."
	pod := w.pod("a")
	if len(pod.Status.Conditions) != 1 {
		t.Fatalf("conditions %v", pod.Status.Conditions)
	}
	c := pod.Status.Conditions[0]
	if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse || c.Reason != "Unschedulable" || c.Message != why || c.LastTransitionTime.IsZero() {
		t.Errorf("condition %+v", c)
	}
	if got := w.eventsOf("a"); len(got) != 1 || got[0] != "Warning FailedScheduling "+why {
		t.Errorf("events %q", got)
	}

	revision := w.st.Revision()
	w.command("edit n1 cpu=1 label:new=label")
	w.run()
	if got := w.pod("a").ResourceVersion; got != pod.ResourceVersion || w.st.Revision() != revision+1 {
		t.Error("the same reason was written again")
	}

	w.now = w.now.Add(time.Minute)
	w.command("edit n1 cpu=2")
	w.run()
	pod = w.pod("a")
	c = pod.Status.Conditions[0]
	if pod.Spec.NodeName != "n1" || len(pod.Status.Conditions) != 1 || c.Status != corev1.ConditionTrue || c.Reason != "" || c.Message != "" || !c.LastTransitionTime.Time.Equal(w.now) {
		t.Errorf("bound pod: %q %+v", pod.Spec.NodeName, pod.Status.Conditions)
	}
	if got := w.eventsOf("a"); len(got) != 2 || got[0] != "Normal Scheduled Successfully assigned default/a to n1" && got[1] != "Normal Scheduled Successfully assigned default/a to n1" {
		t.Errorf("events %q", got)
	}
}

// TestR4_DeposedSchedulerBindsNothing uses a fence that nobody holds.
func TestR4_DeposedSchedulerBindsNothing(t *testing.T) {
	w := newWorld(t)
	w.command("node n1")
	w.command("pod a")
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{Key: "/headway/_election/leader", Revision: 1} }, Now: func() time.Time { return w.now }})
	if !w.loop.Step(context.Background()) {
		t.Fatal("nothing was tried")
	}
	storetest.Settle(t, w.st)
	if got := w.pod("a").Spec.NodeName; got != "" {
		t.Errorf("bound to %s", got)
	}
}

// TestR11_WaitsForTheElection: the binds of the leader before may not be in the cache.
func TestR11_WaitsForTheElection(t *testing.T) {
	w := newWorld(t)
	w.command("node n1")
	w.command("pod a")
	revision := w.st.Revision()
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence {
		return store.Fence{Key: "/headway/_election/leader", Revision: revision + 1}
	}, Now: func() time.Time { return w.now }})
	w.loop.Step(context.Background())
	if w.loop.Next().IsZero() {
		t.Error("the pod is not looked at again")
	}
	if w.st.Revision() != revision {
		t.Error("something was written")
	}
}

// TestPodsThatChangeDoNotHoldUpABatch: of three pods one was changed where the
// cache does not show it yet.
func TestPodsThatChangeDoNotHoldUpABatch(t *testing.T) {
	for _, which := range []string{"a", "b", "c"} {
		w := newWorld(t)
		w.command("node n1")
		for _, name := range []string{"a", "b", "c"} {
			w.command("pod " + name)
		}
		changed := w.pod(which)
		changed.Labels = map[string]string{"x": "y"}
		if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Update, Object: changed}}}); err != nil {
			t.Fatal(err)
		}
		if !w.loop.Step(context.Background()) { // before the cache has seen it
			t.Fatal("nothing was tried")
		}
		storetest.Settle(t, w.st)
		for _, pod := range w.pods() {
			if bound := pod.Spec.NodeName == "n1"; bound == (pod.Name == which) {
				t.Errorf("%s changed: %s is on %q", which, pod.Name, pod.Spec.NodeName)
			}
		}
		w.run()
		if pod := w.pod(which); pod.Spec.NodeName != "n1" || pod.Labels["x"] != "y" {
			t.Errorf("%s is on %q with labels %v", which, pod.Spec.NodeName, pod.Labels)
		}
	}
}

// A pod that has failed, as one over its deadline does, has its room until its
// containers have stopped.
func TestR11_AFailedPodThatStillRunsHasItsRoom(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=1")
	w.command("pod late cpu=1")
	w.run()
	late := w.pod("late")
	late.Status.Phase = corev1.PodFailed
	late.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.commit(store.Update, late)
	w.command("pod next cpu=1")
	w.run()
	if on := w.pod("next").Spec.NodeName; on != "" {
		t.Fatalf("the next pod is on %s beside it", on)
	}
	late = w.pod("late")
	late.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	w.commit(store.Update, late)
	w.run()
	if on := w.pod("next").Spec.NodeName; on != "n1" {
		t.Errorf("the next pod is on %q when it has stopped", on)
	}
}

// TestRun runs the loop and the store for real.
func TestRun(t *testing.T) {
	w := &world{t: t, st: storetest.Open(t)}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: time.Now})
	w.st.OnEvents(w.loop.Handle)
	bound := make(chan string, 100)
	w.st.OnEvents(func(events []store.Event) {
		for _, e := range events {
			was, _ := e.Previous.(*corev1.Pod)
			is, _ := e.Object.(*corev1.Pod)
			if was != nil && is != nil && was.Spec.NodeName == "" && is.Spec.NodeName != "" {
				bound <- is.Name
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- w.st.Run(ctx) }()
	go func() { ended <- w.loop.Run(ctx) }()
	create := func(obj api.Object) {
		t.Helper()
		if _, err := w.st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
	}
	const pods = 60
	for i := range pods {
		create(aPod(t, fmt.Sprintf("p%d", i), time.Now(), []string{"cpu=100m"}))
		if i == pods/2 {
			create(aNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}}, []string{"cpu=6"}))
			create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}})
		}
	}
	for range pods {
		select {
		case <-bound:
		case <-time.After(2 * time.Minute):
			t.Fatal("pods wait although there is room")
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestNodeThatChangedMeanwhileGetsNothing(t *testing.T) {
	w := newWorld(t)
	w.command("node n1")
	w.command("pod a")
	node := w.node("n1")
	node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Update, Object: node}}}); err != nil {
		t.Fatal(err)
	}
	w.loop.Step(context.Background()) // before the cache has seen it
	w.run()
	if got := w.pod("a"); got.Spec.NodeName != "" {
		t.Errorf("bound to %s", got.Spec.NodeName)
	}
}

func TestFiftyPodsInOneTransaction(t *testing.T) {
	w := newWorld(t)
	w.command("node n1")
	w.command("node n2")
	for i := range 50 {
		w.command(fmt.Sprintf("pod p%d owner=o cpu=50m", i))
	}
	revision := w.st.Revision()
	if !w.loop.Step(context.Background()) {
		t.Fatal("nothing was due")
	}
	storetest.Settle(t, w.st)
	if w.st.Revision() != revision+1 {
		t.Errorf("%d transactions", w.st.Revision()-revision)
	}
	on := map[string]int{}
	for _, pod := range w.pods() {
		on[pod.Spec.NodeName]++
	}
	if on["n1"] != 25 || on["n2"] != 25 {
		t.Errorf("pods on nodes: %v", on)
	}
}

func BenchmarkPlan50PodsOn1000Nodes(b *testing.B) {
	board := newBoard()
	for i := range 1000 {
		board.setNode(aNode(b, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i)}}, nil), true)
	}
	var pods []*corev1.Pod
	for i := range 50 {
		pods = append(pods, aPod(b, fmt.Sprintf("p%d", i), time.Unix(0, 0), []string{"cpu=100m", "owner=o"}))
	}
	for b.Loop() {
		plan(board, pods)
	}
}
