package render_test

import (
	"fmt"
	"sync"
	"testing"

	"headway.dev/headway/syncer/render"
)

// TestRendersAtTheSameTime renders several trees at once with one cache, as pushes
// under judgement do: kustomize keeps state for the process.
func TestRendersAtTheSameTime(t *testing.T) {
	cache := render.NewCache(0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			files := overlays(6)
			files["own.yaml"] = config(fmt.Sprintf("own-%d", i%3))
			for range 3 {
				result, problems, err := render.Render(files, render.Options{Cache: cache})
				if err != nil || len(problems) > 0 || len(result.Manifests) != 6*3+1 {
					t.Errorf("%d manifests, %v %v", len(result.Manifests), problems, err)
				}
				for _, m := range result.Manifests {
					if at := m.Place("metadata.name"); at.Line < 1 {
						t.Errorf("%s has no place", m.Object.GetName())
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestChangesAreReadAtTheSameTime starts from one tree in several renders at once.
func TestChangesAreReadAtTheSameTime(t *testing.T) {
	const n = 100
	files := hash(deployments(n))
	opts := render.Options{Cache: render.NewCache(0), Ignore: []string{"left*"}}
	if _, problems, err := render.Render(compared{files, "0", nil}, opts); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for round := range 20 {
				f := files.files[(i*20+round)%n]
				f.Hash = fmt.Sprint(i, round)
				result, problems, err := render.Render(compared{files, f.Hash, []render.File{f}}, opts)
				if err != nil || len(problems) > 0 || len(result.Manifests) != n || result.Read != 1 {
					t.Errorf("%d manifests, %d read, %v %v", len(result.Manifests), result.Read, problems, err)
				}
			}
		})
	}
	wg.Wait()
}
