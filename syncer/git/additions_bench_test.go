package git

import (
	"fmt"
	"testing"
)

// BenchmarkAdditions packs small objects, as the live ref and notes do.
func BenchmarkAdditions(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var a additions
		for i := range 1000 {
			a.add("blob", fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c%d\n", i))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "µs/object")
}
