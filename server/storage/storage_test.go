package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubestorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nodes is a storage of a cluster-scoped kind with the conversions of production.
func nodes(t *testing.T, window int) (*Storage, *store.Store, *memory.KV) {
	t.Helper()
	st, kv := running(t, window)
	return over(st, kv, api.Nodes(), func() runtime.Object { return &core.Node{} }), st, kv
}

func over(st *store.Store, kv store.KV, gr schema.GroupResource, newObject func() runtime.Object) *Storage {
	kind, _ := api.ResourceKind(gr)
	return newStorage(st, kind, "/"+gr.Resource, newObject, schemeCodec{scheme: api.Scheme(), kind: kind}, &leases{kv: kv, now: time.Now}, time.Now)
}

func addNode(t *testing.T, s *Storage, name string) *core.Node {
	t.Helper()
	out := &core.Node{}
	in := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{"a": "b"}}, Spec: core.NodeSpec{Taints: []core.Taint{{Key: "k"}}}}
	must(t, s.Create(t.Context(), "/nodes/"+name, in, out, 0))
	return out
}

func everything() kubestorage.SelectionPredicate {
	p := kubestorage.Everything
	p.GetAttrs = kubestorage.DefaultClusterScopedAttr
	return p
}

func TestClusterScoped(t *testing.T) {
	s, _, _ := nodes(t, 0)
	for _, name := range []string{"c", "a", "b", "d"} {
		addNode(t, s, name)
	}
	var names []string
	p := everything()
	p.Limit = 2
	for {
		list := &core.NodeList{}
		must(t, s.GetList(t.Context(), "/nodes", kubestorage.ListOptions{Recursive: true, Predicate: p}, list))
		for _, n := range list.Items {
			names = append(names, n.Name)
		}
		if p.Continue = list.Continue; p.Continue == "" {
			break
		}
	}
	if fmt.Sprint(names) != "[a b c d]" {
		t.Errorf("pages give %v", names)
	}
	one := everything()
	one.Field = fields.OneTermEqualSelector("metadata.name", "b")
	list := &core.NodeList{}
	must(t, s.GetList(t.Context(), "/nodes/b", kubestorage.ListOptions{Predicate: one}, list))
	if len(list.Items) != 1 || list.Items[0].Name != "b" || list.ResourceVersion == "" {
		t.Errorf("list of one: %+v", list)
	}
	w, err := s.Watch(t.Context(), "/nodes/b", kubestorage.ListOptions{Predicate: one, ResourceVersion: list.ResourceVersion})
	must(t, err)
	defer w.Stop()
	for _, name := range []string{"a", "b"} {
		must(t, s.Delete(t.Context(), "/nodes/"+name, &core.Node{}, nil, kubestorage.ValidateAllObjectFunc, nil, kubestorage.DeleteOptions{}))
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted || e.Object.(*core.Node).Name != "b" {
		t.Errorf("watch of one node: %v", e)
	}
}

// TestCacheIsNeverWritten scribbles over everything that a writer gets.
func TestCacheIsNeverWritten(t *testing.T) {
	s, st, _ := nodes(t, 0)
	addNode(t, s, "a")
	must(t, s.fresh(t.Context()))
	key := store.Key{GroupResource: api.Nodes(), Name: "a"}
	before := copyOf(st.Get(key))
	scribble := func(obj runtime.Object) {
		n := obj.(*core.Node)
		n.Labels["a"] = "scribbled"
		n.Spec.Taints[0].Key = "scribbled"
		n.Finalizers = append(n.Finalizers, "scribbled")
	}
	got := &core.Node{}
	must(t, s.Get(t.Context(), "/nodes/a", kubestorage.GetOptions{}, got))
	scribble(got)
	stop := errors.New("stop")
	err := s.GuaranteedUpdate(t.Context(), "/nodes/a", &core.Node{}, false, nil, kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		scribble(obj)
		return nil, stop
	}), nil)
	if !errors.Is(err, stop) {
		t.Errorf("update: %v", err)
	}
	err = s.Delete(t.Context(), "/nodes/a", &core.Node{}, nil, func(_ context.Context, obj runtime.Object) error {
		scribble(obj)
		return stop
	}, nil, kubestorage.DeleteOptions{})
	if !errors.Is(err, stop) {
		t.Errorf("delete: %v", err)
	}
	kept := &core.Node{}
	must(t, s.GuaranteedUpdate(t.Context(), "/nodes/a", kept, false, nil, kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) { return obj, nil }), nil))
	scribble(kept)
	equal, err := same(before, st.Get(key))
	must(t, err)
	if !equal {
		t.Errorf("the cache holds %+v", st.Get(key))
	}
}

