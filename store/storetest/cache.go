package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func indexes(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	p, q := pod("b", "p", "n1", "rs1"), pod("a", "q", "n1", "rs1")
	r := pod("a", "r", "", "")
	commit(t, s, create(p, q, r))
	settle(t, s)
	on := func(node string) string {
		var out string
		for _, p := range s.OnNode(node) {
			out += " " + p.Namespace + "/" + p.Name
		}
		return out
	}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s:%s, want%s", what, got, want)
		}
	}
	check("pods of a namespace", names(s.List(api.Pods(), "a")), " a/q a/r")
	check("all pods", names(s.List(api.Pods(), "")), " a/q a/r b/p")
	check("owned", names(s.Owned("rs1")), " a/q b/p")
	check("on the node", on("n1"), " a/q b/p")
	r = r.DeepCopy()
	r.Spec.NodeName = "n2"
	q = q.DeepCopy()
	q.OwnerReferences = append(q.OwnerReferences, metav1.OwnerReference{UID: "other"})
	commit(t, s, store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: p}, {Verb: store.Update, Object: r}, {Verb: store.Update, Object: q}}})
	settle(t, s)
	check("all pods", names(s.List(api.Pods(), "")), " a/q a/r")
	check("owned", names(s.Owned("rs1")), " a/q")
	check("owned by another too", names(s.Owned("other")), " a/q")
	check("on the node", on("n1"), " a/q")
	check("on the other node", on("n2"), " a/r")
	if s.Owned("rs1")[0].GetResourceVersion() != q.ResourceVersion {
		t.Error("the index holds an old object")
	}
	q.OwnerReferences = nil
	commit(t, s, txn(store.Update, q))
	settle(t, s)
	check("owned by nobody", names(s.Owned("rs1"))+names(s.Owned("other")), "")
}

func immutable(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	var all []api.Object
	for i := range 20 {
		all = append(all, config("default", fmt.Sprintf("c%02d", i), i))
	}
	commit(t, s, create(all...))
	settle(t, s)
	list, one := s.List(api.ConfigMaps(), "default"), s.List(api.ConfigMaps(), "")
	before := slices.Clone(list)
	commit(t, s, store.Txn{Ops: []store.Op{
		{Verb: store.Delete, Object: all[3]}, {Verb: store.Update, Object: config2(all[5])}, {Verb: store.Create, Object: config("default", "c001", 1)},
		{Verb: store.Create, Object: config("other", "x", 1)},
	}})
	settle(t, s)
	if !slices.Equal(list, before) || !slices.Equal(one, before) {
		t.Errorf("a list changed under its reader")
	}
	if got := s.List(api.ConfigMaps(), ""); len(got) != 21 || !slices.IsSortedFunc(got, func(a, b api.Object) int {
		return strings.Compare(a.GetNamespace()+"\x00"+a.GetName(), b.GetNamespace()+"\x00"+b.GetName())
	}) {
		t.Errorf("%d objects: %s", len(got), names(got))
	}
}

func config2(o api.Object) api.Object {
	c := o.(*corev1.ConfigMap).DeepCopy()
	c.Data["n"] += "2"
	return c
}

func hooks(t *testing.T, kv store.KV) {
	first := loaded(t, kv)
	commit(t, first, create(config("default", "a", 1), config("default", "b", 1)))

	s := store.New(kv, store.Options{Seal: SealKey()})
	var got [][]store.Event
	s.OnEvents(func(e []store.Event) {
		if s.Get(e[0].Key) != e[0].Object {
			t.Error("the cache does not show the event yet")
		}
		got = append(got, e)
	})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[0]) != 2 || got[0][0].Previous != nil || got[0][0].Object == nil {
		t.Fatalf("after load: %+v", got)
	}
	settle(t, s)
	a := s.Get(got[0][0].Key)
	b := s.Get(got[0][1].Key)
	rev := commit(t, s, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: config2(a)}, {Verb: store.Delete, Object: b}, {Verb: store.Create, Object: config("default", "c", 1)}}})
	settle(t, s)
	if len(got) != 2 || len(got[1]) != 3 {
		t.Fatalf("after the commit: %+v", got)
	}
	e := got[1]
	if e[0].Previous != a || e[0].Object == nil || e[1].Previous != b || !e[1].Deleted() || e[2].Previous != nil || e[2].Object == nil || e[0].Revision != rev {
		t.Errorf("got %+v", e)
	}
}

