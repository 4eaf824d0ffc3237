package disruption

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
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// budget is one of "min 2", "min 50%", "max 1", "max 30%" or "".
func budget(spec string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 3},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	what, value, _ := strings.Cut(spec, " ")
	v := intstr.Parse(value)
	switch what {
	case "min":
		b.Spec.MinAvailable = &v
	case "max":
		b.Spec.MaxUnavailable = &v
	}
	return b
}

// pods are named a, b, c…: r ready, u unready, t terminating and ready.
func pods(states string) (out []*corev1.Pod) {
	for i, s := range states {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(rune('a' + i)), Labels: map[string]string{"app": "web"}}}
		status := corev1.ConditionTrue
		if s == 'u' {
			status = corev1.ConditionFalse
		}
		if s == 't' {
			p.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		out = append(out, p)
	}
	return out
}

// TestStatus holds decide against
// https://kubernetes.io/docs/tasks/run-application/configure-pdb/.
func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		spec, pods string
		scale      int32
		want       string // current/desired/expected, allowed
	}{
		"minAvailable":                            {"min 2", "rrr", 0, "3/2/3, 1"},
		"minAvailable, none to spare":             {"min 3", "rrr", 0, "3/3/3, 0"},
		"minAvailable, too few":                   {"min 4", "rrr", 0, "3/4/3, 0"},
		"minAvailable counts pods, not replicas":  {"min 1", "rr", 9, "2/1/2, 1"},
		"minAvailable 0":                          {"min 0", "r", 0, "1/0/1, 1"},
		"unready and terminating are not healthy": {"min 1", "rut", 0, "1/1/3, 0"},
		"no pods": {"min 0", "", 0, "0/0/0, 0"},
		"minAvailable in percent of the replicas":   {"min 50%", "rrr", 4, "3/2/4, 1"},
		"minAvailable in percent is rounded up":     {"min 50%", "rrrrrrr", 7, "7/4/7, 3"},
		"minAvailable 100%":                         {"min 100%", "rr", 2, "2/2/2, 0"},
		"maxUnavailable":                            {"max 1", "rrr", 3, "3/2/3, 1"},
		"maxUnavailable, one is missing":            {"max 1", "rr", 3, "2/2/3, 0"},
		"maxUnavailable, more than there are":       {"max 5", "rr", 2, "2/0/2, 2"},
		"maxUnavailable in percent is rounded up":   {"max 30%", "rrrrrrr", 7, "7/4/7, 3"},
		"maxUnavailable 0":                          {"max 0", "rr", 2, "2/2/2, 0"},
		"maxUnavailable while the owner grows":      {"max 1", "rr", 9, "2/8/9, 0"},
		"maxUnavailable when the owner wants none":  {"max 1", "rr", 0, "2/0/0, 0"},
		"neither is the same as none must be there": {"", "rr", 2, "2/0/2, 2"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed{budget: budget(c.spec), pods: pods(c.pods), scales: map[types.UID]int32{"u": c.scale}}
			s := decide(o, noon).budget.Status
			if got := fmt.Sprintf("%d/%d/%d, %d", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods, s.DisruptionsAllowed); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			cond := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
			want := metav1.Condition{Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}
			if s.DisruptionsAllowed > 0 {
				want = metav1.Condition{Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason}
			}
			if cond == nil || cond.Status != want.Status || cond.Reason != want.Reason || cond.ObservedGeneration != 3 || s.ObservedGeneration != 3 {
				t.Errorf("condition %+v, generation %d", cond, s.ObservedGeneration)
			}
			o.budget = decide(o, noon).budget
			if again := decide(o, noon.Add(time.Hour)); again.budget != nil || len(again.notices) != 0 {
				t.Errorf("written again: %+v", again)
			}
		})
	}
}

func TestEvictionsThatWereAllowed(t *testing.T) {
	b := budget("min 1")
	b.Status.DisruptedPods = map[string]metav1.Time{
		"a": {Time: noon.Add(-time.Minute)},      // may still show
		"b": {Time: noon.Add(-time.Minute)},      // shows: it is terminating
		"c": {Time: noon.Add(-3 * time.Minute)},  // failed
		"z": {Time: noon.Add(-10 * time.Second)}, // gone
	}
	p := decide(observed{budget: b, pods: pods("rtrr")}, noon)
	s := p.budget.Status
	if _, kept := s.DisruptedPods["a"]; len(s.DisruptedPods) != 1 || !kept || s.CurrentHealthy != 2 || s.DisruptionsAllowed != 1 {
		t.Errorf("status %+v", s)
	}
	if p.again <= time.Minute || p.again > time.Minute+time.Second {
		t.Errorf("looks again in %v", p.again)
	}
	if len(p.notices) != 1 || p.notices[0].reason != "NotDeleted" || p.notices[0].pod.Name != "c" || p.notices[0].message != "Pod was expected by PDB shop/web to be deleted but it wasn't" {
		t.Errorf("notices %+v", p.notices)
	}
	if s := decide(observed{budget: p.budget, pods: pods("rtrr")}, noon.Add(p.again)).budget.Status; len(s.DisruptedPods) != 0 || s.CurrentHealthy != 3 {
		t.Errorf("after two minutes: %+v", s)
	}
}

