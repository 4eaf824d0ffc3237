package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
)

// world is a store in which a test plays the Deployment controller and the nodes, and
// the controller's loop runs by the bubble's clock.
type world struct {
	t    *testing.T
	st   *store.Store
	stop func() // of the loop
	made int    // pods
}

func open(t *testing.T) *world {
	w := &world{t: t, st: store.New(memory.New(), store.Options{Seal: storetest.SealKey()})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if err := w.st.Load(ctx); err != nil {
		t.Fatal(err)
	}
	var loop *reconcile.Loop
	loop, w.stop = w.lead(store.Fence{})
	w.st.OnEvents(func(e []store.Event) { loop.Handle(e) })
	go func() { done <- w.st.Run(ctx) }()
	t.Cleanup(func() {
		w.stop()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return w
}

// lead runs a controller of its own, as a server that has just been elected.
func (w *world) lead(fence store.Fence) (*reconcile.Loop, func()) {
	loop := New(Config{Store: w.st, Fence: func() store.Fence { return fence }, Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	return loop, func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if verb == store.Create {
		store.Stamp(obj, time.Now())
	}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func get[T api.Object](w *world, obj T) (none T) {
	w.t.Helper()
	found, _, err := w.st.GetAt(context.Background(), store.KeyOf(obj), 0)
	if errors.Is(err, store.ErrNotFound) {
		return none
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return found.(T)
}

func deployment(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
}

func (w *world) replicas() int32 { w.t.Helper(); return *get(w, deployment(0)).Spec.Replicas }

func (w *world) autoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	w.t.Helper()
	return get(w, want(50, 1, 1))
}

// follow has as many pods as the Deployment wants, all old enough.
func (w *world) follow() {
	w.t.Helper()
	want := int(w.replicas())
	list := w.st.List(api.Pods(), "default")
	for i := len(list); i < want; i++ {
		w.made++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", w.made), UID: types.UID(fmt.Sprintf("uid-%d", w.made)), Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: []string{"n1", "n2"}[w.made%2], Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr(metav1.NewTime(time.Now().Add(-time.Hour))),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}}}
		w.commit(store.Create, p)
	}
	for i := want; i < len(list); i++ {
		w.commit(store.Delete, list[i])
	}
}

// measure has both nodes tell that each pod uses so many millicores.
func (w *world) measure(millis int64) {
	w.t.Helper()
	for _, node := range []string{"n1", "n2"} {
		r := &api.NodeFigures{ObjectMeta: metav1.ObjectMeta{Name: node}}
		verb := store.Create
		if live := get(w, r); live != nil {
			r, verb = live.DeepCopyObject().(*api.NodeFigures), store.Update
		}
		r.Time, r.Received, r.Pods = metav1.NewMicroTime(time.Now()), metav1.NewMicroTime(time.Now()), nil
		for _, pod := range w.st.OnNode(node) {
			r.Pods = append(r.Pods, api.PodFigures{UID: pod.UID, Millis: 15000, Containers: []api.ContainerFigures{{Name: "main", CPU: millis * 1_000_000}}})
		}
		w.commit(verb, r)
	}
}

// round is a period in which each pod uses so much.
func (w *world) round(millis int64) {
	w.t.Helper()
	w.follow()
	w.measure(millis)
	time.Sleep(Period)
	synctest.Wait()
}

func (w *world) events() string {
	var out []string
	for _, obj := range w.st.List(api.Events(), "default") {
		e := obj.(*corev1.Event)
		out = append(out, fmt.Sprintf("%s %s: %s", e.InvolvedObject.Kind, e.Reason, e.Message))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestScalesUpAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.commit(store.Create, deployment(2))
		w.commit(store.Create, want(50, 1, 10))
		if c := condition(w.autoscaler().Status.Conditions, autoscalingv2.ScalingActive); c == nil || c.Status != corev1.ConditionFalse {
			t.Errorf("without pods: %+v", c)
		}
		w.round(100)
		if w.replicas() != 4 {
			t.Fatalf("%d replicas at twice the use, want 4", w.replicas())
		}
		d := get(w, deployment(0))
		if d.Generation != 2 {
			t.Errorf("generation %d: who works the Deployment does not see it", d.Generation)
		}
		a := w.autoscaler()
		if a.Status.CurrentReplicas != 2 || a.Status.DesiredReplicas != 4 || a.Status.LastScaleTime == nil || *a.Status.CurrentMetrics[0].Resource.Current.AverageUtilization != 100 {
			t.Errorf("status %+v", a.Status)
		}
		w.round(50)
		if a = w.autoscaler(); a.Status.CurrentReplicas != 4 || a.Status.DesiredReplicas != 4 || w.replicas() != 4 {
			t.Errorf("at rest: %+v", a.Status)
		}
		began := time.Now()
		for w.replicas() == 4 {
			w.round(10)
			if time.Since(began) > time.Hour {
				t.Fatal("never scales down")
			}
		}
		if held := time.Since(began); held < 285*time.Second || held > 330*time.Second || w.replicas() != 1 {
			t.Errorf("down to %d after %s, want 1 after the window of 300 s", w.replicas(), held)
		}
		if got := w.events(); !strings.Contains(got, "HorizontalPodAutoscaler SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target") ||
			!strings.Contains(got, "SuccessfulRescale: New size: 1; reason: All metrics below target") {
			t.Errorf("events\n%s", got)
		}
	})
}

// An idle autoscaler writes nothing, and its own status does not wake it.
func TestAtRestNothingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.commit(store.Create, deployment(2))
		w.commit(store.Create, want(50, 1, 10))
		w.round(50)
		w.round(50)
		before := w.autoscaler().ResourceVersion
		for range 5 {
			w.round(50)
		}
		if after := w.autoscaler().ResourceVersion; after != before {
			t.Errorf("written at rest: %s, then %s", before, after)
		}
	})
}

// Figures of a node that fell silent count for a minute and not longer.
func TestOldFiguresAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.commit(store.Create, deployment(2))
		w.commit(store.Create, want(50, 1, 10))
		w.round(50)
		active := func() corev1.ConditionStatus {
			return condition(w.autoscaler().Status.Conditions, autoscalingv2.ScalingActive).Status
		}
		if active() != corev1.ConditionTrue {
			t.Fatalf("%+v", w.autoscaler().Status.Conditions)
		}
		time.Sleep(2 * Period)
		synctest.Wait()
		if active() != corev1.ConditionTrue {
			t.Error("half a minute is too old")
		}
		time.Sleep(3 * Period)
		synctest.Wait()
		if active() != corev1.ConditionFalse || w.replicas() != 2 {
			t.Errorf("after more than a minute: %+v", w.autoscaler().Status.Conditions)
		}
		if n := strings.Count(w.events(), "FailedComputeMetricsReplicas"); n != 2 {
			t.Errorf("told %d times, want once before the first figures and once now:\n%s", n, w.events())
		}
	})
}

