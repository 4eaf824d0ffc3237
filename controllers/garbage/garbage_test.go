package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile/reconciletest"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

type world struct{ *reconciletest.World }

func newWorld(tb testing.TB, f reconciletest.T) *world {
	w := &world{reconciletest.New(f, storetest.Open(tb))}
	w.Run(New(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock}))
	w.settle()
	return w
}

// settle works until nothing is due but the sweeps.
func (w *world) settle() {
	w.Helper()
	for range 2000 {
		w.Sync()
		if w.Loop.Step(context.Background()) {
			continue
		}
		if next := w.Loop.Next(); !next.IsZero() && next.Sub(w.Now) < time.Second {
			w.Now = next
			continue
		}
		return
	}
	w.Fatalf("the controller does not come to rest")
}

func (w *world) try(ops ...store.Op) error {
	for _, op := range ops {
		if op.Verb == store.Create {
			uid := op.Object.GetUID()
			store.Stamp(op.Object, w.Now)
			if uid != "" {
				op.Object.SetUID(uid)
			}
		}
	}
	_, err := w.Store.Commit(context.Background(), store.Txn{Ops: ops})
	return err
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.Helper()
	if err := w.try(store.Op{Verb: verb, Object: obj}); err != nil {
		w.Fatalf("%s %s: %v", verb, store.KeyOf(obj), err)
	}
	w.Sync()
}

func (w *world) live(obj api.Object) api.Object { return w.Store.Get(store.KeyOf(obj)) }

// names lists what is there, a minus before what is being deleted.
func (w *world) names() string {
	var out []string
	for _, k := range api.Kinds() {
		if k.GroupResource() == api.Events() {
			continue
		}
		for _, obj := range w.Store.List(k.GroupResource(), "") {
			n := obj.GetName()
			if obj.GetDeletionTimestamp() != nil {
				n = "-" + n
			}
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) see(want string) {
	w.Helper()
	if got := w.names(); got != want {
		w.Fatalf("there is %q, want %q", got, want)
	}
}

func meta(name string, owners ...api.Object) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name}
	for _, o := range owners {
		m.OwnerReferences = append(m.OwnerReferences, podset.Controller(o))
	}
	return m
}

// family is a deployment with a set and two pods, one of them on a node.
func family(w *world) (*appsv1.Deployment, *appsv1.ReplicaSet, *corev1.Pod) {
	d := &appsv1.Deployment{ObjectMeta: meta("d")}
	w.commit(store.Create, d)
	rs := &appsv1.ReplicaSet{ObjectMeta: meta("rs", d)}
	w.commit(store.Create, rs)
	grace := int64(30)
	p := &corev1.Pod{ObjectMeta: meta("bound", rs), Spec: corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: &grace}}
	w.commit(store.Create, p)
	w.commit(store.Create, &corev1.Pod{ObjectMeta: meta("unbound", rs)})
	w.settle()
	return d, rs, p
}

func TestDependentsGoWithTheirOwner(t *testing.T) {
	w := newWorld(t, t)
	d, _, p := family(w)
	w.see("bound d rs unbound")
	w.commit(store.Delete, d)
	w.settle()
	w.see("-bound")
	if w.Commits != 2 {
		t.Errorf("%d transactions, want 2: the set, its pods", w.Commits)
	}
	w.commit(store.Delete, w.live(p))
	w.settle()
	w.see("")
}

func TestManyDependentsGoInBatches(t *testing.T) {
	w := newWorld(t, t)
	rs := &appsv1.ReplicaSet{ObjectMeta: meta("rs")}
	w.commit(store.Create, rs)
	for i := range 300 {
		w.commit(store.Create, &corev1.Pod{ObjectMeta: meta(fmt.Sprintf("p%d", i), rs)})
	}
	w.settle()
	w.commit(store.Delete, rs)
	w.settle()
	w.see("")
	if w.Commits != 4 {
		t.Errorf("%d transactions for 300 pods, want 4", w.Commits)
	}
}

