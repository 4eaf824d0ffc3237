package job

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is a store with one Job and a scripted node. Every transaction of the
// controller is judged by R7.
type world struct {
	failer
	tb    testing.TB
	st    *store.Store
	loop  *reconcile.Loop
	now   time.Time
	names uint64
	// crash is asked before each transaction of the controller; the process dies
	// then, before or after the write takes effect.
	crash    func(n int) (dies, after bool)
	commits  int
	released map[types.UID]bool
	ended    map[types.UID]corev1.PodPhase // what the node reported
}

func newWorld(tb testing.TB, f failer, job *batchv1.Job) *world {
	return newWorldOn(tb, f, storetest.Open(tb), job)
}

func newWorldOn(tb testing.TB, f failer, st *store.Store, job *batchv1.Job) *world {
	w := &world{failer: f, tb: tb, st: st, now: noon, released: map[types.UID]bool{}, ended: map[types.UID]corev1.PodPhase{}}
	w.start()
	for _, obj := range []api.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, job} {
		store.Stamp(obj, w.now)
		w.do(store.Create, obj)
	}
	return w
}

// start makes the controller as a new process does: with nothing in memory.
func (w *world) start() {
	w.loop = New(Config{Store: controllerStore{w.st, w}, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now },
		Random: func() uint64 { w.names++; return w.names * 0x9e3779b97f4a7c15 }})
	w.st.OnEvents(w.loop.Handle)
}

var errDied = errors.New("the process died")

type controllerStore struct {
	*store.Store
	w *world
}

func (c controllerStore) Commit(ctx context.Context, t store.Txn) (int64, error) {
	w := c.w
	w.commits++
	dies, after := false, false
	if w.crash != nil {
		dies, after = w.crash(w.commits)
	}
	if dies && !after {
		return 0, errDied
	}
	before := w.live()
	rev, err := c.Store.Commit(ctx, t)
	if err == nil {
		w.judge(t, before)
	}
	if dies {
		return 0, errDied
	}
	return rev, err
}

// state is what the backend has, whatever the cache knows.
type state struct {
	job  *batchv1.Job
	pods map[types.UID]*corev1.Pod
}

func (w *world) live() state {
	s := state{pods: map[types.UID]*corev1.Pod{}}
	for _, obj := range w.list(api.Pods()) {
		s.pods[obj.GetUID()] = obj.(*corev1.Pod)
	}
	for _, obj := range w.list(api.Jobs()) {
		s.job = obj.(*batchv1.Job)
	}
	return s
}

func (w *world) list(gr schema.GroupResource) []api.Object {
	page, err := w.st.ListAt(context.Background(), gr, "default", 0, 0, "")
	if err != nil {
		w.Fatalf("list: %v", err)
	}
	return page.Objects
}

// judge holds one transaction that happened against R7.
func (w *world) judge(t store.Txn, was state) {
	w.Helper()
	is := w.live()
	if is.job == nil || was.job == nil {
		return
	}
	failing := condition(&is.job.Status, batchv1.JobFailureTarget) != nil
	_, over := finished(was.job)
	succeeded, failures := 0, 0
	for uid, p := range was.pods {
		if q := is.pods[uid]; !tracked(p) || q != nil && tracked(q) {
			continue
		}
		if w.released[uid] {
			w.Fatalf("pod %s is released twice", p.Name)
		}
		w.released[uid] = true
		_, known := indexOf(is.job, p)
		switch {
		case over || indexed(is.job) && !known:
		case p.Status.Phase == corev1.PodSucceeded:
			succeeded++
		case !rule(is.job.Spec.PodFailurePolicy, p).counts():
		case failed(p, onlyFailed(is.job)) || failing:
			failures++
		}
	}
	got := is.job.Status
	if n := int(got.Failed - was.job.Status.Failed); n != failures {
		w.Fatalf("status.failed grew by %d with %d failed pods released: %s", n, failures, told(plan{job: is.job}))
	}
	if n := int(got.Succeeded - was.job.Status.Succeeded); !indexed(is.job) && n != succeeded {
		w.Fatalf("status.succeeded grew by %d with %d pods released that did", n, succeeded)
	}
	creates := 0
	for _, op := range t.Ops {
		if _, ok := op.Object.(*corev1.Pod); ok && op.Verb == store.Create {
			creates++
		}
	}
	active, taken := 0, map[int]bool{}
	for _, p := range is.pods {
		if !metav1.IsControlledBy(p, is.job) {
			continue // let go
		}
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || failed(p, onlyFailed(is.job)) {
			continue
		}
		active++
		if i, ok := indexOf(is.job, p); ok && taken[i] {
			w.Fatalf("index %d has two active pods", i)
		} else if ok {
			taken[i] = true
		}
	}
	if creates > 0 && active > int(*is.job.Spec.Parallelism) {
		w.Fatalf("%d pods made, %d are active, parallelism is %d", creates, active, *is.job.Spec.Parallelism)
	}
}

