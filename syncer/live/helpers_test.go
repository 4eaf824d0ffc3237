package live_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// files is a tree in memory that the ordinary kustomize builds.
type files map[string]string

func (f files) Read(path string) ([]byte, error) {
	text, ok := f[path]
	if !ok {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return []byte(text), nil
}

func (f files) Build(unit string, with map[string][]byte) (out []byte, why string, err error) {
	fsys := filesys.MakeFsInMemory()
	for path, text := range f.with(with) {
		if err := fsys.WriteFile("/tree/"+path, []byte(text)); err != nil {
			return nil, "", err
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fsys, "/tree/"+unit)
	if err != nil {
		return nil, err.Error(), nil
	}
	out, err = built.AsYaml()
	return out, "", err
}

// with is the tree with some files changed, or taken away.
func (f files) with(changed map[string][]byte) files {
	out := maps.Clone(f)
	for path, data := range changed {
		if out[path] = string(data); data == nil {
			delete(out, path)
		}
	}
	return out
}

// declares renders units and decodes the plain files that lie in none.
func (f files) declares(t failer, units ...string) (out []*api.Manifest) {
	t.Helper()
	for _, unit := range units {
		text, why, err := f.Build(unit, nil)
		if why != "" || err != nil {
			t.Fatalf("kustomize: %s %v", why, err)
		}
		for _, m := range manifests(t, unit+"/kustomization.yaml", string(text)) {
			m.Unit = unit
			out = append(out, m)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(f)) {
		if len(units) == 0 {
			out = append(out, manifests(t, path, f[path])...)
		}
	}
	return out
}

func key(m *api.Manifest) string {
	return m.Kind.Kind + " " + m.Object.GetNamespace() + "/" + m.Object.GetName()
}

// written writes the live ref for objects that were changed (nil: deleted), by
// key, and checks that it declares exactly what is live, and all else as before.
func written(t failer, f files, units []string, liveObjects map[string]api.Object) (changed map[string][]byte) {
	t.Helper()
	before := f.declares(t, units...)
	var drifts []*live.Drift
	found := map[string]bool{}
	for _, m := range before {
		obj, drifted := liveObjects[key(m)]
		if !drifted {
			continue
		}
		found[key(m)] = true
		d := compare(t, m, obj)
		if d == nil {
			t.Fatalf("%s: no drift", key(m))
		}
		drifts = append(drifts, d)
	}
	for name := range liveObjects {
		if !found[name] {
			t.Fatalf("%s is not declared", name)
		}
	}
	changed, problems, err := live.Tree(f, drifts)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", err, problems)
	}
	slices.Reverse(drifts)
	again, _, err := live.Tree(f, drifts)
	if err != nil || !maps.EqualFunc(changed, again, bytes.Equal) {
		t.Errorf("another order gives other files, %v", err)
	}
	after := f.with(changed).declares(t, units...)
	left := map[string]*api.Manifest{}
	for _, m := range after {
		left[key(m)] = m
	}
	for _, m := range before {
		obj, drifted := liveObjects[key(m)]
		now := left[key(m)]
		delete(left, key(m))
		switch {
		case drifted && obj == nil:
			if now != nil {
				t.Errorf("%s: is still there", key(m))
			}
		case now == nil:
			t.Errorf("%s: is gone", key(m))
		case drifted && m.Kind.Kind != "Secret":
			if d := compare(t, now, obj); d != nil {
				t.Errorf("the live ref is not what is live: %s", strings.Join(d.Text(), "\n"))
			}
		case !drifted && now.Hash != m.Hash:
			t.Errorf("%s: was changed:\n%v\n%v", key(m), m.Declared, now.Declared)
		}
	}
	for name := range left {
		t.Errorf("%s: is new", name)
	}
	return changed
}

// failer is a test, of rapid too.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}
