package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/git"
)

// Manifests are decoded files, by name and text. Decoding depends on nothing else, so
// runs may share them.
type Manifests struct{ decoded map[string]syncer.Rendered }

// NewManifests returns none yet.
func NewManifests() *Manifests { return &Manifests{decoded: map[string]syncer.Rendered{}} }

func (m *Manifests) decode(name, text string) syncer.Rendered {
	id := name + "\x00" + text
	out, known := m.decoded[id]
	if known {
		return out
	}
	found, problems := api.DecodeFile(name, []byte(text), api.DecodeOptions{DefaultNamespace: "default"})
	out.Problems = problems
	for i := range found {
		out.Problems = append(out.Problems, found[i].Check()...)
		out.Manifests = append(out.Manifests, &found[i])
	}
	m.decoded[id] = out
	return out
}

// repository is a line of commits in memory.
type repository struct {
	parents   map[string]string
	trees     map[string]map[string]string // by commit: files by name
	manifests *Manifests
}

var _ syncer.Commits = (*repository)(nil)

func newRepository(m *Manifests) *repository {
	if m == nil {
		m = NewManifests()
	}
	return &repository{parents: map[string]string{}, trees: map[string]map[string]string{}, manifests: m}
}

// commit adds a commit to the line.
func (r *repository) commit(parent string, files map[string]string) string {
	id := fmt.Sprintf("%07x%033x", len(r.trees)+1, 0)
	r.trees[id] = maps.Clone(files)
	if parent != "" {
		r.parents[id] = parent
	}
	return id
}

func (r *repository) Author(context.Context, string) (string, error) {
	return "Ada <ada@example.org>", nil
}

func (r *repository) IsAncestor(_ context.Context, ancestor, commit string) (bool, error) {
	return r.before(ancestor, commit), nil
}

// before says whether commit has ancestor in its history, or is it.
func (r *repository) before(ancestor, commit string) bool {
	for c := commit; c != ""; c = r.parents[c] {
		if c == ancestor {
			return true
		}
	}
	return false
}

func (r *repository) Origins(context.Context, string, string) (map[string]syncer.Origin, error) {
	return nil, nil
}

func (r *repository) Trailers(_ context.Context, _, to string) ([]syncer.Trailer, error) {
	return []syncer.Trailer{{Commit: to, Key: syncer.TrailerAllowDelete, Value: "all"}}, nil
}

func (r *repository) Unsigned(context.Context, string, string, string, time.Time) ([]git.Unsigned, error) {
	return nil, nil
}

func (r *repository) Keep(context.Context, []string) error { return nil }

func (r *repository) Render(_ context.Context, commit, _ string) (syncer.Rendered, error) {
	files, ok := r.trees[commit]
	if !ok {
		return syncer.Rendered{}, fmt.Errorf("commit %s not found", commit)
	}
	config := api.DefaultConfig()
	out := syncer.Rendered{Config: &config}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		one := r.manifests.decode(name, files[name])
		out.Problems = append(out.Problems, one.Problems...)
		for _, m := range one.Manifests {
			again := *m
			out.Manifests = append(out.Manifests, &again)
		}
	}
	return out, nil
}
