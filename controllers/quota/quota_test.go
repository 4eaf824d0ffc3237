package quota

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a cluster of several servers over one backend; the first leads.
type world struct {
	t      testing.TB
	stores []*store.Store
	loop   *reconcile.Loop
	now    time.Time
}

func newWorld(t testing.TB, servers int) *world {
	w := &world{t: t, now: noon}
	kv := memory.New()
	for range servers {
		s := store.New(kv, store.Options{Seal: storetest.SealKey(), Now: func() time.Time { return w.now },
			Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
		if err := s.Load(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.stores = append(w.stores, s)
	}
	w.loop = New(Config{Store: w.stores[0], Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.stores[0].OnEvents(w.loop.Handle)
	return w
}

func (w *world) settle() {
	w.t.Helper()
	sync := func() {
		for _, s := range w.stores {
			storetest.Settle(w.t, s)
		}
	}
	for sync(); w.loop.Step(context.Background()); sync() {
	}
}

func (w *world) commit(verb store.Verb, obj api.Object) error {
	_, err := w.stores[0].Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}})
	return err
}

func (w *world) must(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if err := w.commit(verb, obj); err != nil {
		w.t.Fatalf("%s %s: %v", verb, store.KeyOf(obj), err)
	}
	w.settle()
}

func quota(pods int64) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI)}}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
}

// used is what the quota says, and what there is.
func (w *world) used() (said, there int64) {
	w.t.Helper()
	ctx := context.Background()
	obj, _, err := w.stores[0].GetAt(ctx, store.KeyOf(quota(0)), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	n := obj.(*corev1.ResourceQuota).Status.Used[corev1.ResourcePods]
	page, err := w.stores[0].ListAt(ctx, api.Pods(), "shop", 0, 0, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return n.Value(), int64(len(page.Objects))
}

func TestUsedIsCountedAndEnforced(t *testing.T) {
	w := newWorld(t, 1)
	w.must(store.Create, pod("before"))
	w.must(store.Create, quota(3))
	if said, _ := w.used(); said != 1 {
		t.Fatalf("what was there before the quota: used %d", said)
	}
	w.must(store.Create, pod("a"))
	w.must(store.Create, pod("b"))
	err := w.commit(store.Create, pod("c"))
	if !apierrors.IsForbidden(err) || err.Error() != `pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3` {
		t.Fatalf("the fourth: %v", err)
	}
	ended := w.stores[0].Get(store.KeyOf(pod("a"))).(*corev1.Pod).DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	w.must(store.Update, ended) // it uses nothing any more
	w.must(store.Create, pod("c"))

	stuck := w.stores[0].Get(store.KeyOf(pod("b"))).(*corev1.Pod).DeepCopy()
	grace := int64(30)
	stuck.DeletionTimestamp, stuck.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
	w.must(store.Update, stuck)
	if err := w.commit(store.Create, pod("d")); !apierrors.IsForbidden(err) {
		t.Fatalf("while one is stopping: %v", err)
	}
	w.now = noon.Add(time.Minute) // its node is lost
	w.settle()
	w.must(store.Create, pod("d"))

	q := w.stores[0].Get(store.KeyOf(quota(0))).(*corev1.ResourceQuota).DeepCopy()
	q.Spec.Hard[corev1.ResourcePods] = resource.MustParse("1")
	w.must(store.Update, q) // less than there is: nothing ends for that
	q = w.stores[0].Get(store.KeyOf(q)).(*corev1.ResourceQuota)
	if hard, n := q.Status.Hard[corev1.ResourcePods], q.Status.Used[corev1.ResourcePods]; hard.Value() != 1 || n.Value() != 3 {
		t.Errorf("hard %s, used %s", hard.String(), n.String())
	}
}

func TestDefaultsAreGivenToWhateverMakesAPod(t *testing.T) {
	w := newWorld(t, 1)
	w.must(store.Create, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
	}}}})
	p := pod("a")
	w.must(store.Create, p)
	live := w.stores[0].Get(store.KeyOf(p)).(*corev1.Pod)
	request, limit := live.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU], live.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]
	if request.String() != "1" || limit.String() != "2" {
		t.Errorf("request %s, limit %s", request.String(), limit.String())
	}
	if p.ResourceVersion != live.ResourceVersion || len(p.Spec.Containers[0].Resources.Limits) == 0 {
		t.Errorf("its maker is not told: %+v", p)
	}
	big := pod("b")
	big.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	if err := w.commit(store.Create, big); !apierrors.IsForbidden(err) {
		t.Errorf("above the maximum: %v", err)
	}
}

// TestNewQuotaCountsWhatIsMadeMeanwhile: whoever knows of a quota that is not in force
// yet writes it with what they make, so it comes into force with all that there is.
func TestNewQuotaCountsWhatIsMadeMeanwhile(t *testing.T) {
	makeTwo := func(w *world) error {
		_, err := w.stores[1].Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: pod("a")}, {Verb: store.Create, Object: pod("b")}}})
		return err
	}
	begin := func() *world {
		w := newWorld(t, 2)
		if err := w.commit(store.Create, quota(1)); err != nil {
			t.Fatal(err)
		}
		for _, s := range w.stores {
			storetest.Settle(t, s)
		}
		return w
	}
	w := begin() // they are made while the controller counts
	if err := makeTwo(w); err != nil {
		t.Fatal(err)
	}
	w.loop.Step(context.Background())
	if obj, _, err := w.stores[1].GetAt(context.Background(), store.KeyOf(quota(1)), 0); err != nil || len(obj.(*corev1.ResourceQuota).Status.Hard) > 0 {
		t.Errorf("it is in force without having counted them: %v, %v", obj, err)
	}
	w = begin() // they are to be made by who does not know yet that it has counted
	w.loop.Step(context.Background())
	if err := makeTwo(w); !apierrors.IsForbidden(err) {
		t.Errorf("two pods, the quota is 1: %v", err)
	}
}