// TestUpdateDecidesOnTheNewestState changes the object behind the update's back,
// between its read and its write.
func TestUpdateDecidesOnTheNewestState(t *testing.T) {
	s, _, _ := nodes(t, 0)
	addNode(t, s, "a")
	tries := 0
	out := &core.Node{}
	count := func(name string, meanwhile func()) kubestorage.UpdateFunc {
		return kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			n := obj.(*core.Node)
			tries++
			if meanwhile != nil && tries == 1 {
				meanwhile()
			}
			old, err := strconv.Atoi("0" + n.Annotations["n"])
			if err != nil {
				return nil, err
			}
			n.Annotations = map[string]string{"n": strconv.Itoa(old + 1), "by": name}
			return n, nil
		})
	}
	must(t, s.GuaranteedUpdate(t.Context(), "/nodes/a", out, false, nil, count("slow", func() {
		must(t, s.GuaranteedUpdate(t.Context(), "/nodes/a", &core.Node{}, false, nil, count("fast", nil), nil))
	}), nil))
	if tries != 3 || out.Annotations["n"] != "2" || out.Annotations["by"] != "slow" {
		t.Errorf("after %d tries: %v", tries, out.Annotations)
	}
	must(t, s.Delete(t.Context(), "/nodes/a", &core.Node{}, nil, kubestorage.ValidateAllObjectFunc, nil, kubestorage.DeleteOptions{}))
	err := s.GuaranteedUpdate(t.Context(), "/nodes/a", out, false, nil, count("late", nil), nil)
	if !kubestorage.IsNotFound(err) {
		t.Errorf("update of a node that is gone: %v", err)
	}
	must(t, s.fresh(t.Context()))
	must(t, s.GuaranteedUpdate(t.Context(), "/nodes/a", out, true, nil, kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		n := obj.(*core.Node)
		if n.Name != "" {
			t.Errorf("create on update starts from %+v", n)
		}
		n.Name = "a"
		return n, nil
	}), nil))
	if out.ResourceVersion == "" {
		t.Error("create on update did not write")
	}
	err = s.GuaranteedUpdate(t.Context(), "/nodes/a", out, false, nil, kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*core.Node).Name = "b"
		return obj, nil
	}), nil)
	if !kubestorage.IsInternalError(err) {
		t.Errorf("an update that renames: %v", err)
	}
}

// R10: a delete that was held against one pod does not take its successor, which has
// come between its read and its write.
func TestR10_DeleteDecidesOnTheNewestState(t *testing.T) {
	st, kv := running(t, 0)
	s := over(st, kv, api.Pods(), func() runtime.Object { return &core.Pod{} })
	named := func(uid types.UID, node string) *corev1.Pod {
		yes := true
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: uid,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "s", Controller: &yes}},
		}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	write := func(verb store.Verb, pod *corev1.Pod) {
		t.Helper()
		rev, err := st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: verb, Object: pod}}})
		must(t, err)
		must(t, st.WaitRevision(t.Context(), rev))
	}
	first := named("one", "n1")
	write(store.Create, first)
	looked := 0
	meanwhile := func(context.Context, runtime.Object) error {
		if looked++; looked == 1 {
			write(store.Delete, st.Get(store.KeyOf(first)).(*corev1.Pod))
			write(store.Create, named("two", ""))
		}
		return nil
	}
	one := types.UID("one")
	err := s.Delete(t.Context(), "/pods/default/web-0", &core.Pod{}, &kubestorage.Preconditions{UID: &one}, meanwhile, nil, kubestorage.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "UID in precondition: one, UID in object meta: two") {
		t.Errorf("%v", err)
	}
	if now := st.Get(store.KeyOf(first)); now == nil || now.GetUID() != "two" {
		t.Errorf("the successor is %v", now)
	}
}

// TestWatchFromBeforeTheWindow must be told to list again, and one from its edge
// must not.
func TestWatchFromBeforeTheWindow(t *testing.T) {
	s, _, _ := nodes(t, 4)
	var versions []string
	for i := range 12 {
		versions = append(versions, addNode(t, s, fmt.Sprint("n", i)).ResourceVersion)
	}
	must(t, s.fresh(t.Context()))
	open := func(rv string) error {
		w, err := s.Watch(t.Context(), "/nodes", kubestorage.ListOptions{Recursive: true, Predicate: everything(), ResourceVersion: rv})
		if err == nil {
			w.Stop()
		}
		return err
	}
	if err := open(versions[0]); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from before the window: %v, want 410", err)
	}
	must(t, open(versions[10]))
	if err := open("999999"); !kubestorage.IsTooLargeResourceVersion(err) {
		t.Errorf("watch from the future: %v", err)
	}
	if err := open("x"); !apierrors.IsBadRequest(err) {
		t.Errorf("watch from nonsense: %v", err)
	}
}

