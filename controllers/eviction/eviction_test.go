package eviction

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }

func evicts(key string, since *metav1.Time) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: since}
}

func tolerates(key string, seconds ...int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

// TestDeadline holds deadline against
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.
func TestDeadline(t *testing.T) {
	const never = -time.Hour
	soft := corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		bound       time.Duration
		want        time.Duration // after noon, which is now
	}{
		"no taint":                             {want: never},
		"a taint that does not evict":          {taints: []corev1.Taint{soft}, want: never},
		"not tolerated":                        {taints: []corev1.Taint{evicts("a", at(-time.Hour))}, want: 0},
		"another is tolerated":                 {taints: []corev1.Taint{evicts("a", at(0))}, tolerations: []corev1.Toleration{tolerates("b")}, want: 0},
		"tolerated for ever":                   {taints: []corev1.Taint{evicts("a", at(-time.Hour))}, tolerations: []corev1.Toleration{tolerates("a")}, want: never},
		"everything is":                        {taints: []corev1.Taint{evicts("a", at(-time.Hour))}, tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, want: never},
		"tolerated for 300 s":                  {taints: []corev1.Taint{evicts("a", at(0))}, tolerations: []corev1.Toleration{tolerates("a", 300)}, want: 300 * time.Second},
		"tolerated for as long as can be said": {taints: []corev1.Taint{evicts("a", at(0))}, tolerations: []corev1.Toleration{tolerates("a", math.MaxInt64)}, want: api.LongestTime},
		"since before this leader":             {taints: []corev1.Taint{evicts("a", at(-100*time.Second))}, tolerations: []corev1.Toleration{tolerates("a", 300)}, want: 200 * time.Second},
		"since before the pod came":            {taints: []corev1.Taint{evicts("a", at(-100*time.Second))}, tolerations: []corev1.Toleration{tolerates("a", 300)}, bound: -time.Second, want: 299 * time.Second},
		"nobody says since when":               {taints: []corev1.Taint{evicts("a", nil)}, tolerations: []corev1.Toleration{tolerates("a", 300)}, want: 300 * time.Second},
		"zero and less are at once":            {taints: []corev1.Taint{evicts("a", at(0))}, tolerations: []corev1.Toleration{tolerates("a", -5)}, want: 0},
		"the shortest of two":                  {taints: []corev1.Taint{evicts("a", at(0)), evicts("b", at(0))}, tolerations: []corev1.Toleration{tolerates("a", 300), tolerates("b", 20)}, want: 20 * time.Second},
		"one for ever, one for a time":         {taints: []corev1.Taint{evicts("a", at(0)), evicts("b", at(0))}, tolerations: []corev1.Toleration{tolerates("a"), tolerates("b", 20)}, want: 20 * time.Second},
		"one tolerated, one not":               {taints: []corev1.Taint{evicts("a", at(0)), evicts("b", at(0))}, tolerations: []corev1.Toleration{tolerates("a")}, want: 0},
		"the first of two for one taint":       {taints: []corev1.Taint{evicts("a", at(0))}, tolerations: []corev1.Toleration{tolerates("a", 10), tolerates("a", 300)}, want: 10 * time.Second},
		"a toleration of another effect":       {taints: []corev1.Taint{evicts("a", at(0))}, tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, want: 0},
		"a value that is not the taint's":      {taints: []corev1.Taint{{Key: "a", Value: "x", Effect: corev1.TaintEffectNoExecute}}, tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpEqual, Value: "y"}}, want: 0},
		"the automatic ones, a lost node":      {taints: []corev1.Taint{evicts(corev1.TaintNodeUnreachable, at(0))}, tolerations: admission.MissingTolerations(nil), want: 300 * time.Second},
		"the automatic ones, out of service":   {taints: []corev1.Taint{evicts(corev1.TaintNodeOutOfService, at(0))}, tolerations: admission.MissingTolerations(nil), want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.tolerations}}
			pod.CreationTimestamp = *at(-24 * time.Hour)
			if c.bound != 0 {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: *at(c.bound)}}
			}
			got := never
			if when, goes := deadline(pod, noExecute(&corev1.Node{Spec: corev1.NodeSpec{Taints: c.taints}}), noon); goes {
				got = when.Sub(noon)
			}
			if got != c.want {
				t.Errorf("goes after %v, want %v", got, c.want)
			}
		})
	}
}

type world struct {
	*testing.T
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, st: storetest.Open(t), now: noon}
	w.lead()
	return w
}

// lead starts a new leader's controller.
func (w *world) lead() {
	w.loop = New(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(w.loop.Handle)
}

func (w *world) commit(verb store.Verb, obj api.Object) {
	w.Helper()
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.Fatal(err)
	}
	w.settle()
}

func (w *world) settle() {
	w.Helper()
	for storetest.Settle(w, w.st); w.loop.Step(context.Background()); storetest.Settle(w, w.st) {
	}
}

