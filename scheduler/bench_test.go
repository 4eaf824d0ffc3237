package scheduler

import (
	"context"
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

// The size that the figures are for.
const (
	manyNodes = 5_000
	manyPods  = 50_000
)

// bulk writes objects in as few transactions as the store takes.
func (w *world) bulk(objects []api.Object, verb store.Verb) {
	w.t.Helper()
	for len(objects) > 0 {
		n := min(len(objects), store.BulkObjects)
		var txn store.Txn
		for _, obj := range objects[:n] {
			txn.Ops = append(txn.Ops, store.Op{Verb: verb, Object: obj})
		}
		if _, err := w.st.Commit(context.Background(), txn); err != nil {
			w.t.Fatal(err)
		}
		objects = objects[n:]
	}
	storetest.Settle(w.t, w.st)
}

func manyWorld(b *testing.B) *world {
	w := newWorld(b)
	var objects []api.Object
	for i := range manyNodes {
		name := fmt.Sprintf("n%04d", i)
		zone := fmt.Sprintf("label:zone=z%d", i%10)
		objects = append(objects, aNode(b, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, []string{zone}),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
	}
	w.bulk(objects, store.Create)
	return w
}

func somePods(b *testing.B, name string, count int, args func(i int) []string) (pods []api.Object) {
	for i := range count {
		pods = append(pods, aPod(b, fmt.Sprintf("%s%05d", name, i), time.Unix(int64(i), 0), args(i)))
	}
	return pods
}

// bound counts the pods that have a node.
func (w *world) bound() (n int) {
	for _, obj := range w.st.List(api.Pods(), "") {
		if obj.(*corev1.Pod).Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// BenchmarkScheduling places 50,000 pods on 5,000 nodes, from the queue to the
// store's cache that shows them bound, with their Events.
func BenchmarkScheduling(b *testing.B) {
	of := func(i int) string { return fmt.Sprintf("app%d", i%50) }
	type load struct {
		name string
		args func(i int) []string
	}
	for _, l := range []load{
		{"plain", func(i int) []string {
			return []string{"cpu=100m", "memory=100Mi", "owner=" + of(i), "label:app=" + of(i)}
		}},
		{"anti-affinity", func(i int) []string {
			return []string{"cpu=100m", "memory=100Mi", "owner=" + of(i), "label:app=" + of(i), "apart=kubernetes.io/hostname:app=" + of(i)}
		}},
		{"spread", func(i int) []string {
			return []string{"cpu=100m", "memory=100Mi", "owner=" + of(i), "label:app=" + of(i), "spread=1/zone:app=" + of(i)}
		}},
	} {
		b.Run(l.name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				w := manyWorld(b)
				w.bulk(somePods(b, "p", manyPods, l.args), store.Create)
				b.StartTimer()
				for w.loop.Step(context.Background()) {
					storetest.Settle(b, w.st)
				}
				b.StopTimer()
				if got := w.bound(); got != manyPods {
					b.Fatalf("%d pods are bound", got)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(manyPods*b.N)/b.Elapsed().Seconds(), "pods/s")
		})
	}
}

// BenchmarkPreemption: 5,000 full nodes with 50,000 pods of low priority get 5,000
// pods of high priority, each of which takes the place of five. What is deleted is
// gone at once, as from an agent that is quick.
func BenchmarkPreemption(b *testing.B) {
	for range b.N {
		b.StopTimer()
		w := manyWorld(b)
		low := somePods(b, "low", manyPods, func(i int) []string {
			return []string{"cpu=400m", "priority=1", fmt.Sprintf("on=n%04d", i%manyNodes)}
		})
		w.bulk(low, store.Create)
		w.bulk(somePods(b, "high", manyNodes, func(int) []string { return []string{"cpu=2", "priority=100"} }), store.Create)
		var going []api.Object
		w.st.OnEvents(func(events []store.Event) {
			for _, e := range events {
				was, _ := e.Previous.(*corev1.Pod)
				if is, ok := e.Object.(*corev1.Pod); ok && is.DeletionTimestamp != nil && was != nil && was.DeletionTimestamp == nil {
					going = append(going, is)
				}
			}
		})
		b.StartTimer()
		for w.loop.Step(context.Background()) {
			storetest.Settle(b, w.st)
			if gone := going; len(gone) > 0 {
				going = nil
				w.bulk(gone, store.Delete)
			}
		}
		b.StopTimer()
		if got, want := w.bound(), manyPods-5*manyNodes+manyNodes; got != want {
			b.Fatalf("%d pods are bound, and it should be %d", got, want)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(manyNodes*b.N)/b.Elapsed().Seconds(), "pods/s")
}
