package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type world struct {
	*testing.T
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, st: storetest.Open(t), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }, Authority: []byte("the authority")})
	w.st.OnEvents(w.loop.Handle)
	return w
}

func (w *world) settle() {
	w.Helper()
	for range 1000 {
		storetest.Settle(w.T, w.st)
		if !w.loop.Step(context.Background()) {
			return
		}
	}
	w.Fatal("the controller does not come to rest")
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.Helper()
	if verb == store.Create {
		store.Stamp(obj, w.now)
	}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.Fatal(err)
	}
	storetest.Settle(w.T, w.st)
}

func (w *world) namespace(name string) *corev1.Namespace {
	ns, _ := w.st.Get(key(name)).(*corev1.Namespace)
	return ns.DeepCopy()
}

// delete asks for a namespace's deletion as the API server records it.
func (w *world) delete(name string) {
	w.Helper()
	ns := w.namespace(name)
	at := metav1.NewTime(w.now)
	ns.DeletionTimestamp, ns.Status.Phase = &at, corev1.NamespaceTerminating
	w.commit(store.Update, ns)
}

func TestTheClustersOwnNamespacesAreThere(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for _, name := range []string{"default", "kube-system", "kube-node-lease"} {
		ns := w.namespace(name)
		if ns == nil || ns.Status.Phase != corev1.NamespaceActive || ns.Labels[corev1.LabelMetadataName] != name || len(ns.Spec.Finalizers) != 1 || ns.UID == "" {
			t.Errorf("%s: %+v", name, ns)
		}
		if w.st.Get(store.Key{GroupResource: api.ServiceAccounts(), Namespace: name, Name: "default"}) == nil {
			t.Errorf("%s has no default account", name)
		}
	}
	before := w.st.Revision()
	for _, name := range []string{"default", "kube-system"} {
		w.loop.Wake(key(name))
	}
	if w.settle(); w.st.Revision() != before {
		t.Error("a settled namespace is written again")
	}
}

func TestADeclaredNamespaceBecomesUsable(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	w.settle()
	if ns := w.namespace("shop"); ns.Status.Phase != corev1.NamespaceActive || ns.Spec.Finalizers[0] != corev1.FinalizerKubernetes {
		t.Errorf("%+v", ns)
	}
	sa := w.st.Get(store.Key{GroupResource: api.ServiceAccounts(), Namespace: "shop", Name: "default"})
	if sa == nil {
		t.Fatal("no default account")
	}
	w.commit(store.Delete, sa)
	w.settle()
	if w.st.Get(store.KeyOf(sa)) == nil {
		t.Error("the default account is not made again")
	}
}

func TestADeletedNamespaceIsEmptiedThenGone(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	w.settle()
	for i := range 250 {
		w.commit(store.Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("c%d", i)}})
	}
	w.commit(store.Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "mine"}})
	w.commit(store.Create, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}})
	w.commit(store.Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "waiting"}})
	grace := int64(30)
	running := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "running"}, Spec: corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: &grace}}
	w.commit(store.Create, running)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "held", Finalizers: []string{"example.com/hold"}}}
	w.commit(store.Create, held)
	w.delete("shop")
	w.settle()

	var left []string
	for _, k := range content() {
		for _, obj := range w.st.List(k.GroupResource(), "shop") {
			if obj.GetDeletionTimestamp() == nil {
				t.Errorf("%s is not being deleted", store.KeyOf(obj))
			}
			left = append(left, obj.GetName())
		}
	}
	slices.Sort(left)
	if strings.Join(left, " ") != "held running" {
		t.Fatalf("left: %v", left)
	}
	messages := ""
	for _, c := range w.namespace("shop").Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			messages += c.Message + "\n"
		}
	}
	want := "Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances\n" +
		"Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances\n"
	if messages != want {
		t.Errorf("conditions say\n%swant\n%s", messages, want)
	}

	w.commit(store.Delete, w.st.Get(store.KeyOf(running)))
	w.commit(store.Delete, w.st.Get(store.KeyOf(held)))
	w.settle()
	if w.st.Get(key("shop")) != nil {
		t.Fatal("the namespace is still there")
	}
	if w.st.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "other", Name: "mine"}) == nil || w.st.Get(key("other")) == nil {
		t.Fatal("another namespace lost something")
	}
}

func TestANamespaceStaysWhileOthersHoldIt(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Finalizers: []string{"example.com/hold"}}})
	w.settle()
	w.delete("shop")
	w.settle()
	ns := w.namespace("shop")
	if ns == nil || len(ns.Spec.Finalizers) != 0 {
		t.Fatalf("%+v", ns)
	}
	ns.Finalizers = nil
	w.commit(store.Update, ns)
	w.settle()
	if w.st.Get(key("shop")) != nil {
		t.Fatal("the namespace is still there")
	}
}

func TestAPermanentNamespaceIsNeverEmptied(t *testing.T) {
	w := newWorld(t)
	w.settle()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "keep"}}
	w.commit(store.Create, cm)
	w.delete("kube-system")
	w.settle()
	if w.st.Get(store.KeyOf(cm)) == nil || w.namespace("kube-system") == nil {
		t.Fatal("kube-system was emptied")
	}
}

// lagging shows the controller a cache that lacks an object.
type lagging struct {
	*store.Store
	hide bool
}

func (l *lagging) List(gr schema.GroupResource, namespace string) []api.Object {
	if l.hide && gr == api.ConfigMaps() {
		return nil
	}
	return l.Store.List(gr, namespace)
}

func TestTheBackendSaysWhetherANamespaceIsEmpty(t *testing.T) {
	w := newWorld(t)
	w.settle()
	l := &lagging{Store: w.st, hide: true}
	c := &controller{Config{Store: l, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }}}
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	w.commit(store.Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late"}})
	w.delete("shop")
	for range 3 {
		if err := c.Reconcile(t.Context(), key("shop")); err != nil && !strings.Contains(err.Error(), store.ErrConflict.Error()) {
			t.Fatal(err)
		}
		storetest.Settle(t, w.st)
		if w.namespace("shop") == nil {
			t.Fatal("a namespace with content is gone")
		}
	}
	l.hide = false
	for range 3 {
		if err := c.Reconcile(t.Context(), key("shop")); err != nil {
			t.Fatal(err)
		}
		storetest.Settle(t, w.st)
	}
	if w.namespace("shop") != nil {
		t.Fatal("the namespace is still there")
	}
}

func TestEachNamespaceHasTheAuthority(t *testing.T) {
	w := newWorld(t)
	w.settle()
	ca := func() *corev1.ConfigMap {
		cm, _ := w.st.Get(store.Key{GroupResource: api.ConfigMaps(), Namespace: "default", Name: "kube-root-ca.crt"}).(*corev1.ConfigMap)
		return cm.DeepCopy()
	}
	right := func(after string) {
		t.Helper()
		if cm := ca(); cm == nil || len(cm.Data) != 1 || cm.Data["ca.crt"] != "the authority" || cm.BinaryData != nil {
			t.Fatalf("after %s: %+v", after, cm)
		}
	}
	right("the start")
	w.commit(store.Delete, ca())
	w.settle()
	right("its deletion")
	changed := ca()
	changed.Data, changed.BinaryData = map[string]string{"ca.crt": "another", "more": "x"}, map[string][]byte{"b": {1}}
	w.commit(store.Update, changed)
	w.settle()
	right("a change")
	w.commit(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	w.settle()
	w.delete("shop")
	w.settle()
	if w.namespace("shop") != nil {
		t.Error("the ConfigMap of a namespace that is being deleted comes back")
	}
}
