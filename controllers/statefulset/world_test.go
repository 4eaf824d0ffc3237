package statefulset

import (
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// world is one with this controller.
type world struct {
	*reconciletest.World
	c *controller
}

func newWorld(tb testing.TB, f reconciletest.T) *world { return newWorldOn(f, storetest.Open(tb)) }

func newWorldOn(f reconciletest.T, st *store.Store) *world {
	w := &world{World: reconciletest.New(f, st)}
	w.Picture = w.picture
	w.c = newController(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock})
	w.Run(w.c.loop())
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return w
}

func (w *world) set() *appsv1.StatefulSet {
	w.Helper()
	s, ok := w.Store.Get(store.Key{GroupResource: api.StatefulSets(), Namespace: "shop", Name: "db"}).(*appsv1.StatefulSet)
	if !ok {
		w.Fatalf("there is no stateful set")
	}
	return s.DeepCopy()
}

// change changes the set as a commit would, and lets the controller work.
func (w *world) change(changes ...func(*appsv1.StatefulSet)) {
	w.Helper()
	s := w.set()
	for _, f := range changes {
		f(s)
	}
	s.Generation++
	w.Update(s)
	w.Settle()
}

func (w *world) pod(ordinal int) *corev1.Pod {
	p, _ := w.Store.Get(store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: fmt.Sprintf("db-%d", ordinal)}).(*corev1.Pod)
	return p
}

func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, obj := range w.Store.List(api.Pods(), "shop") {
		out = append(out, obj.(*corev1.Pod))
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		x, _ := ordinalOf("db", a.Name)
		y, _ := ordinalOf("db", b.Name)
		return x - y
	})
	return out
}

func (w *world) revisions() []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, obj := range w.Store.List(api.ControllerRevisions(), "shop") {
		out = append(out, obj.(*appsv1.ControllerRevision))
	}
	podset.SortRevisions(out)
	return out
}

// run makes a pod run on a node and be ready, or ready no more.
func (w *world) run(p *corev1.Pod, ready bool) {
	w.Helper()
	if p == nil {
		w.Fatalf("there is no such pod: %s", w.picture())
	}
	w.Update(w.running(p, ready))
}

func (w *world) running(p *corev1.Pod, ready bool) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = "n1"
	p.Status.Phase = corev1.PodRunning
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now)}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{c}
	return p
}

// isGone plays the agent that has stopped a pod that is being deleted.
func (w *world) isGone(ordinal int) {
	w.Helper()
	p := w.pod(ordinal)
	if p == nil || p.DeletionTimestamp == nil {
		w.Fatalf("db-%d is not being deleted: %s", ordinal, w.picture())
	}
	w.Commit(store.Op{Verb: store.Delete, Object: p})
	w.Settle()
}

// ready makes pods run and be ready, and lets the controller work.
func (w *world) ready(ordinals ...int) {
	w.Helper()
	for _, n := range ordinals {
		w.run(w.pod(n), true)
		w.Settle()
	}
}

// work plays the nodes until nothing changes: pods of good images get ready and
// deleted ones go.
func (w *world) work() {
	w.Helper()
	for range 200 {
		w.Settle()
		before := w.Store.Revision()
		for _, p := range w.pods() {
			switch {
			case p.DeletionTimestamp != nil:
				w.Commit(store.Op{Verb: store.Delete, Object: p})
			case podset.Active(p) && !podset.Ready(p) && !strings.HasPrefix(p.Spec.Containers[0].Image, "bad"):
				w.run(p, true)
			case p.Status.Phase == corev1.PodPending:
				w.run(p, false)
			}
		}
		if w.Settle(); w.Store.Revision() == before {
			return
		}
	}
	w.Fatalf("it does not end: %s", w.picture())
}

// picture is the pods as ordinal:image, with ! for one that is not ready, and - for
// one that is being deleted.
func (w *world) picture() string {
	var out []string
	for _, p := range w.pods() {
		n, _ := ordinalOf("db", p.Name)
		s := fmt.Sprintf("%d:%s", n, p.Spec.Containers[0].Image)
		switch {
		case p.DeletionTimestamp != nil:
			s += "-"
		case !podset.Ready(p) || podset.Terminal(p):
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (w *world) see(want string) {
	w.Helper()
	if got := w.picture(); got != want {
		w.Fatalf("pods are %q, want %q", got, want)
	}
}

func db(replicas int32, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	history, grace, partition, one := int32(10), int64(30), int32(0), intstr.FromInt32(1)
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Annotations: map[string]string{"team": "red", api.AnnotationSource: "main", api.AnnotationHash: "abc"}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, ServiceName: "peers",
			PodManagementPolicy: appsv1.OrderedReadyPodManagement, RevisionHistoryLimit: &history,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "a"}}, TerminationGracePeriodSeconds: &grace},
			},
		},
	}
	for _, f := range changes {
		f(s)
	}
	return s
}

func image(name string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = name }
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n }
}

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func partition(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}

func maxUnavailable(v string) func(*appsv1.StatefulSet) {
	n := intstr.Parse(v)
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &n }
}

func retain(whenDeleted, whenScaled string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}}
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(whenDeleted), WhenScaled: appsv1.PersistentVolumeClaimRetentionPolicyType(whenScaled)}
	}
}

// rolledOut is a set of which all pods are ready.
func rolledOut(t *testing.T, n int32, changes ...func(*appsv1.StatefulSet)) *world {
	t.Helper()
	w := newWorld(t, t)
	w.Create(db(n, changes...))
	w.work()
	return w
}

// later lets time pass, and the controller work.
func (w *world) later(d time.Duration) {
	w.Helper()
	w.Now = w.Now.Add(d)
	w.Settle()
}