func TestAnObjectWithAnotherOwnerStays(t *testing.T) {
	w := newWorld(t, t)
	a, b := &appsv1.ReplicaSet{ObjectMeta: meta("a")}, &appsv1.ReplicaSet{ObjectMeta: meta("b")}
	w.commit(store.Create, a)
	w.commit(store.Create, b)
	p := &corev1.Pod{ObjectMeta: meta("p", a, b)}
	w.commit(store.Create, p)
	w.commit(store.Delete, a)
	w.settle()
	w.see("b p")
	if refs := w.live(p).GetOwnerReferences(); len(refs) != 1 || refs[0].UID != b.UID {
		t.Errorf("owners %v, want b only", refs)
	}
	w.commit(store.Delete, b)
	w.settle()
	w.see("")
}

func TestAnOwnerOfAnotherIdentityIsNoOwner(t *testing.T) {
	w := newWorld(t, t)
	rs := &appsv1.ReplicaSet{ObjectMeta: meta("rs")}
	w.commit(store.Create, rs)
	p := &corev1.Pod{ObjectMeta: meta("p", rs)}
	w.commit(store.Create, p)
	w.commit(store.Delete, rs)
	w.commit(store.Create, &appsv1.ReplicaSet{ObjectMeta: meta("rs")})
	w.settle()
	w.see("rs")
}

func TestAnUnknownOwnerCountsAsThere(t *testing.T) {
	w := newWorld(t, t)
	p := &corev1.Pod{ObjectMeta: meta("p")}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Database", Name: "x", UID: "u"}}
	w.commit(store.Create, p)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "x", UID: "u"}}}}
	w.commit(store.Create, ns)
	w.settle()
	w.see("n p")
}

func TestADependentThatComesLateGoes(t *testing.T) {
	w := newWorld(t, t)
	d, rs, _ := family(w)
	w.commit(store.Delete, d)
	w.settle()
	w.commit(store.Create, &corev1.Pod{ObjectMeta: meta("late", rs)})
	w.settle()
	w.see("-bound")
}

// TestAnOwnerThatTheCacheLacksIsNotGone creates owner and dependent, shows the
// controller only the dependent, and lets it decide.
func TestAnOwnerThatTheCacheLacksIsNotGone(t *testing.T) {
	w := newWorld(t, t)
	rs := &appsv1.ReplicaSet{ObjectMeta: meta("rs")}
	p := &corev1.Pod{ObjectMeta: meta("p")}
	rs.UID = "later"
	p.OwnerReferences = []metav1.OwnerReference{podset.Controller(rs)}
	w.commit(store.Create, p) // the cache knows this
	if err := w.try(store.Op{Verb: store.Create, Object: rs}); err != nil {
		t.Fatal(err)
	}
	for w.Loop.Step(context.Background()) { // and not yet that
	}
	w.settle()
	w.see("p rs")
}

func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	w := newWorld(t, t)
	d, _, p := family(w)
	del := w.live(d).(*appsv1.Deployment).DeepCopy()
	at := metav1.NewTime(w.Now)
	del.DeletionTimestamp, del.Finalizers = &at, []string{metav1.FinalizerDeleteDependents}
	w.commit(store.Update, del)
	w.settle()
	w.see("-bound -d -rs")
	w.commit(store.Delete, w.live(p))
	w.settle()
	w.see("")
}

func TestOrphaningLeavesDependents(t *testing.T) {
	w := newWorld(t, t)
	d, rs, _ := family(w)
	del := w.live(d).(*appsv1.Deployment).DeepCopy()
	at := metav1.NewTime(w.Now)
	del.DeletionTimestamp, del.Finalizers = &at, []string{metav1.FinalizerOrphanDependents}
	w.commit(store.Update, del)
	w.settle()
	w.see("bound rs unbound")
	if refs := w.live(rs).GetOwnerReferences(); len(refs) != 0 {
		t.Errorf("owners %v, want none", refs)
	}
}