func manyWriters(t *testing.T, kv store.KV) {
	s := running(t, kv, store.Options{})
	const writers, each, objects = 4, 60, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	var last int64
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprint("c", (w+i)%objects)
				x := create(config("default", name, i))
				if old := s.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "default", Name: name}); old != nil {
					x = txn(store.Update, config2(old))
					if i%5 == 0 {
						x = txn(store.Delete, old)
					}
				}
				rev, err := s.Commit(t.Context(), x)
				if err != nil {
					if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrNotFound) {
						t.Error(err)
					}
					continue
				}
				mu.Lock()
				last = max(last, rev)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	reach(t, s, last)
	same(t, s)
}

// same checks that the cache is what the backend has.
func same(t testing.TB, s *store.Store) {
	t.Helper()
	p, err := s.ListAt(t.Context(), api.ConfigMaps(), "", 0, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	versions := func(objs []api.Object) map[string]string {
		out := map[string]string{}
		for _, o := range objs {
			out[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
		return out
	}
	if got, want := versions(s.List(api.ConfigMaps(), "")), versions(p.Objects); !maps.Equal(got, want) {
		t.Errorf("cache %v, backend %v", got, want)
	}
}

func gap(t *testing.T, kv store.KV) {
	c := &cuttable{KV: kv}
	var mu sync.Mutex
	state := map[store.Key]string{} // what a hook that only ever saw events knows
	heard := make(chan int64, 100)  // the revisions that it heard of
	s := store.New(c, store.Options{Seal: SealKey()})
	s.OnEvents(func(events []store.Event) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			if e.Deleted() {
				delete(state, e.Key)
				continue
			}
			if _, known := state[e.Key]; known != (e.Previous != nil) {
				t.Errorf("%s: event with previous %t, hook knows it %t", e.Key, e.Previous != nil, known)
			}
			state[e.Key] = e.Object.GetResourceVersion()
		}
		heard <- events[len(events)-1].Revision
	})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b, d := config("default", "a", 1), config("default", "b", 1), config("default", "d", 1)
	commit(t, s, create(a, b, d))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	now, err := s.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reach(t, s, now)
	w, err := s.Watch(t.Context(), api.ConfigMaps(), "", now)
	if err != nil {
		t.Fatal(err)
	}

	// Two gaps: a lost connection, which resumes; and one that history does not
	// reach over, with an update, a delete and a change of identity in it.
	c.cut(fmt.Errorf("connection lost: %w", store.ErrUnavailable))
	reach(t, s, commit(t, s, create(config("default", "c", 1))))
	c.cut(fmt.Errorf("cut: %w", store.ErrCompacted))
	commit(t, s, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: config2(a)}, {Verb: store.Delete, Object: b}, {Verb: store.Delete, Object: d}}})
	last := commit(t, s, create(config("default", "d", 2)))
	reach(t, s, last)
	same(t, s)
	for told := int64(0); told < last; { // the cache is there before its hooks are told
		select {
		case told = <-heard:
		case <-time.After(Patience):
			t.Fatalf("the hook heard of revision %d, not of %d", told, last)
		}
	}
	mu.Lock()
	for _, o := range s.List(api.ConfigMaps(), "") {
		if state[store.KeyOf(o)] != o.GetResourceVersion() {
			t.Errorf("%s: hook knows version %s, cache has %s", store.KeyOf(o), state[store.KeyOf(o)], o.GetResourceVersion())
		}
	}
	if len(state) != 3 {
		t.Errorf("hook knows %v", state)
	}
	mu.Unlock()
	seen := map[string]bool{}
	for !seen["d"] || !seen["b deleted"] || !seen["a"] || !seen["c"] {
		select {
		case events, ok := <-w.Events():
			if !ok {
				t.Fatalf("the watch ended: %v; saw %v", w.Err(), seen)
			}
			for _, e := range events {
				if e.Deleted() {
					seen[e.Key.Name+" deleted"] = true
				} else {
					seen[e.Key.Name] = true
				}
			}
		case <-time.After(Patience):
			t.Fatalf("the watch saw only %v", seen)
		}
	}
}
