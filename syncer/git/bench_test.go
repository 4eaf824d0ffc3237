package git

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPush is one small commit pushed with the real git program.
func BenchmarkPush(b *testing.B) {
	h := startHost(b, func(c *Config) {
		c.Judge = func(ctx context.Context, p Push, _ io.Writer) ([]string, error) {
			tree, err := p.Objects.Tree(ctx, p.New, "")
			if err != nil {
				return nil, err
			}
			_, err = tree.Files(ctx)
			return nil, err
		}
	})
	w := newWork(b)
	fill(b, w, 1000)
	w.git("reset", "-q", "--hard")
	w.git("push", h.url, "main")
	n := 0
	var used time.Duration // of the processors, by git, hooks and client, however busy the machine is
	for b.Loop() {
		b.StopTimer()
		n++
		w.commit("change", fmt.Sprint(n))
		before := childTime(b)
		b.StartTimer()
		w.git("push", h.url, "main")
		used += childTime(b) - before
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(n), "cpu-ms/op")
}

func childTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReadTree lists and reads 10,000 files.
func BenchmarkReadTree(b *testing.B) {
	ctx := context.Background()
	w := newWork(b)
	head := fill(b, w, 10_000)
	r := bareOf(b, w)
	for b.Loop() {
		r.cache = newTreeCache()
		tree, err := r.Tree(ctx, head, "")
		if err != nil {
			b.Fatal(err)
		}
		files, err := tree.Files(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := tree.ReadAll(ctx, files, func(File, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteNote writes a note beside so many others. The last is git itself, which
// does not wait for the disk.
func BenchmarkWriteNote(b *testing.B) {
	for _, notes := range []int{0, 1000, 10_000} {
		b.Run(fmt.Sprintf("notes=%d", notes), func(b *testing.B) {
			_, r, commits := withNotes(b, notes)
			n := 0
			for b.Loop() {
				writeNote(b, r, commits[n%len(commits)], fmt.Sprint("note ", n))
				n++
			}
		})
	}
	b.Run("git,notes=10000", func(b *testing.B) {
		w, _, commits := withNotes(b, 10_000)
		n := 0
		for b.Loop() {
			w.git("notes", "--ref=headway/main", "add", "-f", "-m", fmt.Sprint("note ", n), commits[n%len(commits)])
			n++
		}
	})
}

// withNotes makes a repository with notes, laid out as we do it, and some commits
// that have none.
func withNotes(b *testing.B, notes int) (*work, *Repository, []string) {
	ctx := context.Background()
	w := newWork(b)
	commits := w.history(200)
	r := bareOf(b, w)
	var objects additions
	tree := ""
	blob := objects.add("blob", []byte("note\n"))
	var err error
	for i := range notes {
		if tree, err = r.putNote(ctx, tree, hashOf("blob", []byte(fmt.Sprint(i))), blob, &objects); err != nil {
			b.Fatal(err)
		}
	}
	if notes > 0 {
		if err := r.store(ctx, &objects); err != nil {
			b.Fatal(err)
		}
		w.git("update-ref", "refs/notes/headway/main", w.git("commit-tree", "-m", "notes", tree))
		w.git("gc", "-q", "--prune=now")
	}
	return w, r, commits
}

// BenchmarkWriteLive writes a live commit that differs in one file from a tree of
// so many.
func BenchmarkWriteLive(b *testing.B) {
	ctx := context.Background()
	for _, files := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			w := newWork(b)
			head := fill(b, w, files)
			r := bareOf(b, w)
			old, n := "", 0
			for b.Loop() {
				n++
				c := liveOf(old, head, Edit{Path: "d1/f201.yaml", Content: []byte(fmt.Sprint("replicas: ", n, "\n"))})
				var err error
				if old, err = r.WriteLive(ctx, c, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLog reads 100 commits and looks for their notes among 10,000.
func BenchmarkLog(b *testing.B) {
	ctx := context.Background()
	w, r, _ := withNotes(b, 10_000)
	head := w.git("rev-parse", "main")
	for b.Loop() {
		if _, err := r.Log(ctx, head, 100); err != nil {
			b.Fatal(err)
		}
	}
}
