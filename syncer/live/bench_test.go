package live_test

import (
	"testing"

	"headway.dev/headway/syncer/live"
	appsv1 "k8s.io/api/apps/v1"
)

func BenchmarkCompare(b *testing.B) {
	m := manifests(b, "web.yaml", web)[0]
	obj := copied(m.Object.(*appsv1.Deployment))
	scale(obj)
	b.ReportAllocs()
	for b.Loop() {
		if d, err := live.Compare(m, obj); err != nil || len(d.Fields) != 1 {
			b.Fatal(err)
		}
	}
}

// BenchmarkTree writes one scaled Deployment.
func BenchmarkTree(b *testing.B) {
	for name, f := range map[string]files{
		"plain":         {"web/web.yaml": shop},
		"kustomization": {"web/web.yaml": shop, "web/kustomization.yaml": "namePrefix: p-\nresources: [web.yaml]\n"},
	} {
		b.Run(name, func(b *testing.B) {
			units := []string{"web"}
			if name == "plain" {
				units = nil
			}
			m := f.declares(b, units...)[0]
			obj := copied(m.Object.(*appsv1.Deployment))
			scale(obj)
			drifts := []*live.Drift{compare(b, m, obj)}
			for b.Loop() {
				if changed, _, err := live.Tree(f, drifts); err != nil || len(changed) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