func (w *world) do(verb store.Verb, obj api.Object) {
	w.Helper()
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.Fatalf("%s: %v", verb, err)
	}
	storetest.Settle(w.tb, w.st)
}

func (w *world) job() *batchv1.Job {
	storetest.Settle(w.tb, w.st)
	return w.st.Get(jobKey("default", "work")).(*batchv1.Job).DeepCopy()
}

func (w *world) change(f func(*batchv1.JobSpec)) {
	job := w.job()
	f(&job.Spec)
	job.Generation++
	w.do(store.Update, job)
}

func (w *world) pods() []*corev1.Pod {
	storetest.Settle(w.tb, w.st)
	var out []*corev1.Pod
	for _, obj := range w.st.List(api.Pods(), "default") {
		out = append(out, obj.(*corev1.Pod).DeepCopy())
	}
	return out
}

// move takes a pod one step on: it is bound, runs, ends well or badly, or goes.
func (w *world) move(p *corev1.Pod, ok bool) {
	w.Helper()
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case over && p.DeletionTimestamp != nil && len(p.Finalizers) == 0:
		w.do(store.Delete, p)
		return
	case over:
		return
	case p.Spec.NodeName == "":
		if p.DeletionTimestamp != nil {
			return
		}
		p.Spec.NodeName = "n1"
	case p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil:
		p.Status.Phase = corev1.PodRunning
	default:
		p.Status.Phase = corev1.PodFailed
		code := int32(1)
		if ok && p.DeletionTimestamp == nil {
			p.Status.Phase, code = corev1.PodSucceeded, 0
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.now)}}}}
		w.ended[p.UID] = p.Status.Phase
	}
	w.do(store.Update, p)
}

// rest lets the controller work until it waits for something, and starts it again
// when it died.
func (w *world) rest() {
	w.Helper()
	for range 1000 {
		before := w.commits
		storetest.Settle(w.tb, w.st)
		if w.loop.Step(context.Background()) {
			if w.crash != nil && w.commits > before {
				if dies, _ := w.crash(w.commits); dies {
					w.start()
				}
			}
			continue
		}
		if next := w.loop.Next(); next.IsZero() || next.Sub(w.now) > 100*time.Millisecond {
			return
		}
		w.now = w.loop.Next()
	}
	w.Fatalf("the controller does not come to rest")
}

// settled checks what must hold at the end, whatever happened before.
func (w *world) settled() {
	w.Helper()
	job := w.job()
	if _, over := finished(job); !over {
		w.Fatalf("the Job never ended: %s", told(plan{job: job}))
	}
	for _, p := range w.pods() {
		if tracked(p) {
			w.Fatalf("pod %s is still held by the finalizer", p.Name)
		}
	}
	if got := parseIndexes(job.Status.CompletedIndexes, 1000).total(); indexed(job) && got != int(job.Status.Succeeded) {
		w.Fatalf("%d succeeded, completedIndexes %q", job.Status.Succeeded, job.Status.CompletedIndexes)
	}
}

func (w *world) events() map[string]int {
	out := map[string]int{}
	for _, obj := range w.st.List(api.Events(), "default") {
		out[obj.(*corev1.Event).Reason]++
	}
	return out
}

func (w *world) summary() string {
	s := w.job().Status
	end := ""
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			end += " " + string(c.Type) + "/" + c.Reason
		}
	}
	lost := ""
	if s.FailedIndexes != nil {
		lost = *s.FailedIndexes
	}
	return fmt.Sprintf("succeeded=%d failed=%d done=[%s] lost=[%s]%s", s.Succeeded, s.Failed, s.CompletedIndexes, lost, end)
}
