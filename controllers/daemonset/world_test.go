package daemonset

import (
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

func newWorld(tb testing.TB, f reconciletest.T, nodes ...string) *world {
	return newWorldOn(f, storetest.Open(tb), nodes...)
}

func newWorldOn(f reconciletest.T, st *store.Store, nodes ...string) *world {
	w := &world{World: reconciletest.New(f, st)}
	w.Picture = w.picture
	w.Run(New(Config{Store: w.Writer(), Fence: w.Fence, Now: w.Clock, Random: w.Random}))
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, n := range nodes {
		w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"name": n}}})
	}
	return w
}

func (w *world) set() *appsv1.DaemonSet {
	w.Helper()
	s, ok := w.Store.Get(store.Key{GroupResource: api.DaemonSets(), Namespace: "shop", Name: "logs"}).(*appsv1.DaemonSet)
	if !ok {
		w.Fatalf("there is no daemon set")
	}
	return s.DeepCopy()
}

// change changes the set as a commit would, and lets the controller work.
func (w *world) change(changes ...func(*appsv1.DaemonSet)) {
	w.Helper()
	s := w.set()
	for _, f := range changes {
		f(s)
	}
	s.Generation++
	w.Update(s)
	w.Settle()
}

func (w *world) node(name string, change func(*corev1.Node)) {
	w.Helper()
	n := w.Store.Get(store.Key{GroupResource: api.Nodes(), Name: name}).DeepCopyObject().(*corev1.Node)
	change(n)
	w.Update(n)
	w.Settle()
}

func taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func untaint(n *corev1.Node) { n.Spec.Taints = nil }

// pods are sorted by node and age.
func (w *world) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, obj := range w.Store.List(api.Pods(), "shop") {
		out = append(out, obj.(*corev1.Pod))
	}
	slices.SortStableFunc(out, func(a, b *corev1.Pod) int {
		if c := strings.Compare(nodeOf(a), nodeOf(b)); c != 0 {
			return c
		}
		return strings.Compare(image(a), image(b))
	})
	return out
}

func image(p *corev1.Pod) string { return p.Spec.Containers[0].Image }

func (w *world) on(node string) []*corev1.Pod {
	return slices.DeleteFunc(w.pods(), func(p *corev1.Pod) bool { return nodeOf(p) != node })
}

// running is a pod that its node runs, ready or not.
func (w *world) running(p *corev1.Pod, ready bool) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = nodeOf(p)
	p.Status.Phase = corev1.PodRunning
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now)}
	if ready {
		c.Status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{c}
	return p
}

// ready makes the pods of a node run and be ready, and those that are being
// deleted go, and lets the controller work.
func (w *world) ready(nodes ...string) {
	w.Helper()
	for _, n := range nodes {
		for _, p := range w.on(n) {
			switch {
			case p.DeletionTimestamp != nil:
				w.Commit(store.Op{Verb: store.Delete, Object: p})
			case !podset.Ready(p) && !podset.Terminal(p):
				w.Update(w.running(p, true))
			}
		}
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
			case podset.Terminal(p):
			case !podset.Ready(p) && !strings.HasPrefix(image(p), "bad"):
				w.Update(w.running(p, true))
			case p.Status.Phase == corev1.PodPending:
				w.Update(w.running(p, false))
			}
		}
		if w.Settle(); w.Store.Revision() == before {
			return
		}
	}
	w.Fatalf("it does not end: %s", w.picture())
}

// picture is the pods as node:image, with ! for one that is not ready, x for one
// that has ended, and - for one that is being deleted.
func (w *world) picture() string {
	var out []string
	for _, p := range w.pods() {
		s := nodeOf(p) + ":" + image(p)
		switch {
		case p.DeletionTimestamp != nil:
			s += "-"
		case podset.Terminal(p):
			s += "x"
		case !podset.Ready(p):
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

// seeStatus compares desired/current/ready/updated/available/unavailable/misscheduled.
func (w *world) seeStatus(want string) {
	w.Helper()
	s := w.set().Status
	if got := fmt.Sprintf("%d/%d/%d/%d/%d/%d/%d", s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable, s.NumberUnavailable, s.NumberMisscheduled); got != want {
		w.Fatalf("status is %s, want %s; pods %s", got, want, w.picture())
	}
}

func logs(changes ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	history, grace := int32(10), int64(30)
	s := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "logs", Annotations: map[string]string{"team": "red", api.AnnotationHash: "abc", appsv1.DeprecatedTemplateGeneration: "1"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "logs"}}, RevisionHistoryLimit: &history,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "logs"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "a"}}, TerminationGracePeriodSeconds: &grace},
			},
		},
	}
	limit("0", "1")(s)
	for _, f := range changes {
		f(s)
	}
	return s
}

func limit(surge, unavailable string) func(*appsv1.DaemonSet) {
	up, down := intstr.Parse(surge), intstr.Parse(unavailable)
	return func(s *appsv1.DaemonSet) {
		s.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &up, MaxUnavailable: &down}}
	}
}

func onDelete(s *appsv1.DaemonSet) {
	s.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
}

func of(image string) func(*appsv1.DaemonSet) {
	return func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.Containers[0].Image = image }
}

func nodeSelector(labels map[string]string) func(*appsv1.DaemonSet) {
	return func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.NodeSelector = labels }
}

// rolledOut is a set on nodes of which all pods are ready.
func rolledOut(t *testing.T, nodes []string, changes ...func(*appsv1.DaemonSet)) *world {
	t.Helper()
	w := newWorld(t, t, nodes...)
	w.Create(logs(changes...))
	w.work()
	return w
}

func three() []string { return []string{"n1", "n2", "n3"} }
