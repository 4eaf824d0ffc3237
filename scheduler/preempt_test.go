package scheduler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Documented: victims get the condition DisruptionTarget and their grace period, the
// preemptor is nominated, and no longer when it is bound.
func TestPreemptionIsTold(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=1")
	low := aPod(t, "low", w.now, []string{"cpu=1", "priority=1", "on=n1"})
	grace := int64(40)
	low.Spec.TerminationGracePeriodSeconds = &grace
	w.commit(store.Create, low)
	w.command("pod high cpu=1 priority=100")
	w.run()

	victim, high := w.pod("low"), w.pod("high")
	if at := victim.DeletionTimestamp; at == nil || !at.Time.Equal(w.now.Add(40*time.Second)) || victim.DeletionGracePeriodSeconds == nil || *victim.DeletionGracePeriodSeconds != grace {
		t.Errorf("the victim ends at %v, %v", at, victim.DeletionGracePeriodSeconds)
	}
	if c := victim.Status.Conditions; len(c) != 1 || c[0].Type != corev1.DisruptionTarget || c[0].Status != corev1.ConditionTrue || c[0].Reason != "PreemptionByScheduler" ||
		c[0].Message != "default-scheduler: preempting to accommodate a higher priority pod" {
		t.Errorf("the victim's conditions: %+v", c)
	}
	if got := w.eventsOf("low"); len(got) != 1 || got[0] != fmt.Sprintf("Normal Preempted Preempted by pod %s on node n1", high.UID) {
		t.Errorf("events of the victim: %q", got)
	}
	if high.Status.NominatedNodeName != "n1" || high.Spec.NodeName != "" || len(high.Status.Conditions) != 1 || high.Status.Conditions[0].Reason != "Unschedulable" {
		t.Errorf("the preemptor: nominated to %q, %+v", high.Status.NominatedNodeName, high.Status.Conditions)
	}
	if got := w.eventsOf("high"); len(got) != 1 || got[0] != "Warning FailedScheduling 0/1 nodes are available: 1 Insufficient cpu." {
		t.Errorf("events of the preemptor: %q", got)
	}

	w.command("delete low")
	w.run()
	if high = w.pod("high"); high.Spec.NodeName != "n1" || high.Status.NominatedNodeName != "" || high.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("the preemptor: on %q, nominated to %q, %+v", high.Spec.NodeName, high.Status.NominatedNodeName, high.Status.Conditions)
	}
}

// What was sent away is not in the cache yet: nothing is decided until it is.
func TestPreemptionWaitsForTheCache(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=1")
	w.command("pod low cpu=1 priority=1 on=n1")
	w.command("pod high1 cpu=1 priority=100")
	if !w.loop.Step(context.Background()) {
		t.Fatal("nothing was due")
	}
	written := func() int64 {
		t.Helper()
		revision, err := w.st.Current(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	after := written()
	high2 := aPod(t, "high2", w.now, []string{"cpu=1", "priority=100"})
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: high2}}}); err != nil {
		t.Fatal(err)
	}
	w.loop.Step(context.Background())
	if got := written(); got != after+1 {
		t.Errorf("%d writes on an old view", got-after-1)
	}
	storetest.Settle(t, w.st)
	w.run()
	if w.pod("high1").Status.NominatedNodeName != "n1" || w.pod("high2").Status.NominatedNodeName != "" {
		t.Error("the room for one pod was promised to two")
	}
}

// A victim that changed meanwhile holds up no other pod of the batch.
func TestVictimThatChangedHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=1")
	w.command("node n2 cpu=1 label:disk=ssd")
	w.command("pod low cpu=1 priority=1 on=n1")
	w.command("pod high cpu=1 priority=100 field=n1")
	w.command("pod other cpu=1 priority=50 select:disk=ssd")
	low := w.pod("low")
	low.Labels = map[string]string{"x": "y"}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Update, Object: low}}}); err != nil {
		t.Fatal(err)
	}
	w.loop.Step(context.Background()) // before the cache has seen it
	storetest.Settle(t, w.st)
	if w.pod("other").Spec.NodeName != "n2" || w.pod("low").DeletionTimestamp != nil {
		t.Errorf("other is on %q, low ends at %v", w.pod("other").Spec.NodeName, w.pod("low").DeletionTimestamp)
	}
	w.run()
	if low := w.pod("low"); low.DeletionTimestamp == nil || low.Labels["x"] != "y" || w.pod("high").Status.NominatedNodeName != "n1" {
		t.Error("the pod was not preempted after that")
	}
}

// Forty victims go at a time.
func TestPreemptionInRounds(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=100 pods=500")
	for i := range 100 {
		w.command(fmt.Sprintf("pod low%03d cpu=1 priority=1 on=n1", i))
	}
	w.command("pod high cpu=100 priority=100")
	rounds := []int{}
	for range 10 {
		w.run()
		going := slices.DeleteFunc(w.pods(), func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil })
		if len(going) == 0 {
			break
		}
		rounds = append(rounds, len(going))
		for _, pod := range going {
			w.commit(store.Delete, pod)
		}
	}
	if !slices.Equal(rounds, []int{40, 40, 20}) || w.pod("high").Spec.NodeName != "n1" {
		t.Errorf("victims by round: %v; the pod is on %q", rounds, w.pod("high").Spec.NodeName)
	}
}

// Of many nodes the one whose victims matter least is found, wherever it is.
func TestPreemptionFindsTheLeastImportant(t *testing.T) {
	b := newBoard()
	const nodes, special = 1000, 777
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		b.setNode(aNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, []string{"cpu=1"}), true)
		priority := "priority=50"
		if i == special {
			priority = "priority=-3"
		}
		b.settle(aPod(t, "p"+name, time.Unix(0, 0), []string{"cpu=1", priority, "on=" + name}), name)
	}
	d := plan(b, []*corev1.Pod{aPod(t, "high", time.Unix(0, 0), []string{"cpu=1", "priority=100"})})[0]
	if d.nominated != "n0777" || len(d.victims) != 1 {
		t.Errorf("nominated to %q, %d victims", d.nominated, len(d.victims))
	}
}
