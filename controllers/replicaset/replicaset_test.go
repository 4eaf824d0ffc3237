package replicaset

import (
	"context"
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
	"pgregory.net/rapid"
)

type world struct{ *reconciletest.World }

func newWorld(tb testing.TB, f reconciletest.T) *world { return newWorldOn(f, storetest.Open(tb)) }

func newWorldOn(f reconciletest.T, st *store.Store) *world {
	w := &world{reconciletest.New(f, st)}
	w.Run(New(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock, Random: w.Random}))
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return w
}

func (w *world) settle() {
	w.Helper()
	for range 1000 {
		w.Sync()
		if w.Loop.Step(context.Background()) {
			continue
		}
		next := w.Loop.Next()
		if next.IsZero() || next.Sub(w.Now) > 100*time.Millisecond {
			return
		}
		w.Now = next // a retry
	}
	w.Fatalf("the controller does not come to rest")
}

func (w *world) do(verb store.Verb, obj api.Object) {
	w.Helper()
	if _, err := w.Store.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.Fatalf("%s: %v", verb, err)
	}
}

func (w *world) set() *appsv1.ReplicaSet {
	return w.Store.Get(store.Key{GroupResource: api.ReplicaSets(), Namespace: "shop", Name: "web"}).(*appsv1.ReplicaSet).DeepCopy()
}

func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, obj := range w.Store.List(api.Pods(), "shop") {
		out = append(out, obj.(*corev1.Pod).DeepCopy())
	}
	return out
}

func (w *world) ready(p *corev1.Pod) {
	p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.Now)}}
	w.do(store.Update, p)
	w.Sync()
}

func web(replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "hello:1"}}}}}}
}

func TestFiftyPodsInOneTransaction(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(50))
	w.settle()
	if w.Commits != 1 || len(w.pods()) != 50 {
		t.Fatalf("%d pods in %d transactions", len(w.pods()), w.Commits)
	}
	st := w.set().Status
	if st.Replicas != 50 || st.FullyLabeledReplicas != 50 || st.ReadyReplicas != 0 || st.ObservedGeneration != 1 || *st.TerminatingReplicas != 0 {
		t.Errorf("status %+v", st)
	}
	if n := len(w.Events("shop", "SuccessfulCreate")); n != 25 {
		t.Errorf("%d events, want the bound of 25", n)
	}
}

func TestLargeSetsGoInBoundedTransactions(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(250))
	w.settle()
	if len(w.pods()) != 250 || w.Commits != 3 {
		t.Fatalf("%d pods in %d transactions, want 250 in 3", len(w.pods()), w.Commits)
	}
	rs := w.set()
	*rs.Spec.Replicas = 10
	w.do(store.Update, rs)
	w.settle()
	if len(w.pods()) != 10 {
		t.Fatalf("%d pods, want 10", len(w.pods()))
	}
}

func TestStatusFollowsThePods(t *testing.T) {
	w := newWorld(t, t)
	rs := web(2)
	rs.Spec.MinReadySeconds = 10
	w.Create(rs)
	w.settle()
	w.ready(w.pods()[0])
	w.settle()
	if st := w.set().Status; st.ReadyReplicas != 1 || st.AvailableReplicas != 0 {
		t.Errorf("status %+v", st)
	}
	w.Now = w.Loop.Next()
	w.settle()
	if st := w.set().Status; st.AvailableReplicas != 1 {
		t.Errorf("status %+v after minReadySeconds", st)
	}
	before := w.Commits
	w.Loop.Wake(store.KeyOf(rs))
	if w.settle(); w.Commits != before {
		t.Error("a settled set is written again")
	}
}

func TestPodsThatEndedAreReplacedAndKept(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(2))
	w.settle()
	p := w.pods()[0]
	p.Status.Phase = corev1.PodFailed
	w.do(store.Update, p)
	w.settle()
	if len(w.pods()) != 3 || w.set().Status.Replicas != 2 {
		t.Errorf("%d pods, status %+v", len(w.pods()), w.set().Status)
	}
}

// Pods that their node rejects are replaced with a back-off, as one that names a node
// without room would fill the store otherwise.
func TestRejectedPodsAreReplacedWithBackOff(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(1))
	w.settle()
	for n, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		for _, p := range w.pods() {
			if p.Status.Phase != corev1.PodFailed {
				p.Spec.NodeName, p.Status.Phase, p.Status.Reason = "n1", corev1.PodFailed, "OutOfcpu"
				w.do(store.Update, p)
			}
		}
		w.settle()
		if len(w.pods()) != n+1 {
			t.Fatalf("%d pods at once after %d rejections", len(w.pods()), n+1)
		}
		w.Now = w.Now.Add(wait)
		w.settle()
		if len(w.pods()) != n+2 {
			t.Fatalf("%d pods in the end after %d rejections", len(w.pods()), n+1)
		}
	}
}