// TestBookmarks: a watch that allows them gets one within a minute, with a
// revision that covers writes to other resources, and one just before its end; a
// watch that does not gets none.
func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, kv := nodes(t, 0)
		made := addNode(t, s, "a")
		must(t, s.fresh(t.Context()))
		p := everything()
		quiet, err := s.Watch(t.Context(), "/nodes", kubestorage.ListOptions{Recursive: true, Predicate: p, ResourceVersion: made.ResourceVersion})
		must(t, err)
		defer quiet.Stop()
		p.AllowWatchBookmarks = true
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		w, err := s.Watch(ctx, "/nodes", kubestorage.ListOptions{Recursive: true, Predicate: p, ResourceVersion: made.ResourceVersion})
		must(t, err)
		defer w.Stop()
		begun := time.Now()

		pods := over(st, kv, api.Pods(), func() runtime.Object { return &core.Pod{} })
		other := &core.Pod{}
		must(t, pods.Create(t.Context(), "/pods/default/p", &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}, other, 0))

		e := <-w.ResultChan()
		if e.Type != watch.Bookmark || e.Object.(*core.Node).ResourceVersion != other.ResourceVersion || len(e.Object.(*core.Node).Annotations) != 0 {
			t.Errorf("bookmark %v, want revision %s", e, other.ResourceVersion)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the bookmark took %s", took)
		}
		if e := <-w.ResultChan(); e.Type != watch.Bookmark || time.Since(begun) != 70*time.Second-bookmarkBefore {
			t.Errorf("after %s: %v, want a bookmark just before the end", time.Since(begun), e)
		}
		synctest.Wait()
		select {
		case e := <-quiet.ResultChan():
			t.Errorf("a watch without bookmarks got %v", e)
		default:
		}
	})
}

// TestSlowClient is cut off with 410 and does not hold up anybody.
func TestSlowClient(t *testing.T) {
	s, _, _ := nodes(t, 0)
	first := addNode(t, s, "a")
	w, err := s.Watch(t.Context(), "/nodes", kubestorage.ListOptions{Recursive: true, Predicate: everything(), ResourceVersion: first.ResourceVersion})
	must(t, err)
	defer w.Stop()
	for i := range 2000 {
		must(t, s.GuaranteedUpdate(t.Context(), "/nodes/a", &core.Node{}, false, nil, kubestorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			obj.(*core.Node).Annotations = map[string]string{"n": strconv.Itoa(i)}
			return obj, nil
		}), nil))
	}
	must(t, s.fresh(t.Context()))
	last := -1
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			if status := e.Object.(*metav1.Status); status.Reason != metav1.StatusReasonExpired {
				t.Errorf("cut off with %v", status)
			}
			return
		}
		n, err := strconv.Atoi(e.Object.(*core.Node).Annotations["n"])
		must(t, err)
		if n != last+1 {
			t.Fatalf("update %d after %d", n, last)
		}
		last = n
	}
	t.Error("the watch ended without a reason")
}

// TestUnavailable: clients hear that the store is away, not that objects are not
// there; reads of the cache go on.
func TestUnavailable(t *testing.T) {
	s, _, kv := nodes(t, 0)
	addNode(t, s, "a")
	must(t, s.fresh(t.Context()))
	kv.Fail(func(op string) error {
		if op == "range" || op == "commit" {
			return store.ErrUnavailable
		}
		return nil
	})
	defer kv.Fail(nil)
	got := &core.Node{}
	if err := s.Get(t.Context(), "/nodes/a", kubestorage.GetOptions{}, got); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("consistent get: %v", err)
	}
	must(t, s.Get(t.Context(), "/nodes/a", kubestorage.GetOptions{ResourceVersion: "0"}, got))
	if err := s.Create(t.Context(), "/nodes/b", &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, got, 0); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("create: %v", err)
	}
	if err := s.Delete(t.Context(), "/nodes/b", got, nil, kubestorage.ValidateAllObjectFunc, nil, kubestorage.DeleteOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("delete: %v", err)
	}
}

func TestLabelsAreMatchedWithoutConverting(t *testing.T) {
	st, kv := running(t, 0)
	s := over(st, kv, api.Pods(), func() runtime.Object { t.Error("converted"); return &core.Pod{} })
	f := s.filter(kubestorage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"a": "b"}), Field: fields.Everything()})
	for want, l := range map[bool]map[string]string{true: {"a": "b"}, false: {"a": "c"}} {
		if got, err := f.matches(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: l}}); err != nil || got != want {
			t.Errorf("%v: %t, %v", l, got, err)
		}
	}
}

// FuzzContinue: a token from outside never panics and never leads out of its
// resource.
func FuzzContinue(f *testing.F) {
	kv := memory.New()
	st := store.New(kv, store.Options{})
	if err := st.Load(context.Background()); err != nil {
		f.Fatal(err)
	}
	s := over(st, kv, api.Nodes(), func() runtime.Object { return &core.Node{} })
	token, err := kubestorage.EncodeContinue("/nodes/a\x00", "/nodes/", -1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add("e30")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		p := everything()
		p.Limit, p.Continue = 1, token
		list := &core.NodeList{}
		if err := s.GetList(context.Background(), "/nodes", kubestorage.ListOptions{Recursive: true, ResourceVersion: "0", Predicate: p}, list); err == nil && len(list.Items) != 0 {
			t.Errorf("token %q lists %v", token, list.Items)
		}
	})
}
