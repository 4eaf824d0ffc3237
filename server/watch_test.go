package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// next returns a watch's next event, or fails the test.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(2 * time.Minute):
		t.Fatal("no event")
	}
	return watch.Event{}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"v": value}}, Data: map[string]string{"v": value}}
}

func TestInformerSeesEverything(t *testing.T) {
	f := start(t, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	configMaps := f.admin.CoreV1().ConfigMaps("default")
	for i := range 3 {
		_, err := configMaps.Create(ctx, configMap(fmt.Sprintf("early-%d", i), "0"), metav1.CreateOptions{})
		must(t, err)
	}
	factory := informers.NewSharedInformerFactory(f.admin, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	events := make(chan string, 100)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { events <- "add " + obj.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, obj any) {
			events <- "update " + obj.(*corev1.ConfigMap).Name + " " + obj.(*corev1.ConfigMap).Data["v"]
		},
		DeleteFunc: func(obj any) { events <- "delete " + obj.(*corev1.ConfigMap).Name },
	})
	must(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	_, err = configMaps.Create(ctx, configMap("late", "1"), metav1.CreateOptions{})
	must(t, err)
	_, err = configMaps.Update(ctx, configMap("late", "2"), metav1.UpdateOptions{})
	must(t, err)
	must(t, configMaps.Delete(ctx, "late", metav1.DeleteOptions{}))
	want := []string{"add early-0", "add early-1", "add early-2", "add late", "update late 2", "delete late"}
	var got []string
	for range want {
		select {
		case e := <-events:
			got = append(got, e)
		case <-time.After(2 * time.Minute):
			t.Fatalf("events %q, want %q", got, want)
		}
	}
	slices.Sort(got[:3]) // an informer gives its first objects in no order
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestInitialEventsEndWithABookmark(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	configMaps := f.admin.CoreV1().ConfigMaps("default")
	_, err := configMaps.Create(ctx, configMap("a", "1"), metav1.CreateOptions{})
	must(t, err)
	yes := true
	w, err := configMaps.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	must(t, err)
	defer w.Stop()
	if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "a" {
		t.Errorf("first event %v", e)
	}
	e := next(t, w)
	mark, ok := e.Object.(*corev1.ConfigMap)
	if e.Type != watch.Bookmark || !ok || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || mark.ResourceVersion == "" {
		t.Errorf("after the initial events: %v", e)
	}
	_, err = configMaps.Create(ctx, configMap("b", "1"), metav1.CreateOptions{})
	must(t, err)
	if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "b" {
		t.Errorf("after the bookmark: %v", e)
	}
}

func TestSelectors(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	pods := f.admin.CoreV1().Pods("default")
	for name, node := range map[string]string{"a": "n1", "b": "n2", "c": "n1"} {
		p := pod(name, node)
		p.Labels = map[string]string{"app": name}
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		must(t, err)
	}
	for _, c := range []struct{ label, field, want string }{
		{"", "spec.nodeName=n1", "a c "},
		{"app in (a,b)", "", "a b "},
		{"app in (a,b)", "spec.nodeName=n1", "a "},
		{"", "metadata.name=b", "b "},
		{"", "status.phase=Running", ""},
		{"app=none", "", ""},
	} {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: c.label, FieldSelector: c.field})
		must(t, err)
		got := ""
		for _, p := range list.Items {
			got += p.Name + " "
		}
		if got != c.want {
			t.Errorf("%q %q: %q, want %q", c.label, c.field, got, c.want)
		}
	}
	if _, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nothing=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("unknown field: %v", err)
	}

	w, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "app=a"})
	must(t, err)
	defer w.Stop()
	if e := next(t, w); e.Type != watch.Added {
		t.Errorf("at first %v", e)
	}
	_, err = pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"z"}}}`), metav1.PatchOptions{})
	must(t, err)
	if e := next(t, w); e.Type != watch.Deleted || e.Object.(*corev1.Pod).Labels["app"] != "a" {
		t.Errorf("a pod that no longer matches is %v", e)
	}
	_, err = pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"a"}}}`), metav1.PatchOptions{})
	must(t, err)
	if e := next(t, w); e.Type != watch.Added {
		t.Errorf("a pod that matches again is %v", e)
	}
}

func TestExpiredRevisions(t *testing.T) {
	f := start(t, 5, nil)
	ctx := t.Context()
	configMaps := f.admin.CoreV1().ConfigMaps("default")
	first, err := configMaps.Create(ctx, configMap("a", "0"), metav1.CreateOptions{})
	must(t, err)
	for i := range 10 {
		_, err := configMaps.Update(ctx, configMap("a", strconv.Itoa(i+1)), metav1.UpdateOptions{})
		must(t, err)
	}
	exact := metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	list, err := configMaps.List(ctx, exact)
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].Data["v"] != "0" || list.ResourceVersion != first.ResourceVersion {
		t.Errorf("list at revision %s: %+v", first.ResourceVersion, list)
	}
	if _, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion}); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from before the window: %v, want 410", err)
	}
	now, err := f.store.Current(ctx)
	must(t, err)
	must(t, f.kv.Compact(ctx, now))
	if _, err := configMaps.List(ctx, exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("list at a compacted revision: %v, want 410", err)
	}
	future := f.admin.CoreV1().RESTClient().Get().Namespace("default").Resource("configmaps").MaxRetries(0).
		Param("resourceVersion", strconv.FormatInt(now+1000, 10)).Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	if err := future.Do(ctx).Error(); !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("list at a future revision: %v, want too large", err)
	}
}

