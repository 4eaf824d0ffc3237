package deployment

import (
	"context"
	"fmt"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// fleet is n rolled-out deployments of two pods.
func fleet(b *testing.B, n int) *world {
	w := newWorld(b, b)
	for i := range n {
		d := web(2, "25%", "25%")
		d.Name = fmt.Sprintf("web-%d", i)
		d.Spec.Selector.MatchLabels = map[string]string{"app": d.Name}
		d.Spec.Template.Labels = map[string]string{"app": d.Name}
		w.Create(d)
	}
	for i := 0; i < 10*n; i++ {
		w.Sync()
		if !w.Loop.Step(context.Background()) {
			break
		}
	}
	for _, p := range w.pods() {
		w.run(p, true)
	}
	for i := 0; i < 10*n; i++ {
		w.Sync()
		if !w.Loop.Step(context.Background()) {
			break
		}
	}
	return w
}

// BenchmarkResync is a look at each of 1,000 deployments that need nothing.
func BenchmarkResync1000(b *testing.B) {
	w := fleet(b, 1000)
	before := w.Commits
	b.ReportAllocs()
	for b.Loop() {
		for _, obj := range w.Store.List(api.Deployments(), "") {
			w.Loop.Wake(store.KeyOf(obj))
		}
		for w.Loop.Step(context.Background()) {
		}
	}
	if w.Commits != before {
		b.Fatalf("%d transactions without a reason", w.Commits-before)
	}
}

// BenchmarkRollout is one deployment of ten pods among 1,000 others, from the
// changed template until the last old pod is marked.
func BenchmarkRolloutAmong1000(b *testing.B) {
	w := fleet(b, 1000)
	w.Create(web(10, "25%", "25%"))
	n := 0
	for b.Loop() {
		n++
		w.change(image(fmt.Sprintf("hello:%d", n)))
		w.rollOut()
	}
}

// rollOut plays the nodes for the deployment web.
func (w *world) rollOut() {
	for range 100 {
		w.Settle()
		d, busy := w.deployment(), false
		for _, rs := range w.Store.Owned(d.UID) {
			for _, obj := range w.Store.Owned(rs.GetUID()) {
				p := obj.(*corev1.Pod)
				switch {
				case p.DeletionTimestamp != nil:
					w.end(p)
				case podset.Active(p) && !podset.Ready(p):
					w.run(p, true)
				default:
					continue
				}
				busy = true
			}
		}
		if !busy {
			return
		}
	}
	w.Fatalf("the rollout does not end")
}