func TestWhatCannotBeToldAllowsNothing(t *testing.T) {
	b := budget("max 1")
	b.Status.DisruptionsAllowed, b.Status.CurrentHealthy = 2, 3
	p := decide(observed{budget: b, pods: pods("rrr"), failed: errors.New("no scale")}, noon)
	cond := meta.FindStatusCondition(p.budget.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if p.budget.Status.DisruptionsAllowed != 0 || cond == nil || cond.Reason != policyv1.SyncFailedReason || cond.Message != "no scale" {
		t.Errorf("status %+v", p.budget.Status)
	}
	if len(p.notices) != 1 || p.notices[0].reason != "CalculateExpectedPodCountFailed" {
		t.Errorf("notices %+v", p.notices)
	}
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

type world struct {
	failer
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newWorld(tb testing.TB, f failer) *world {
	w := &world{failer: f, st: storetest.Open(tb), now: noon}
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
	w.settle()
	return w
}

func (w *world) try(verb store.Verb, obj api.Object) error {
	_, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}})
	return err
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.Helper()
	if err := w.try(verb, obj); err != nil {
		w.Fatalf("%s %s: %v", verb, store.KeyOf(obj), err)
	}
	w.settle()
}

func (w *world) sync() {
	for {
		if more, err := w.st.Step(context.Background()); err != nil {
			w.Fatalf("step: %v", err)
		} else if !more {
			return
		}
	}
}

func (w *world) settle() {
	for w.sync(); w.loop.Step(context.Background()); w.sync() {
	}
}

func (w *world) status() policyv1.PodDisruptionBudgetStatus {
	return w.st.Get(store.KeyOf(budget(""))).(*policyv1.PodDisruptionBudget).Status
}

// The owners' replicas are found, of a Deployment through its ReplicaSet, and their
// change is seen.
func TestOwners(t *testing.T) {
	w := newWorld(t, t)
	five, three := int32(5), int32(3)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d", UID: "d"}, Spec: appsv1.DeploymentSpec{Replicas: &five}}
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "rs", UID: "rs", OwnerReferences: []metav1.OwnerReference{podset.Controller(d)}}, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}
	lone := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lone", UID: "lone"}, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "set", UID: "set"}} // one by default
	w.commit(store.Create, budget("max 2"))
	for _, obj := range []api.Object{d, rs, lone, set} {
		w.commit(store.Create, obj)
	}
	owners := []api.Object{rs, rs, lone, set}
	for i, p := range pods("rrrr") {
		p.OwnerReferences = []metav1.OwnerReference{podset.Controller(owners[i])}
		w.commit(store.Create, p)
	}
	if s := w.status(); s.ExpectedPods != 9 || s.DesiredHealthy != 7 || s.CurrentHealthy != 4 || s.DisruptionsAllowed != 0 {
		t.Fatalf("status %+v", s)
	}
	two := int32(2)
	d = w.st.Get(store.KeyOf(d)).(*appsv1.Deployment).DeepCopy()
	d.Spec.Replicas = &two
	w.commit(store.Update, d)
	if s := w.status(); s.ExpectedPods != 6 || s.DesiredHealthy != 4 {
		t.Fatalf("after scaling: %+v", s)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "job", UID: "job"}}
	w.commit(store.Create, job)
	p := pods("rrrrr")[4]
	p.OwnerReferences = []metav1.OwnerReference{podset.Controller(job)}
	w.commit(store.Create, p)
	cond := meta.FindStatusCondition(w.status().Conditions, policyv1.DisruptionAllowedCondition)
	if cond.Reason != policyv1.SyncFailedReason || cond.Message != "jobs.batch does not implement the scale subresource" {
		t.Errorf("condition %+v", cond)
	}
	w.commit(store.Delete, w.st.Get(store.KeyOf(p)))
	w.commit(store.Delete, w.st.Get(store.KeyOf(lone)))
	if cond := meta.FindStatusCondition(w.status().Conditions, policyv1.DisruptionAllowedCondition); cond.Reason != policyv1.SyncFailedReason || !strings.Contains(cond.Message, `found no controllers for pod "c"`) {
		t.Errorf("condition %+v", cond)
	}
}