func (w *world) wait(d time.Duration) { w.Helper(); w.now = w.now.Add(d); w.settle() }

func (w *world) node() *corev1.Node {
	return w.st.Get(store.Key{GroupResource: api.Nodes(), Name: "n1"}).(*corev1.Node).DeepCopy()
}

func (w *world) pod(name string) *corev1.Pod {
	p, _ := w.st.Get(store.Key{GroupResource: api.Pods(), Namespace: "shop", Name: name}).(*corev1.Pod)
	return p
}

func (w *world) add(name string, tolerations ...corev1.Toleration) {
	grace := int64(30)
	w.commit(store.Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: *at(-time.Hour)},
		Spec: corev1.PodSpec{NodeName: "n1", Tolerations: tolerations, TerminationGracePeriodSeconds: &grace}})
}

func (w *world) taint(taints ...corev1.Taint) {
	w.Helper()
	n := w.node()
	n.Spec.Taints = taints
	w.commit(store.Update, n)
}

func (w *world) events(about string) (out []string) {
	for _, obj := range w.st.List(api.Events(), "shop") {
		if e := obj.(*corev1.Event); e.InvolvedObject.Name == about {
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	return out
}

func TestPodsOfALostNodeGoAfterTheirTolerations(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	w.add("web", tolerates(corev1.TaintNodeUnreachable, 300))
	w.add("agent", tolerates(corev1.TaintNodeUnreachable))
	w.add("plain")
	w.taint(evicts(corev1.TaintNodeUnreachable, at(0)))
	if p := w.pod("plain"); p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("a pod that tolerates nothing: %+v", p.ObjectMeta)
	}
	w.wait(200 * time.Second)
	w.lead() // another leader comes to the same moment
	w.wait(99 * time.Second)
	if w.pod("web").DeletionTimestamp != nil {
		t.Fatal("evicted before the toleration was over")
	}
	w.wait(time.Second)
	p := w.pod("web")
	if p == nil || p.DeletionTimestamp == nil {
		t.Fatalf("after 300 s (R9, R10: marked, not removed): %+v", p)
	}
	var said bool
	for _, c := range p.Status.Conditions {
		said = said || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByTaintManager"
	}
	if !said || strings.Join(w.events("web"), "; ") != "TaintManagerEviction: Marking for deletion Pod shop/web" {
		t.Errorf("conditions %+v, events %v", p.Status.Conditions, w.events("web"))
	}
	w.wait(24 * time.Hour)
	if w.pod("agent").DeletionTimestamp != nil {
		t.Error("a pod that tolerates the taint for ever is evicted")
	}
	if w.pod("web") == nil {
		t.Error("a pod of a lost node is removed without a word of its agent (R10)")
	}
}

func TestRecoveryCancels(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	w.add("web", tolerates(corev1.TaintNodeUnreachable, 300))
	w.taint(evicts(corev1.TaintNodeUnreachable, at(0)))
	w.wait(299 * time.Second)
	w.taint()
	w.wait(time.Hour)
	if p := w.pod("web"); p.DeletionTimestamp != nil {
		t.Fatal("evicted from a node that came back")
	}
	if got := strings.Join(w.events("web"), "; "); got != "TaintManagerEviction: Cancelling deletion of Pod shop/web" {
		t.Errorf("events %q", got)
	}
	w.taint(evicts(corev1.TaintNodeUnreachable, &metav1.Time{Time: w.now}))
	w.wait(299 * time.Second)
	if w.pod("web").DeletionTimestamp != nil {
		t.Error("the time of the first loss counts for the second")
	}
}

// A node that comes back between the look and the write keeps its pods.
func TestNodeThatCameBackMeanwhileKeepsItsPods(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	w.add("web", tolerates(corev1.TaintNodeUnreachable, 300))
	w.taint(evicts(corev1.TaintNodeUnreachable, at(0)))
	w.now = w.now.Add(300 * time.Second)
	n := w.node()
	n.Spec.Taints = nil
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: store.Update, Object: n}}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.loop.Step(context.Background()) // decides on a cache that is behind
	}
	w.settle()
	if w.pod("web").DeletionTimestamp != nil {
		t.Error("evicted by a taint that was gone")
	}
}

func TestPodThatComesToATaintedNode(t *testing.T) {
	w := newWorld(t)
	w.commit(store.Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	w.taint(evicts("maintenance", at(0)))
	w.add("late")
	if w.pod("late").DeletionTimestamp == nil {
		t.Error("a pod bound to a node that it does not tolerate stays")
	}
	w.add("patient", tolerates("maintenance", 10))
	more := w.pod("patient").DeepCopy()
	more.Spec.Tolerations[0].TolerationSeconds = nil
	w.commit(store.Update, more)
	w.wait(time.Hour)
	if w.pod("patient").DeletionTimestamp != nil {
		t.Error("a toleration that was prolonged does not count")
	}
}