func TestBoundPodsAreMarkedOthersGo(t *testing.T) {
	w := newWorld(t, t)
	w.Create(web(3))
	w.settle()
	w.ready(w.pods()[0])
	rs := w.set()
	*rs.Spec.Replicas = 0
	w.do(store.Update, rs)
	w.settle()
	pods := w.pods()
	if len(pods) != 1 || pods[0].DeletionTimestamp == nil {
		t.Fatalf("%d pods, want the bound one, marked", len(pods))
	}
	if st := w.set().Status; st.Replicas != 0 || *st.TerminatingReplicas != 1 {
		t.Errorf("status %+v", st)
	}
	if n := len(w.Events("shop", "SuccessfulDelete")); n != 3 {
		t.Errorf("%d events", n)
	}
}

func TestAdoptionAndRelease(t *testing.T) {
	w := newWorld(t, t)
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orphan", Labels: map[string]string{"app": "web"}}}
	w.Create(orphan)
	w.Create(web(2))
	w.settle()
	pods := w.pods()
	if len(pods) != 2 || !metav1.IsControlledBy(pods[0], w.set()) {
		t.Fatalf("%d pods, owners of the first %v", len(pods), pods[0].OwnerReferences)
	}
	p := w.pods()[1]
	p.Labels = map[string]string{"app": "debug"}
	w.do(store.Update, p)
	w.settle()
	i := slices.IndexFunc(w.pods(), func(q *corev1.Pod) bool { return q.Name == p.Name })
	if len(w.pods()) != 3 || len(w.pods()[i].OwnerReferences) != 0 {
		t.Errorf("%d pods, owners of the released %v", len(w.pods()), w.pods()[i].OwnerReferences)
	}
	late := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late", Labels: map[string]string{"app": "web"}}}
	w.Create(late)
	w.settle()
	if st := w.set().Status; st.Replicas != 2 || len(w.pods()) != 3 {
		t.Errorf("%d replicas and %d pods after a late orphan, want 2 and 3", st.Replicas, len(w.pods()))
	}
}

func TestADeploymentsSetIsLeftAlone(t *testing.T) {
	w := newWorld(t, t)
	rs := web(2)
	rs.OwnerReferences = []metav1.OwnerReference{podset.Controller(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}})}
	w.Create(rs)
	w.settle()
	if w.Commits != 0 || len(w.pods()) != 0 {
		t.Errorf("%d transactions, %d pods", w.Commits, len(w.pods()))
	}
}

func TestRefusedPodsAreTold(t *testing.T) {
	w := newWorld(t, t)
	rs := web(2)
	rs.Namespace = "nowhere"
	w.Create(rs)
	w.settle()
	got := w.Store.Get(store.KeyOf(rs)).(*appsv1.ReplicaSet)
	if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Reason != "FailedCreate" || !strings.Contains(got.Status.Conditions[0].Message, "nowhere") {
		t.Fatalf("conditions %+v", got.Status.Conditions)
	}
	if w.Loop.Next().IsZero() {
		t.Error("it is not tried again")
	}
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}})
	w.Now = w.Loop.Next()
	w.settle()
	if got := w.Store.Get(store.KeyOf(rs)).(*appsv1.ReplicaSet); len(got.Status.Conditions) != 0 || got.Status.Replicas != 2 {
		t.Errorf("status %+v", got.Status)
	}
}

// TestNeverTooMany lets pods end, go, be orphaned and adopted in any order with
// the cache behind: no transaction creates a pod beyond what the set asks for, and
// at the end there are exactly as many.
func TestNeverTooMany(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rt)
		want := rapid.IntRange(0, 5).Draw(rt, "replicas")
		w.Create(web(int32(want)))
		live := func() []*corev1.Pod {
			page, err := w.Store.ListAt(context.Background(), api.Pods(), "shop", 0, 0, "")
			if err != nil {
				rt.Fatalf("list: %v", err)
			}
			var out []*corev1.Pod
			for _, obj := range page.Objects {
				out = append(out, obj.(*corev1.Pod))
			}
			return out
		}
		w.After = func(t store.Txn) {
			creates, n := 0, 0
			for _, op := range t.Ops {
				if _, ok := op.Object.(*corev1.Pod); ok && op.Verb == store.Create {
					creates++
				}
			}
			for _, p := range live() {
				if podset.Active(p) && len(p.OwnerReferences) > 0 {
					n++
				}
			}
			if creates > 0 && n > want {
				rt.Errorf("%d pods created, now %d, %d wanted", creates, n, want)
			}
		}
		onPod := func(do func(*corev1.Pod)) func(*rapid.T) {
			return func(t *rapid.T) {
				if pods := live(); len(pods) > 0 {
					do(pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")])
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"controller": func(*rapid.T) { w.Loop.Step(context.Background()) },
			"cache": func(t *rapid.T) {
				if _, err := w.Store.Step(context.Background()); err != nil {
					t.Fatalf("step: %v", err)
				}
			},
			"ends": onPod(func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodSucceeded
				w.do(store.Update, p)
			}),
			"goes":    onPod(func(p *corev1.Pod) { w.do(store.Delete, p) }),
			"is lost": onPod(func(p *corev1.Pod) { p.OwnerReferences = nil; w.do(store.Update, p) }),
		})
		w.settle()
		n := 0
		for _, p := range live() {
			if podset.Active(p) {
				n++
			}
		}
		if n != want || int(w.set().Status.Replicas) != want {
			rt.Fatalf("%d active pods and status %+v, want %d", n, w.set().Status, want)
		}
	})
}
