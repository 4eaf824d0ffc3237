package render_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

// overlays makes n kustomizations that are entry points, each with a base of its
// own of three objects.
func overlays(n int) tree {
	files := tree{}
	for i := range n {
		base, prod := fmt.Sprintf("apps/%04d/base/", i), fmt.Sprintf("apps/%04d/prod/", i)
		files[base+"kustomization.yaml"] = "resources: [web.yaml, account.yaml]\nconfigMapGenerator:\n- name: settings\n  literals: [level=info]\n"
		files[base+"account.yaml"] = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"
		for _, text := range deployments(1) {
			files[base+"web.yaml"] = strings.Replace(text, "  namespace: team-0\n", "", 1)
		}
		files[prod+"kustomization.yaml"] = fmt.Sprintf("namespace: team-%d\nresources: [../base]\nimages: [{name: registry.example.com/team/app, newTag: \"%d\"}]\npatches:\n- path: patch.yaml\n", i, i)
		files[prod+"patch.yaml"] = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app-0}\nspec: {replicas: 3}\n"
	}
	return files
}

func hash(files tree) hashed {
	h := hashed{tree: files}
	for f := range files.Files() {
		h.files = append(h.files, f)
	}
	return h
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkCold renders a whole tree, with nothing remembered.
func BenchmarkCold(b *testing.B) {
	for name, files := range map[string]hashed{
		"1000-files": hash(deployments(1_000)), "10000-files": hash(deployments(10_000)),
		"100-kustomizations": hash(overlays(100)), "1000-kustomizations": hash(overlays(1_000)),
	} {
		b.Run(name, func(b *testing.B) {
			objects := 0
			for b.Loop() {
				result, problems, err := render.Render(files, render.Options{Cache: render.NewCache(0)})
				if err != nil || len(problems) > 0 {
					b.Fatal(len(problems), problems[:min(1, len(problems))], err)
				}
				objects = len(result.Manifests)
			}
			b.ReportMetric(float64(objects)*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

// BenchmarkThreeChanged renders a tree of which three files changed since the last
// time. It must not read or render the rest.
func BenchmarkThreeChanged(b *testing.B) {
	for name, c := range map[string]struct {
		files hashed
		units bool
	}{
		"1000-files": {hash(deployments(1_000)), false}, "10000-files": {hash(deployments(10_000)), false},
		"100-kustomizations": {hash(overlays(100)), true}, "1000-kustomizations": {hash(overlays(1_000)), true},
	} {
		b.Run(name, func(b *testing.B) {
			opts := render.Options{Cache: render.NewCache(64 << 20)}
			before := heap()
			result, _, err := render.Render(c.files, opts)
			if err != nil {
				b.Fatal(err)
			}
			objects := len(result.Manifests)
			after := heap()
			n, of := 0, len(c.files.files)
			for b.Loop() {
				n++
				for i := range 3 {
					c.files.files[i*of/3].Hash = fmt.Sprint(n, i)
				}
				result, problems, err := render.Render(c.files, opts)
				if err != nil || len(problems) > 0 || result.Read != 3 || c.units != (result.Rendered > 0) || result.Rendered > 3 {
					b.Fatal(result.Read, result.Rendered, problems[:min(1, len(problems))], err)
				}
			}
			b.ReportMetric(float64(after-before)/float64(objects), "heapB/object")
		})
	}
}

// BenchmarkNothingChanged renders a tree again.
func BenchmarkNothingChanged(b *testing.B) {
	for name, files := range map[string]hashed{"10000-files": hash(deployments(10_000)), "1000-kustomizations": hash(overlays(1_000))} {
		b.Run(name, func(b *testing.B) {
			opts := render.Options{Cache: render.NewCache(64 << 20)}
			if _, _, err := render.Render(files, opts); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if result, problems, err := render.Render(files, opts); err != nil || len(problems) > 0 || result.Read+result.Rendered != 0 {
					b.Fatal(result.Read, len(problems), err)
				}
			}
		})
	}
}

// compared is a tree that knows the files in which it differs from the others.
type compared struct {
	hashed
	name    string
	changed []render.File
}

func (c compared) Name() string { return c.name }

func (c compared) Since(string) ([]render.Change, error) {
	var out []render.Change
	for _, f := range c.changed {
		out = append(out, render.Change{Path: f.Path, Now: &f})
	}
	return out, nil
}

// BenchmarkOneChanged renders a tree of which one file changed, and which knows it,
// as a commit's tree does.
func BenchmarkOneChanged(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			files := compared{hash(deployments(n)), "0", nil}
			opts := render.Options{Cache: render.NewCache(64 << 20)}
			if _, _, err := render.Render(files, opts); err != nil {
				b.Fatal(err)
			}
			for i := 1; b.Loop(); i++ {
				f := files.files[i%n]
				f.Hash = fmt.Sprint(i)
				files.name, files.changed = fmt.Sprint(i), []render.File{f}
				result, problems, err := render.Render(files, opts)
				if err != nil || len(problems) > 0 || result.Read != 1 || len(result.Manifests) != n {
					b.Fatal(result.Read, problems, err)
				}
			}
		})
	}
}