// R4: a deposed leader scales nothing. The next one knows what the policies count, and
// does not scale down before a window of its own has passed.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.stop()
		w.commit(store.Create, deployment(2))
		a := want(50, 1, 20)
		a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp:   rules(biggest, 0, pods(2, 120)),
			ScaleDown: rules(biggest, 60, percent(100, 15)),
		}
		w.commit(store.Create, a)
		ctx := context.Background()
		first, err := w.st.Elect(ctx, "s1", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_, stopFirst := w.lead(first.Fence)
		w.round(900)
		if w.replicas() != 4 {
			t.Fatalf("%d replicas, want 2 more", w.replicas())
		}
		if err := first.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		second, err := w.st.Elect(ctx, "s2", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(120 * time.Second) // nobody's period any more
		w.round(900)
		if w.replicas() != 4 {
			t.Fatalf("a deposed leader has scaled to %d", w.replicas())
		}
		stopFirst()
		_, w.stop = w.lead(second.Fence)
		synctest.Wait()
		if w.replicas() != 6 {
			t.Fatalf("%d replicas under a new leader, want 6", w.replicas())
		}
		w.stop()
		_, w.stop = w.lead(second.Fence)
		w.round(900)
		if w.replicas() != 6 {
			t.Errorf("%d replicas: a new leader has forgotten what the last one did within the period", w.replicas())
		}
		w.stop()
		w.follow()
		w.measure(1)
		_, w.stop = w.lead(second.Fence)
		began := time.Now()
		for w.replicas() == 6 && time.Since(began) < time.Hour {
			w.round(1)
		}
		if held := time.Since(began); held < 60*time.Second || held > 90*time.Second {
			t.Errorf("a new leader scales down after %s, want its own window of 60 s", held)
		}
		if err := second.Resign(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// Two autoscalers of the same pods: neither scales, and both say why.
func TestTwoAutoscalersOfTheSamePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.commit(store.Create, deployment(2))
		w.commit(store.Create, want(50, 1, 10))
		other := want(70, 1, 10)
		other.Name, other.UID = "second", "second"
		w.commit(store.Create, other)
		w.round(100)
		for _, a := range []*autoscalingv2.HorizontalPodAutoscaler{w.autoscaler(), get(w, other)} {
			if c := condition(a.Status.Conditions, autoscalingv2.ScalingActive); c.Reason != "AmbiguousSelector" {
				t.Errorf("%s: %+v", a.Name, c)
			}
		}
		if w.replicas() != 2 {
			t.Errorf("%d replicas", w.replicas())
		}
	})
}

// Every kind that has replicas is scaled, and what is none is told.
func TestTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		nine, meta := int32(9), metav1.ObjectMeta{Namespace: "default", Name: "web"}
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		for kind, target := range map[string]api.Object{
			"apps/v1 Deployment":       &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &nine, Selector: selector}},
			"apps/v1 ReplicaSet":       &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &nine, Selector: selector}},
			"apps/v1 StatefulSet":      &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &nine, Selector: selector}},
			"v1 ReplicationController": &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &nine, Selector: selector.MatchLabels}},
			"apps/v1 DaemonSet":        nil,
			"v1 Deployment":            nil,
		} {
			version, name, _ := strings.Cut(kind, " ")
			a := want(50, 1, 5)
			a.UID = ""
			a.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: version, Kind: name, Name: "web"}
			if target != nil {
				w.commit(store.Create, target)
			}
			w.commit(store.Create, a)
			able := condition(w.autoscaler().Status.Conditions, autoscalingv2.AbleToScale)
			if target == nil {
				if able.Status != corev1.ConditionFalse || able.Reason != "FailedGetScale" || !strings.Contains(able.Message, fmt.Sprintf("no matches for kind %q in version %q", name, version)) {
					t.Errorf("%s: %+v", kind, able)
				}
			} else {
				scale, err := api.ScaleOf(get(w, target))
				if err != nil || scale.Replicas != 5 || able.Reason != "SucceededRescale" {
					t.Errorf("%s: %+v, %+v, %v", kind, scale, able, err)
				}
			}
			w.commit(store.Delete, w.autoscaler())
		}
	})
}