// TestConcurrentServersDoNotExceedAQuota: of pods that two servers make at once,
// exactly as many come to be as fit.
func TestConcurrentServersDoNotExceedAQuota(t *testing.T) {
	w := newWorld(t, 2)
	w.must(store.Create, quota(7))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			_, err := w.stores[i%2].Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Create, Object: pod(fmt.Sprintf("p%d", i))}}})
			if err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("p%d: %v", i, err)
			}
		})
	}
	all.Wait()
	if said, there := w.used(); said != 7 || there != 7 {
		t.Errorf("used %d, there are %d", said, there)
	}
}

// TestQuotaIsNeverExceeded makes and deletes pods through servers whose caches are
// behind, with the controller counting at any time.
func TestQuotaIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 2)
		ctx := context.Background()
		hard := int64(rapid.IntRange(0, 5).Draw(rt, "hard"))
		w.must(store.Create, quota(hard))
		next := 0
		server := rapid.IntRange(0, 1)
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				var ops []store.Op
				for range rapid.IntRange(1, 3).Draw(t, "pods") {
					next++
					ops = append(ops, store.Op{Verb: store.Create, Object: pod(fmt.Sprintf("p%04d", next))})
				}
				_, before := w.used()
				_, err := w.stores[server.Draw(t, "server")].Commit(ctx, store.Txn{Ops: ops})
				said, there := w.used()
				switch {
				case there > hard:
					t.Fatalf("%d pods, the quota is %d", there, hard)
				case err == nil && there != before+int64(len(ops)):
					t.Fatalf("%d pods after %d", there, before)
				case err != nil && !apierrors.IsForbidden(err):
					t.Fatalf("create: %v", err)
				case err != nil && said+int64(len(ops)) <= hard:
					t.Fatalf("refused with room: %v", err)
				}
			},
			"delete": func(t *rapid.T) {
				page, err := w.stores[0].ListAt(ctx, api.Pods(), "shop", 0, 1, "")
				if err != nil {
					t.Fatal(err)
				}
				for _, obj := range page.Objects {
					if _, err := w.stores[server.Draw(t, "server")].Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Delete, Object: obj}}}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"controller": func(*rapid.T) { w.loop.Step(ctx) },
			"cache": func(t *rapid.T) {
				if _, err := w.stores[server.Draw(t, "server")].Step(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				if said, there := w.used(); said < there || there > hard {
					t.Fatalf("used %d, there are %d, the quota is %d", said, there, hard)
				}
			},
		})
		w.settle()
		if said, there := w.used(); said != there {
			rt.Fatalf("at rest: used %d, there are %d", said, there)
		}
	})
}

// A LimitRange that came later does not keep a claim from being bound, and the claims'
// number and size, also of a class, are counted.
func TestClaimsAreCountedAndBound(t *testing.T) {
	w := newWorld(t, 1)
	class := "local"
	claim := func(name, size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}}
	}
	hard := corev1.ResourceList{}
	for name, amount := range map[string]string{"persistentvolumeclaims": "3", "requests.storage": "5Gi", "local.storageclass.storage.k8s.io/persistentvolumeclaims": "2", "local.storageclass.storage.k8s.io/requests.storage": "4Gi"} {
		hard[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	w.must(store.Create, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}})
	w.must(store.Create, claim("a", "1Gi"))
	if err := w.commit(store.Create, claim("b", "4Gi")); !apierrors.IsForbidden(err) {
		t.Errorf("beyond the size of the class: %v", err)
	}
	w.must(store.Create, claim("b", "2Gi"))
	if err := w.commit(store.Create, claim("c", "1Mi")); !apierrors.IsForbidden(err) {
		t.Errorf("beyond the number of the class: %v", err)
	}
	q := w.stores[0].List(api.ResourceQuotas(), "shop")[0].(*corev1.ResourceQuota)
	for name, want := range map[string]string{"persistentvolumeclaims": "2", "requests.storage": "3Gi", "local.storageclass.storage.k8s.io/requests.storage": "3Gi"} {
		if got := q.Status.Used[corev1.ResourceName(name)]; got.String() != want {
			t.Errorf("%s: used %s, want %s", name, got.String(), want)
		}
	}

	w.must(store.Create, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1536Mi")},
	}}}})
	live := func(name string) *corev1.PersistentVolumeClaim {
		return w.stores[0].Get(store.KeyOf(claim(name, "1Gi"))).DeepCopyObject().(*corev1.PersistentVolumeClaim)
	}
	bound := live("b")
	bound.Spec.VolumeName = "v"
	w.must(store.Update, bound)
	larger := live("a")
	larger.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if err := w.commit(store.Update, larger); !apierrors.IsForbidden(err) {
		t.Errorf("a claim grows beyond the LimitRange: %v", err)
	}
}