func TestPodsWithoutAnOwnerAreTold(t *testing.T) {
	w := newWorld(t, t)
	w.commit(store.Create, budget("min 50%"))
	w.commit(store.Create, pods("r")[0])
	if s := w.status(); s.ExpectedPods != 0 || s.DisruptionsAllowed != 0 {
		t.Errorf("status %+v", s)
	}
	if !slices.ContainsFunc(w.st.List(api.Events(), "shop"), func(obj api.Object) bool { return obj.(*corev1.Event).Reason == "UnmanagedPods" }) {
		t.Error("no event UnmanagedPods")
	}
}

// evict is what the API server's eviction does, in its two writes; see
// server.TestEviction for the real one.
func evict(w *world, name string) (allowed bool) {
	get := func(key store.Key) api.Object {
		obj, _, err := w.st.GetAt(context.Background(), key, 0)
		if err != nil {
			return nil
		}
		return obj.DeepCopyObject().(api.Object)
	}
	b := get(store.KeyOf(budget(""))).(*policyv1.PodDisruptionBudget)
	if b.Status.ObservedGeneration < b.Generation || b.Status.DisruptionsAllowed < 1 {
		return false
	}
	b.Status.DisruptionsAllowed--
	enter(b, name, w.now)
	return w.try(store.Update, b) == nil
}

func enter(b *policyv1.PodDisruptionBudget, name string, now time.Time) {
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[name] = metav1.NewTime(now)
}

// TestDisruptionsNeverGoBelowMinAvailable lets evictions come at any time between
// the looks of a controller whose cache is behind, and nothing else break.
func TestDisruptionsNeverGoBelowMinAvailable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		least := rapid.IntRange(0, 4).Draw(rt, "minAvailable")
		w.commit(store.Create, budget(fmt.Sprintf("min %d", least)))
		next := 0
		add := func() {
			p := pods("r")[0]
			p.Name = fmt.Sprintf("p%03d", next)
			next++
			w.commitQuietly(store.Create, p)
		}
		for range rapid.IntRange(least, least+3).Draw(rt, "pods") {
			add()
		}
		allowed := map[string]bool{} // evictions that were allowed, not done yet
		live := func() (out []*corev1.Pod) {
			page, err := w.st.ListAt(context.Background(), api.Pods(), "shop", 0, 0, "")
			if err != nil {
				rt.Fatalf("list: %v", err)
			}
			for _, obj := range page.Objects {
				out = append(out, obj.(*corev1.Pod))
			}
			return out
		}
		healthy := func() (n int) {
			for _, p := range live() {
				if p.DeletionTimestamp == nil && !allowed[p.Name] {
					n++
				}
			}
			return n
		}
		rt.Repeat(map[string]func(*rapid.T){
			"evict": func(t *rapid.T) {
				var names []string
				for _, p := range live() {
					if p.DeletionTimestamp == nil && !allowed[p.Name] {
						names = append(names, p.Name)
					}
				}
				if len(names) == 0 {
					return
				}
				name := rapid.SampledFrom(names).Draw(t, "pod")
				if !evict(w, name) {
					return
				}
				allowed[name] = true
				if n := healthy(); n < least {
					t.Fatalf("%d pods are left, minAvailable is %d", n, least)
				}
			},
			"delete": func(t *rapid.T) { // the second half of an eviction
				for _, p := range live() {
					if allowed[p.Name] && p.DeletionTimestamp == nil {
						p = p.DeepCopy()
						p.DeletionTimestamp = &metav1.Time{Time: w.now}
						w.commitQuietly(store.Update, p)
						return
					}
				}
			},
			"gone": func(t *rapid.T) {
				for _, p := range live() {
					if p.DeletionTimestamp != nil {
						w.commitQuietly(store.Delete, p)
						return
					}
				}
			},
			"replace":    func(*rapid.T) { add() },
			"controller": func(*rapid.T) { w.loop.Step(context.Background()) },
			"cache": func(t *rapid.T) {
				if _, err := w.st.Step(context.Background()); err != nil {
					t.Fatalf("step: %v", err)
				}
			},
			"wait": func(*rapid.T) { w.now = w.now.Add(100 * time.Millisecond) }, // an eviction's two writes take less than two minutes
		})
	})
}

func (w *world) commitQuietly(verb store.Verb, obj api.Object) {
	w.Helper()
	if err := w.try(verb, obj); err != nil {
		w.Fatalf("%s %s: %v", verb, store.KeyOf(obj), err)
	}
}
