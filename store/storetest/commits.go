package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func everyKind(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	var written []api.Object
	for _, k := range api.Kinds() {
		obj := k.New()
		obj.SetName("one")
		if k.Namespaced {
			obj.SetNamespace("default")
		}
		obj.SetLabels(map[string]string{"a": "b"})
		obj.SetOwnerReferences([]metav1.OwnerReference{{Kind: "K", Name: "n", UID: "u"}})
		store.Stamp(obj, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
		written = append(written, obj)
	}
	p := pod("default", "rich", "node-1", "rs")
	written = append(written, p, &api.Source{ObjectMeta: metav1.ObjectMeta{Name: "rich", UID: "s"}, Spec: api.SourceSpec{URL: "u"}, Status: api.SourceStatus{Problems: []string{"a", "b"}, Objects: 3}})
	rev := commit(t, s, create(written...))
	settle(t, s)
	equal := equality.Semantic.Copy()
	if err := equal.AddFunc(time.Time.Equal); err != nil { // in any zone, as it knows for metav1.Time
		t.Fatal(err)
	}
	for _, want := range written {
		got := s.Get(store.KeyOf(want))
		if got == nil {
			t.Errorf("%s is not there", store.KeyOf(want))
			continue
		}
		if v := want.GetResourceVersion(); v != strconv.FormatInt(rev, 10) {
			t.Errorf("%s: written object has resourceVersion %s, want %d", store.KeyOf(want), v, rev)
		}
		if !equal.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", store.KeyOf(want), got, want)
		}
	}
}

func conflicts(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	a := config("default", "a", 1)
	key := store.KeyOf(a)
	commit(t, s, create(a))
	old := a.DeepCopy()
	a.Data["n"] = "2"
	commit(t, s, txn(store.Update, a))
	if a.ResourceVersion <= old.ResourceVersion {
		t.Fatalf("versions %s, %s: must rise", old.ResourceVersion, a.ResourceVersion)
	}
	fail := func(x store.Txn) error {
		t.Helper()
		_, err := s.Commit(t.Context(), x)
		return err
	}
	wants(t, fail(create(config("default", "a", 3))), store.ErrExists, key)
	wants(t, fail(txn(store.Update, old.DeepCopy())), store.ErrConflict, key)
	wants(t, fail(txn(store.Delete, old.DeepCopy())), store.ErrConflict, key)
	gone := config("default", "gone", 1)
	gone.ResourceVersion = a.ResourceVersion
	wants(t, fail(txn(store.Update, gone)), store.ErrNotFound, store.KeyOf(gone))
	wants(t, fail(txn(store.Delete, gone)), store.ErrNotFound, store.KeyOf(gone))
	if gone.ResourceVersion != a.ResourceVersion {
		t.Error("a refused commit changed the object's resourceVersion")
	}
	settle(t, s)
	if got := s.Get(key).(*corev1.ConfigMap); got.Data["n"] != "2" {
		t.Errorf("got %v", got.Data)
	}
	commit(t, s, txn(store.Delete, a))
	settle(t, s)
	if s.Get(key) != nil || len(s.List(api.ConfigMaps(), "")) != 0 {
		t.Error("the object is still there")
	}
	commit(t, s, create(config("default", "a", 4)))
}

