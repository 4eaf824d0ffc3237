package syncer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	batchv1 "k8s.io/api/batch/v1"
	"pgregory.net/rapid"
)

// Whatever happened to the objects and whatever was judged before, a judge that
// remembers finds what one that looks at everything finds.
func TestLedgerMissesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := quiet(t, 0)
		commits, applied := 0, ""
		draw := func() string {
			commits++
			files := w.repo.files[commitID(applied)]
			if files == nil || rapid.Bool().Draw(rt, "other files") {
				files = drawFiles(rt, fmt.Sprint(commits))
			}
			return w.repo.add(fmt.Sprintf("c%dx", commits), applied, files)
		}
		some := func() api.Object {
			var all []api.Object
			for _, k := range api.Kinds() {
				if k.Declarable || k.GroupResource() == api.DoneRecords() {
					all = append(all, w.st.List(k.GroupResource(), "")...)
				}
			}
			if len(all) == 0 {
				return nil
			}
			return rapid.SampledFrom(all).Draw(rt, "object").DeepCopyObject().(api.Object)
		}
		w.push(draw())
		applied = fmt.Sprintf("c%dx", commits)
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				w.push(draw())
				applied = fmt.Sprintf("c%dx", commits)
			},
			"delete": func(*rapid.T) {
				if obj := some(); obj != nil {
					w.write(store.Delete, obj)
				}
			},
			"edit": func(rt *rapid.T) {
				if obj := some(); obj != nil {
					if _, ok := api.ProvenanceOf(obj); ok && rapid.Bool().Draw(rt, "provenance") {
						api.SetProvenance(obj, api.Provenance{Source: rapid.SampledFrom([]string{"main", "another"}).Draw(rt, "source"), Hash: "x"})
					} else {
						obj.SetLabels(map[string]string{"l": "x"})
					}
					w.write(store.Update, obj)
				}
			},
			"end a Job": func(*rapid.T) {
				if job, ok := w.get("jobs", "default", "migrate").(*batchv1.Job); ok && outcome(job) == "" {
					w.finishJob("migrate", batchv1.JobComplete)
					w.settle()
				}
			},
			"delete a record": func(*rapid.T) {
				if obj := w.get("donerecords", "default", "migrate"); obj != nil {
					w.write(store.Delete, obj)
				}
			},
			"a stranger": func(*rapid.T) {
				m := manifest(t, configMap(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"), "9"))
				if w.st.Get(keyOf(m)) == nil {
					w.write(store.Create, m.Object.DeepCopyObject().(api.Object))
				}
			},
			"work": func(*rapid.T) { w.s.Step(t.Context()) },
			"": func(rt *rapid.T) {
				storetest.Settle(t, w.st)
				commit := draw()
				told := func() string {
					src := w.s.source()
					d, err := w.s.render(t.Context(), w.repo, commit, "")
					if err != nil {
						rt.Fatal(err)
					}
					o, err := w.s.observe(t.Context(), src, d, w.repo)
					if err != nil {
						rt.Fatal(err)
					}
					var out []string
					for _, m := range o.Desired {
						out = append(out, "desired "+keyOf(m).String()+" "+m.Hash)
					}
					for _, key := range slices.SortedFunc(maps.Keys(o.Live), compareKeys) {
						out = append(out, "live "+key.String()+" "+o.Live[key].GetResourceVersion())
					}
					for _, key := range slices.SortedFunc(maps.Keys(o.Done), compareKeys) {
						out = append(out, "done "+key.String())
					}
					return strings.Join(out, "\n")
				}
				remembered := told()
				w.s.ledger.forget()
				w.s.renders.entries = nil
				if everything := told(); remembered != everything {
					rt.Fatalf("remembered\n%s\neverything\n%s", remembered, everything)
				}
				delete(w.repo.files, commit)
			},
		})
	})
}

// A desired state made after another is what it would be made alone.
func TestDesiredFollows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cache := map[string][]*api.Manifest{}
		render := func(files map[string]string) (out []*api.Manifest) {
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if !strings.HasSuffix(name, ".yaml") {
					continue
				}
				id := name + files[name]
				if cache[id] == nil {
					cache[id] = manifests(t, name, files[name])
				}
				for _, m := range cache[id] {
					again := *m // as a rendering gives: another manifest of the same object
					out = append(out, &again)
				}
			}
			return out
		}
		var before *desired
		for i := range 6 {
			list := render(drawFiles(rt, fmt.Sprint(i)))
			if rapid.IntRange(0, 5).Draw(rt, "twice") == 0 && len(list) > 0 {
				list = append(list, manifest(t, configMap("c", "other")))
			}
			d := newDesired(fmt.Sprint(i), "", Rendered{Manifests: list}, before)
			alone := newDesired(fmt.Sprint(i), "", Rendered{Manifests: list}, nil)
			if fmt.Sprint(d.problems) != fmt.Sprint(alone.problems) || !slices.Equal(d.keys(), alone.keys()) {
				rt.Fatalf("%v %v\n%v %v", d.keys(), d.problems, alone.keys(), alone.problems)
			}
			for _, of := range []*desired{before, alone} {
				for _, key := range of.keys() {
					a, b := d.manifest(key), alone.manifest(key)
					if (a == nil) != (b == nil) || a != nil && !same(a, b) {
						rt.Fatalf("%s: %+v, alone %+v", key, a, b)
					}
				}
			}
			before = d
		}
	})
}

func TestDesiredStartsAnewWhenMuchDiffers(t *testing.T) {
	all := many(t, 3*maxOver)
	d := newDesired("a", "", Rendered{Manifests: all}, nil)
	for i, n := range []int{1, maxOver / 2, maxOver / 2, 3 * maxOver} {
		next := append([]*api.Manifest(nil), d.list...)
		for j := range n {
			again := *next[j]
			again.Hash += "x"
			next[j] = &again
		}
		d = newDesired(fmt.Sprint(i), "", Rendered{Manifests: next}, d)
		if len(d.over) > maxOver {
			t.Errorf("%d changes: %d over the base", n, len(d.over))
		}
		for _, m := range next {
			if d.manifest(keyOf(m)) != m {
				t.Fatalf("%s is not the newest", keyOf(m))
			}
		}
	}
}

// forget has everything looked at.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.than, l.odd = nil, nil
}
