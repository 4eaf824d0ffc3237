package scheduler

import (
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func (w *world) ask(count int, leaving []string, args ...string) Answer {
	w.t.Helper()
	gone := map[types.UID]bool{}
	for _, name := range leaving {
		gone[w.pod(name).UID] = true
	}
	answers, ok := Fit(w.st, gone, []Ask{{aPod(w.t, "new", w.now, args), count}})
	if !ok || len(answers) != 1 {
		w.t.Fatalf("answers %v, %v", answers, ok)
	}
	return answers[0]
}

func TestFit(t *testing.T) {
	w := newWorld(t)
	if got := w.ask(5, nil, "cpu=100"); got != (Answer{Fit: 5}) {
		t.Errorf("without a node: %+v", got)
	}
	w.command("node n1 cpu=4 label:disk=ssd")
	w.command("node n2 cpu=2 notready")
	w.command("node n3 cpu=2 taint=a=b:NoSchedule")
	w.command("pod old cpu=3 on=n1")
	w.command("pod done cpu=1 on=n1")
	w.command("end done")
	for _, tt := range []struct {
		count   int
		leaving []string
		args    []string
		want    Answer
	}{
		{1, nil, []string{"cpu=1"}, Answer{Fit: 1}},
		{3, nil, []string{"cpu=1"}, Answer{Fit: 1, Why: "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were not ready."}},
		{3, nil, []string{"cpu=1", "tolerate=a=b:NoSchedule"}, Answer{Fit: 3}},
		{4, []string{"old"}, []string{"cpu=1"}, Answer{Fit: 4}},
		{0, nil, []string{"cpu=3"}, Answer{}},
		{2, nil, []string{"cpu=5"}, Answer{Never: true, Why: "0/3 nodes are available: 3 Insufficient cpu."}},
		{0, nil, []string{"cpu=5"}, Answer{Never: true, Why: "0/3 nodes are available: 3 Insufficient cpu."}},
		{1, nil, []string{"cpu=3", "select:disk=ssd"}, Answer{Why: "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were not ready."}},
		{1, nil, []string{"select:disk=hdd"}, Answer{Never: true, Why: "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."}},
		{1, nil, []string{"cpu=3", "select:disk=hdd"}, Answer{Never: true, Why: "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."}},
		{2, nil, []string{"port=80"}, Answer{Fit: 1, Why: "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 1 node(s) had untolerated taint(s), 1 node(s) were not ready."}},
	} {
		if got := w.ask(tt.count, tt.leaving, tt.args...); got != tt.want {
			t.Errorf("%d × %v without %v: %+v, want %+v", tt.count, tt.args, tt.leaving, got, tt.want)
		}
	}
	// Those that wait already come first; those that are being deleted are gone.
	w.command("pod waiting cpu=1")
	if got := w.ask(1, nil, "cpu=1"); got.Fit != 0 {
		t.Errorf("the room of a pod that waits was given away: %+v", got)
	}
	old := w.pod("old")
	old.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.commit(store.Update, old)
	if got := w.ask(3, nil, "cpu=1"); got.Fit != 3 {
		t.Errorf("a pod that is going keeps its room: %+v", got)
	}
	// The asks see each other.
	answers, ok := Fit(w.st, nil, []Ask{{aPod(t, "a", w.now, []string{"cpu=2"}), 1}, {aPod(t, "b", w.now, []string{"cpu=1"}), 2}})
	if !ok || answers[0].Fit != 1 || answers[1].Fit != 1 {
		t.Errorf("%+v", answers)
	}
}

func TestFitWithoutALivingNode(t *testing.T) {
	w := newWorld(t)
	w.command("node n1 cpu=4 notready")
	if got := w.ask(50, nil, "cpu=1"); got != (Answer{Fit: 50}) {
		t.Errorf("%+v", got)
	}
	if got := w.ask(50, nil, "cpu=5"); !got.Never {
		t.Errorf("%+v", got)
	}
}

func TestFitIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.command(fmt.Sprintf("node n%d cpu=1000000 pods=1000000", i))
	}
	pod := aPod(t, "a", w.now, nil)
	if _, ok := Fit(w.st, nil, []Ask{{pod, maxLooks}}); ok {
		t.Error("a million pods on three nodes are worked out")
	}
	if answers, ok := Fit(w.st, nil, []Ask{{pod, 1000}}); !ok || answers[0].Fit != 1000 {
		t.Errorf("%+v %v", answers, ok)
	}
}

// What Fit says is what the scheduler then does, and asking changes nothing.
func TestFitIsTheSchedulersOwnDecision(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		some := func(label string, words ...string) []string {
			return rapid.SliceOfN(rapid.SampledFrom(words), 0, 3).Draw(rt, label)
		}
		for i := range rapid.IntRange(0, 4).Draw(rt, "nodes") {
			line := fmt.Sprintf("node n%d cpu=2 pods=5", i)
			for _, word := range some("node", "label:zone=a", "taint=a=b:NoSchedule", "unschedulable", "notready") {
				line += " " + word
			}
			w.command(line)
		}
		for i := range rapid.IntRange(0, 6).Draw(rt, "there already") {
			w.command(fmt.Sprintf("pod old%d cpu=500m", i))
		}
		w.run()
		args := append(some("asks", "select:zone=a", "tolerate=a=b:NoSchedule", "port=80", "label:app=x", "apart=kubernetes.io/hostname:app=x", "spread=1/kubernetes.io/hostname:app=x"), rapid.SampledFrom([]string{"cpu=250m", "cpu=1", "cpu=3"}).Draw(rt, "cpu"))
		count := rapid.IntRange(1, 8).Draw(rt, "count")
		revision := w.st.Revision()
		answer := w.ask(count, nil, args...)
		if w.st.Revision() != revision {
			rt.Fatal("asking wrote something")
		}
		for i := range count {
			w.commit(store.Create, aPod(t, fmt.Sprintf("new%d", i), w.now, args))
		}
		w.run()
		placed := 0
		for i := range count {
			if w.pod(fmt.Sprintf("new%d", i)).Spec.NodeName != "" {
				placed++
			}
		}
		alive := false
		for _, n := range newView(w.st).look().spots {
			alive = alive || n.alive
		}
		if !alive && !answer.Never {
			if answer.Fit != count {
				rt.Fatalf("without a living node: %+v", answer)
			}
			return
		}
		if answer.Fit != placed || answer.Never && placed > 0 || (answer.Fit < count) != (answer.Why != "") {
			rt.Fatalf("%d of %d placed, and the answer was %+v", placed, count, answer)
		}
	})
}

func BenchmarkFit(b *testing.B) {
	for _, nodes := range []int{3, 100, 1000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			w := newWorld(b)
			for i := range nodes {
				w.command(fmt.Sprintf("node n%04d cpu=64 pods=200", i))
				for j := range 10 {
					w.commit(store.Create, aPod(b, fmt.Sprintf("p%d-%d", i, j), time.Unix(0, 0), []string{"cpu=100m", fmt.Sprintf("on=n%04d", i)}))
				}
			}
			asks := []Ask{{aPod(b, "new", time.Unix(0, 0), []string{"cpu=100m"}), min(900, 900_000/nodes)}}
			for b.Loop() {
				if answers, ok := Fit(w.st, nil, asks); !ok || answers[0].Never {
					b.Fatal(answers, ok)
				}
			}
		})
	}
}