func refused(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	big := config("default", "big", 1)
	big.Data["v"] = strings.Repeat("x", store.ObjectBytes)
	_, err := s.Commit(t.Context(), create(big))
	wants(t, err, store.ErrTooLarge, store.KeyOf(big))
	if err != nil && !strings.Contains(err.Error(), strconv.Itoa(store.ObjectBytes)) {
		t.Errorf("the error does not name the bound: %v", err)
	}
	var sum, many []api.Object
	for i := range 3 {
		o := config("default", fmt.Sprint("sum", i), 1)
		o.Data["v"] = strings.Repeat("x", store.MaxBytes/3)
		sum = append(sum, o)
	}
	_, err = s.Commit(t.Context(), create(sum...))
	wants(t, err, store.ErrTooLarge, store.Key{})
	for i := range store.MaxOps + 1 {
		many = append(many, config("default", fmt.Sprint("many", i), 1))
	}
	_, err = s.Commit(t.Context(), create(many...))
	wants(t, err, store.ErrTooLarge, store.Key{})

	for name, x := range map[string]store.Txn{
		"update without a version":         txn(store.Update, config("default", "a", 1)),
		"delete without a version":         txn(store.Delete, config("default", "a", 1)),
		"twice the same object":            create(config("default", "a", 1), config("default", "a", 2)),
		"no name":                          create(config("default", "", 1)),
		"a name that is a path":            create(config("default", "a/b", 1)),
		"no namespace":                     create(config("", "a", 1)),
		"a namespace that is a path":       create(config("a/b", "a", 1)),
		"a namespace where none belongs":   create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n"}}),
		"an unknown verb":                  txn("replace", config("default", "a", 1)),
		"a version that is no revision":    txn(store.Update, versioned(config("default", "a", 1), "x")),
		"half a fence":                     {Fence: store.Fence{Key: store.ElectionKey}, Ops: create(config("default", "a", 1)).Ops},
		"a condition that is no revision":  {If: []api.Object{versioned(config("default", "a", 1), "-1")}},
		"a condition on an object unnamed": {If: []api.Object{config("default", "", 1)}},
	} {
		if _, err := s.Commit(t.Context(), x); err == nil {
			t.Errorf("%s: was written", name)
		}
	}
	settle(t, s)
	if got := s.List(api.ConfigMaps(), ""); len(got) != 0 {
		t.Errorf("left: %s", names(got))
	}
}

func versioned(o *corev1.ConfigMap, v string) *corev1.ConfigMap {
	o.ResourceVersion = v
	return o
}

func allOrNothing(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	a, b := config("default", "a", 1), config("default", "b", 1)
	commit(t, s, create(a, b))
	if a.ResourceVersion != b.ResourceVersion {
		t.Errorf("versions %s, %s: want one revision", a.ResourceVersion, b.ResourceVersion)
	}
	newer, stale := a.DeepCopy(), b.DeepCopy()
	newer.Data["n"], stale.ResourceVersion = "2", "1"
	x := store.Txn{Ops: []store.Op{
		{Verb: store.Update, Object: newer},
		{Verb: store.Create, Object: config("default", "c", 1)},
		{Verb: store.Delete, Object: stale},
	}}
	_, err := s.Commit(t.Context(), x)
	wants(t, err, store.ErrConflict, store.KeyOf(b))
	settle(t, s)
	if got := names(s.List(api.ConfigMaps(), "")); got != " default/a default/b" {
		t.Errorf("after a refusal: %s", got)
	}
	x.Ops[2].Object = b
	commit(t, s, x)
	settle(t, s)
	if got := names(s.List(api.ConfigMaps(), "")); got != " default/a default/c" {
		t.Errorf("after the commit: %s", got)
	}
}

func conditions(t *testing.T, kv store.KV) {
	s := loaded(t, kv)
	a := config("default", "a", 1)
	commit(t, s, create(a))
	stale := a.DeepCopy()
	a.Data["n"] = "2"
	commit(t, s, txn(store.Update, a))
	try := func(cond api.Object) error {
		_, err := s.Commit(t.Context(), store.Txn{If: []api.Object{cond}, Ops: create(config("default", "made", 1)).Ops})
		return err
	}
	wants(t, try(stale), store.ErrConflict, store.KeyOf(a))
	wants(t, try(config("default", "a", 1)), store.ErrConflict, store.KeyOf(a)) // must not exist
	missing := versioned(config("default", "missing", 1), a.ResourceVersion)
	wants(t, try(missing), store.ErrConflict, store.KeyOf(missing))
	if err := try(a); err != nil {
		t.Errorf("a condition that holds: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.Txn{If: []api.Object{a, config("default", "none", 1)}}); err != nil {
		t.Errorf("conditions alone: %v", err)
	}
}

func objectLease(t *testing.T, kv store.KV) {
	s := running(t, kv, store.Options{})
	a := config("default", "a", 1)
	_, rev := leased(t, kv, func(id store.LeaseID) (int64, error) {
		return s.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: a, Lease: id}}})
	})
	reach(t, s, rev)
	w, err := s.Watch(t.Context(), api.ConfigMaps(), "", rev)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.Events():
		if len(e) != 1 || !e[0].Deleted() || e[0].Previous == nil {
			t.Fatalf("got %+v", e)
		}
	case <-time.After(Patience):
		t.Fatal("the object stays")
	}
	if s.Get(store.KeyOf(a)) != nil {
		t.Error("the cache still has it")
	}
}
