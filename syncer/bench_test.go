package syncer

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/render"
	corev1 "k8s.io/api/core/v1"
)

// prepared gives manifests that were read before, as the render cache does.
type prepared struct {
	*history
	rendered map[string]Rendered
}

func (p *prepared) Render(_ context.Context, commit, _ string) (Rendered, error) {
	return p.rendered[commit], nil
}

func many(t testing.TB, n int) []*api.Manifest {
	var out []*api.Manifest
	for i := range n {
		text := configMap(fmt.Sprintf("c%d", i), "1")
		if i%2 == 0 {
			text = edit(app, "{name: web}", fmt.Sprintf("{name: d%d}", i))
		}
		out = append(out, manifests(t, fmt.Sprintf("%d.yaml", i), text)...)
	}
	return out
}

func benchWorld(b testing.TB) (*world, *prepared) {
	w := newWorld(b, func(c *Config) { c.Log = nil })
	p := &prepared{history: w.repo, rendered: map[string]Rendered{}}
	w.cfg.Commits = p
	w.open()
	return w, p
}

// One object of 10,000 changes; the time is from the push to the applied commit.
func BenchmarkOneOf10000(b *testing.B) {
	w, p := benchWorld(b)
	all := many(b, 10_000)
	parent := ""
	commit := func(i int, list []*api.Manifest) string {
		name := fmt.Sprintf("e%d", i)
		id := w.repo.add(name, parent, map[string]string{})
		p.rendered[id] = Rendered{Manifests: list}
		parent = name
		return id
	}
	w.push(commit(0, all))
	if st := w.status(); st.Objects != 10_000 {
		b.Fatalf("status %+v", st)
	}
	b.ResetTimer()
	var used time.Duration
	for i := 1; b.Loop(); i++ {
		b.StopTimer()
		list := append([]*api.Manifest(nil), all...)
		list[2] = manifest(b, edit(app, "{name: web}", "{name: d2}", "web:1", fmt.Sprintf("web:%d", i+1)))
		id := commit(i, list)
		b.StartTimer()
		before := processor(b)
		w.push(id)
		used += processor(b) - before
	}
	b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
	if st := w.status(); st.Applied != commitID(parent) {
		b.Fatalf("status %+v", st)
	}
}

// 10,000 new objects, in an empty cluster.
func Benchmark10000New(b *testing.B) {
	all := many(b, 10_000)
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		w, p := benchWorld(b)
		id := w.repo.add("e1", "", map[string]string{})
		p.rendered[id] = Rendered{Manifests: all}
		b.StartTimer()
		before := processor(b)
		w.push(id)
		used += processor(b) - before
		if st := w.status(); st.Objects != 10_000 {
			b.Fatalf("status %+v", st)
		}
	}
	b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// processor is the time that this process has used so far: on a busy machine the
// clock says nothing.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCommit is a commit in a real repository, judged and applied: of a file
// that is no manifest, and of one that is. Neither may cost what there is.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("deploy/%03d/%05d.yaml", i/100, i)] = configMap(fmt.Sprintf("c%d", i), "1")
		}
		for _, path := range []string{"README.md", "deploy/000/00007.yaml"} {
			b.Run(fmt.Sprintf("%d/%s", n, path), func(b *testing.B) {
				r := newRemote(b)
				r.git("config", "gc.auto", "0")
				first := r.commit("ada", files)
				forge := openForge(b, r)
				fetch := func() {
					if _, err := forge.Fetch(b.Context(), "refs/heads/main", 0); err != nil {
						b.Fatal(err)
					}
				}
				fetch()
				w := newWorld(b, func(c *Config) {
					c.Log = nil
					c.Commits = &Checkout{Objects: forge.Repository, Keeper: forge.Repository, Cache: render.NewCache(0)}
				})
				w.push(first)
				if st := w.status(); st.Objects != n {
					b.Fatalf("status %+v", st)
				}
				commit := ""
				var used time.Duration
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					commit = r.commit("ada", map[string]string{path: configMap("c7", fmt.Sprint(i+2))})
					fetch()
					b.StartTimer()
					before := processor(b)
					if v, err := w.s.Judge(b.Context(), Candidate{Commit: commit}); err != nil || !v.OK() {
						b.Fatal(v, err)
					}
					w.push(commit)
					used += processor(b) - before
				}
				b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
				if st := w.status(); st.Applied != commit {
					b.Fatalf("status %+v", st)
				}
			})
		}
	}
}

// BenchmarkRuntimeWatch is what the events of 250 pods of one Deployment cost that all
// begin to run.
func BenchmarkRuntimeWatch(b *testing.B) {
	w := newWorld(b, func(c *Config) { c.Log = nil })
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	status := map[string]corev1.PodStatus{}
	for i := range 250 {
		status[fmt.Sprintf("web-1-%d", i)] = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Image: "web:1", ImageID: "web@sha256:aaa", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}}
	}
	w.addPods(status)
	pods := w.st.List(api.Pods(), "default")
	if len(pods) != len(status) {
		b.Fatalf("%d pods", len(pods))
	}
	var news []store.Event
	for _, pod := range pods {
		news = append(news, store.Event{Key: store.KeyOf(pod), Object: pod})
	}
	rw := NewRuntimeWatch(w.s, nil)
	for b.Loop() {
		rw.Handle(news)
		for rw.Step(b.Context()) {
		}
	}
}