func TestOtherFinalizersStillHold(t *testing.T) {
	w := newWorld(t, t)
	cm := &corev1.ConfigMap{ObjectMeta: meta("cm")}
	at := metav1.NewTime(w.Now)
	cm.DeletionTimestamp, cm.Finalizers = &at, []string{metav1.FinalizerDeleteDependents, "example.com/hold"}
	w.commit(store.Create, cm)
	w.settle()
	w.see("-cm")
	held := w.live(cm).(*corev1.ConfigMap).DeepCopy()
	if len(held.Finalizers) != 1 {
		t.Fatalf("finalizers %v", held.Finalizers)
	}
	held.Finalizers = nil // whoever does it not through the API server
	w.commit(store.Update, held)
	w.settle()
	w.see("")
}

func TestOldEventsGo(t *testing.T) {
	w := newWorld(t, t)
	for i := range 200 {
		at := metav1.NewTime(w.Now.Add(time.Duration(i) * time.Minute))
		w.commit(store.Create, &corev1.Event{ObjectMeta: meta(fmt.Sprintf("e%03d", i)), LastTimestamp: at})
	}
	w.Now = w.Now.Add(100 * time.Minute)
	w.Loop.Wake(sweepKey())
	w.settle()
	if n := len(w.Store.List(api.Events(), "")); n != 159 {
		t.Errorf("%d events are left, want 159: those of the last hour and later", n)
	}
	if got := w.Loop.Next().Sub(w.Now); got != time.Minute {
		t.Errorf("the next sweep is in %v, want 1m", got)
	}
}

func TestEventsAreBounded(t *testing.T) {
	now := time.Now()
	var events []api.Object
	for i := range maxEvents + 7 {
		events = append(events, &corev1.Event{LastTimestamp: metav1.NewTime(now.Add(-time.Duration(i) * time.Millisecond))})
	}
	if steps, _ := planEvents(events, now); len(steps) != 7 || steps[0].Object != events[len(events)-1] {
		t.Errorf("%d events go, want the 7 oldest", len(steps))
	}
}

// TestOnlyGarbageGoes creates and deletes owners and dependents in any order with
// the cache behind, and checks that at the end exactly those are gone whose owners
// all are.
func TestOnlyGarbageGoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		type thing struct {
			obj    *corev1.ConfigMap
			owners []*thing
			gone   bool // deleted by us
		}
		var things []*thing
		n := 0
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				th := &thing{obj: &corev1.ConfigMap{ObjectMeta: meta(fmt.Sprintf("c%03d", n))}}
				n++
				for range rapid.IntRange(0, 2).Draw(t, "owners") {
					if len(things) == 0 {
						break
					}
					o := rapid.SampledFrom(things).Draw(t, "owner")
					if !slices.Contains(th.owners, o) {
						th.owners = append(th.owners, o)
						th.obj.OwnerReferences = append(th.obj.OwnerReferences, podset.Controller(o.obj))
					}
				}
				th.obj.UID = types.UID(th.obj.Name)
				if err := w.try(store.Op{Verb: store.Create, Object: th.obj}); err != nil {
					t.Fatalf("create: %v", err)
				}
				things = append(things, th)
			},
			"delete": func(t *rapid.T) {
				if len(things) == 0 {
					return
				}
				th := rapid.SampledFrom(things).Draw(t, "thing")
				live, _, err := w.Store.GetAt(context.Background(), store.KeyOf(th.obj), 0)
				if errors.Is(err, store.ErrNotFound) {
					return
				} else if err != nil {
					t.Fatalf("get: %v", err)
				}
				if err := w.try(store.Op{Verb: store.Delete, Object: live}); err != nil {
					t.Fatalf("delete: %v", err)
				}
				th.gone = true
			},
			"controller": func(*rapid.T) { w.Loop.Step(context.Background()) },
			"cache": func(t *rapid.T) {
				if _, err := w.Store.Step(context.Background()); err != nil {
					t.Fatalf("step: %v", err)
				}
			},
			"restart": func(t *rapid.T) {
				w.Run(New(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock}))
			},
		})
		w.settle()
		for _, th := range things { // owners stand before their dependents
			orphaned := len(th.owners) > 0
			for _, o := range th.owners {
				orphaned = orphaned && o.gone
			}
			th.gone = th.gone || orphaned
			if there := w.live(th.obj) != nil; there == th.gone {
				rt.Fatalf("%s: there=%v, want %v", th.obj.Name, there, !th.gone)
			}
		}
	})
}
