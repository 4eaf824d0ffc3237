package syncer

import (
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
)

// One object changes; the judge's time must not grow with the number of those
// that do not.
func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, p := benchWorld(b)
			all := many(b, n)
			first := w.repo.add("e0", "", map[string]string{})
			p.rendered[first] = Rendered{Manifests: all}
			w.push(first)
			if st := w.status(); st.Objects != n {
				b.Fatalf("status %+v", st)
			}
			var used time.Duration
			for i := 1; b.Loop(); i++ {
				b.StopTimer()
				list := append([]*api.Manifest(nil), all...)
				list[2] = manifest(b, edit(app, "{name: web}", "{name: d2}", "web:1", fmt.Sprintf("web:%d", i+1)))
				id := w.repo.add(fmt.Sprintf("e%d", i), "e0", map[string]string{})
				p.rendered[id] = Rendered{Manifests: list}
				b.StartTimer()
				before := processor(b)
				v, err := w.s.Judge(b.Context(), Candidate{Commit: id})
				used += processor(b) - before
				if err != nil || !v.OK() || v.Update != 1 || v.Create+v.Delete > 0 || v.Objects != n {
					b.Fatalf("%+v %v", v, err)
				}
			}
			b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