// TestPages lists more than a page over namespaces whose order by name is not the
// order of their keys ("a-b" and "a"), while objects come and go, and after a
// compaction.
func TestPages(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	var ops []store.Op
	want := map[string]bool{}
	for _, ns := range []string{"a", "a-b", "b"} {
		_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		must(t, err)
		for i := range 30 {
			cm := configMap(fmt.Sprintf("c%02d", i), "1")
			cm.Namespace = ns
			store.Stamp(cm, time.Now())
			ops = append(ops, store.Op{Verb: store.Create, Object: cm})
			want[ns+"/"+cm.Name] = true
		}
	}
	_, err := f.store.Commit(ctx, store.Txn{Ops: ops})
	must(t, err)
	all := f.admin.CoreV1().ConfigMaps("")
	seen := map[string]int{}
	opts, pages := metav1.ListOptions{Limit: 20}, 0
	revision := ""
	for {
		page, err := all.List(ctx, opts)
		must(t, err)
		pages++
		if revision == "" {
			revision = page.ResourceVersion
		} else if revision != page.ResourceVersion {
			t.Errorf("page %d is of revision %s, the first of %s", pages, page.ResourceVersion, revision)
		}
		for _, cm := range page.Items {
			seen[cm.Namespace+"/"+cm.Name]++
		}
		if left := int64(len(want) - len(seen)); left > 0 && (page.RemainingItemCount == nil || *page.RemainingItemCount != left) {
			t.Errorf("page %d: %v remain, want %d", pages, page.RemainingItemCount, left)
		}
		if page.Continue == "" {
			break
		}
		opts.Continue = page.Continue
		late := configMap(fmt.Sprintf("d%d", pages), "1")
		late.Namespace = "b"
		_, err = f.admin.CoreV1().ConfigMaps("b").Create(ctx, late, metav1.CreateOptions{})
		must(t, err)
		must(t, f.admin.CoreV1().ConfigMaps("b").Delete(ctx, fmt.Sprintf("c%02d", pages), metav1.DeleteOptions{}))
	}
	if pages != 5 || len(seen) != len(want) {
		t.Errorf("%d pages with %d objects, want 5 with %d", pages, len(seen), len(want))
	}
	for key, n := range seen {
		if !want[key] || n != 1 {
			t.Errorf("%s is listed %d times", key, n)
		}
	}

	page, err := all.List(ctx, metav1.ListOptions{Limit: 20})
	must(t, err)
	now, err := f.store.Current(ctx)
	must(t, err)
	_, err = f.admin.CoreV1().ConfigMaps("b").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "zz"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, f.kv.Compact(ctx, now+1))
	_, err = all.List(ctx, metav1.ListOptions{Limit: 20, Continue: page.Continue})
	status := apierrors.APIStatus(nil)
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("continue after compaction: %v, want 410", err)
	}
	status = err.(apierrors.APIStatus)
	rest, err := all.List(ctx, metav1.ListOptions{Continue: status.Status().Continue})
	must(t, err)
	if n := len(rest.Items) + len(page.Items); n != len(want)+1 { // each that went was replaced, and zz
		t.Errorf("the rest after a 410 makes %d objects in all, want %d", n, len(want)+1)
	}
}

// TestTransactionIsSeenWhole cuts a watch inside a transaction of many objects and
// resumes it at the revision of the last event seen.
func TestTransactionIsSeenWhole(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	before, err := f.store.Current(ctx)
	must(t, err)
	var ops []store.Op
	for i := range 20 {
		cm := configMap(fmt.Sprintf("c%02d", i), "1")
		store.Stamp(cm, time.Now())
		ops = append(ops, store.Op{Verb: store.Create, Object: cm})
	}
	_, err = f.store.Commit(ctx, store.Txn{Ops: ops})
	must(t, err)
	for cut := range len(ops) {
		seen, from := map[string]bool{}, strconv.FormatInt(before, 10)
		for range 2 {
			w, err := f.admin.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: from})
			must(t, err)
			take := len(ops)
			if len(seen) == 0 {
				take = cut + 1
			}
			for range take {
				cm := next(t, w).Object.(*corev1.ConfigMap)
				seen[cm.Name], from = true, cm.ResourceVersion
			}
			w.Stop()
		}
		if len(seen) != len(ops) {
			t.Errorf("cut after %d events: %d of %d objects seen", cut+1, len(seen), len(ops))
		}
	}
}

func TestWatchesEndWithTheServer(t *testing.T) {
	f := start(t, 0, patient)
	w, err := f.admin.CoreV1().Pods("").Watch(context.Background(), metav1.ListOptions{})
	must(t, err)
	f.stopsAtOnce()
	for range w.ResultChan() {
	}
	if _, err := f.adminHTTP().Get(f.url + "/livez"); err == nil {
		t.Error("the listener is still open")
	}
}

func TestEventsHaveTwoViews(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	_, err := f.admin.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", Namespace: "default"},
		Reason:         "Started", Message: "started container", Type: corev1.EventTypeNormal,
	}, metav1.CreateOptions{})
	must(t, err)
	e, err := f.admin.EventsV1().Events("default").Get(ctx, "e", metav1.GetOptions{})
	must(t, err)
	if e.Note != "started container" || e.Regarding.Name != "web" {
		t.Errorf("events.k8s.io sees %+v", e)
	}
	list, err := f.admin.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=web,type=Normal"})
	must(t, err)
	if len(list.Items) != 1 {
		t.Errorf("%d events of pod web", len(list.Items))
	}
}
