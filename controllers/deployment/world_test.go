package deployment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile/reconciletest"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// world is one with this controller.
type world struct {
	*reconciletest.World
}

func newWorld(tb testing.TB, f reconciletest.T) *world { return newWorldOn(f, storetest.Open(tb)) }

func newWorldOn(f reconciletest.T, st *store.Store) *world {
	w := &world{reconciletest.New(f, st)}
	w.Picture = w.picture
	w.Run(New(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock, Random: w.Random}))
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return w
}

func (w *world) deployment() *appsv1.Deployment {
	w.Helper()
	d, ok := w.Store.Get(store.Key{GroupResource: api.Deployments(), Namespace: "shop", Name: "web"}).(*appsv1.Deployment)
	if !ok {
		w.Fatalf("there is no deployment")
	}
	return d.DeepCopy()
}

// change changes the deployment as a commit would.
func (w *world) change(f func(*appsv1.Deployment)) {
	w.Helper()
	d := w.deployment()
	f(d)
	d.Generation++
	w.Update(d)
}

func (w *world) sets() []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, obj := range w.Store.List(api.ReplicaSets(), "shop") {
		out = append(out, obj.(*appsv1.ReplicaSet))
	}
	slices.SortStableFunc(out, func(a, b *appsv1.ReplicaSet) int { return int(revisionOf(a) - revisionOf(b)) })
	return out
}

func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, obj := range w.Store.List(api.Pods(), "shop") {
		out = append(out, obj.(*corev1.Pod))
	}
	return out
}

// run makes a pod run and be ready, or ready no more.
func (w *world) run(p *corev1.Pod, ready bool) {
	p = p.DeepCopy()
	p.Spec.NodeName = "n1"
	p.Status.Phase = corev1.PodRunning
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now)}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{c}
	w.Update(p)
}

// end makes a pod end, or go if it is being deleted.
func (w *world) end(p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		w.Commit(store.Op{Verb: store.Delete, Object: p})
		return
	}
	p = p.DeepCopy()
	p.Status.Phase = corev1.PodFailed
	w.Update(p)
}

// work plays the nodes until nothing changes: pods get ready and deleted ones go.
func (w *world) work() {
	w.Helper()
	for range 200 {
		w.Settle()
		before := w.Store.Revision()
		for _, p := range w.pods() {
			switch {
			case p.DeletionTimestamp != nil:
				w.end(p)
			case podset.Active(p) && !podset.Ready(p):
				w.run(p, true)
			}
		}
		if w.Settle(); w.Store.Revision() == before {
			return
		}
	}
	w.Fatalf("the rollout does not end: %s", w.picture())
}

// picture is the sets as revision:size/active/available.
func (w *world) picture() string {
	var out []string
	for _, rs := range w.sets() {
		active, available := 0, 0
		for _, p := range w.pods() {
			if !metav1.IsControlledBy(p, rs) || !podset.Active(p) {
				continue
			}
			active++
			if ok, _ := podset.Available(p, rs.Spec.MinReadySeconds, w.Now); ok {
				available++
			}
		}
		out = append(out, fmt.Sprintf("%d:%d/%d/%d", revisionOf(rs), *rs.Spec.Replicas, active, available))
	}
	return strings.Join(out, " ")
}

func (w *world) see(want string) {
	w.Helper()
	if got := w.picture(); got != want {
		w.Fatalf("sets are %s, want %s", got, want)
	}
}

func (w *world) progressing(reason string) {
	w.Helper()
	c := condition(w.deployment().Status.Conditions, appsv1.DeploymentProgressing)
	if c == nil || c.Reason != reason {
		w.Fatalf("condition Progressing is %+v, want reason %s", c, reason)
	}
}

func web(replicas int32, surge, unavailable string) *appsv1.Deployment {
	up, down, history, deadline := intstr.Parse(surge), intstr.Parse(unavailable), int32(2), int32(600)
	grace := int64(30)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"team": "red", api.AnnotationSource: "main", api.AnnotationHash: "abc"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Strategy:             appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &up, MaxUnavailable: &down}},
			RevisionHistoryLimit: &history, ProgressDeadlineSeconds: &deadline,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "hello:1"}}, TerminationGracePeriodSeconds: &grace},
			},
		},
	}
}

func image(name string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = name }
}

func replicas(n int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = &n }
}

// livePods are the pods as the backend has them, which the cache may not show yet.
func (w *world) livePods() []*corev1.Pod {
	page, err := w.Store.ListAt(context.Background(), api.Pods(), "shop", 0, 0, "")
	if err != nil {
		w.Fatalf("list pods: %v", err)
	}
	var out []*corev1.Pod
	for _, obj := range page.Objects {
		out = append(out, obj.(*corev1.Pod))
	}
	return out
}

// try commits without making the cache catch up.
func (w *world) try(op store.Op) {
	w.Helper()
	if _, err := w.Store.Commit(context.Background(), store.Txn{Ops: []store.Op{op}}); err != nil {
		w.Fatalf("commit: %v", err)
	}
}

func (w *world) blind(obj api.Object) { w.try(store.Op{Verb: store.Update, Object: obj}) }

// status makes a live pod run, ready or not.
func (w *world) status(p *corev1.Pod, ready bool) {
	if !podset.Active(p) {
		return
	}
	p.Spec.NodeName = "n1"
	p.Status.Phase = corev1.PodRunning
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now)}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{c}
	w.blind(p)
}
