package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Config is what the scheduler needs. Store, Fence and Now are required.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Fence   func() store.Fence
	Now     store.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

type scheduler struct {
	Config
	batch  int
	view   *view
	events *event.Recorder
	after  int64 // the revision of our last write that made room; used by the one worker only

	mu      sync.Mutex // events come on another goroutine
	queue   queue
	waiting map[store.Key]wait // pods that fit nowhere
	epoch   uint64             // raised when some of them are woken
}

// wait is what a waiting pod waits for.
type wait struct {
	hopes
	node string // it is nominated to; "" for none
}

// New returns the scheduler's loop; its keys are pods.
func New(cfg Config) *reconcile.Loop { return newLoop(cfg, store.BulkObjects/2) }

// newLoop binds at most batch pods in a transaction; each comes with its event.
func newLoop(cfg Config, batch int) *reconcile.Loop {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &scheduler{
		Config:  cfg,
		batch:   batch,
		view:    newView(cfg.Store),
		events:  &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: corev1.DefaultSchedulerName, Log: cfg.Log},
		queue:   newQueue(),
		waiting: map[store.Key]wait{},
	}
	return reconcile.New(reconcile.Config{
		// One worker: decisions see each other in order.
		Name: "scheduler", Reconciler: s, List: s.list, Workers: 1, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: api.Pods(), Keys: s.ofPod},
			{Resource: api.Nodes(), Keys: s.ofNode},
			{Resource: api.Leases(), Keys: s.ofLease},
			{Resource: api.Namespaces(), Keys: s.ofNamespace},
			{Resource: api.PodDisruptionBudgets(), Keys: s.ofBudget},
			{Resource: api.PersistentVolumeClaims(), Keys: s.ofClaim},
			{Resource: api.PersistentVolumes(), Keys: s.ofVolume},
			{Resource: api.StorageClasses(), Keys: s.ofVolume},
		},
	})
}

// ours says whether a pod waits for a node from this scheduler.
func ours(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !ended(pod) && len(pod.Spec.SchedulingGates) == 0 &&
		(pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName)
}

func (s *scheduler) list() []reconcile.Key {
	s.view.touchAll()
	var pods []*corev1.Pod
	for _, obj := range s.Store.List(api.Pods(), "") {
		if pod, ok := obj.(*corev1.Pod); ok && ours(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	keys := make([]reconcile.Key, 0, len(pods))
	for _, pod := range pods {
		s.enqueue(pod)
		keys = append(keys, store.KeyOf(pod))
	}
	return keys
}

// ofPod wakes a pod that needs a node, and those that wait for what happened.
func (s *scheduler) ofPod(e store.Event) []reconcile.Key {
	was, _ := e.Previous.(*corev1.Pod)
	is, _ := e.Object.(*corev1.Pod)
	var keys []reconcile.Key
	left := s.view.cleared(e.Key) // room may be free that was not known to be
	if is == nil {
		s.forget(e.Key)
	}
	if is != nil && ours(is) {
		// A status written by ourselves changes nothing about where it can run.
		if was == nil || !ours(was) || was.Spec.NodeName != is.Spec.NodeName || !equality.Semantic.DeepEqual(was.Spec, is.Spec) || !maps.Equal(was.Labels, is.Labels) {
			s.enqueue(is)
			keys = append(keys, e.Key)
		}
	}
	released := hopeOf(was) != "" && hopeOf(is) != hopeOf(was) // room was kept for a pod that went elsewhere
	if released || hopeOf(is) != "" {
		s.view.soil(func(d *dirt) { d.nominated[e.Key] = true })
	}
	if released && is != nil && ours(is) { // another one has its room: it looks again
		s.enqueue(is)
		keys = append(keys, e.Key)
	}
	before, now := placeOf(was), placeOf(is)
	came := now != "" && now != before
	switch {
	case now != before || now != "" && (!maps.Equal(was.Labels, is.Labels) || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil)):
		s.view.touch(before, now)
		came = true // labels that change are like a pod that comes
	case now != "":
		s.view.touch(now) // the board holds the newest form of each pod
	}
	gone := before != "" && now != before
	if left || came || gone || released {
		keys = append(keys, s.wake(func(w wait) bool {
			if came && w.near {
				return true
			}
			if w.node != "" { // it has room where others leave; what leaves elsewhere is for others
				return w.room && (left || gone && w.node == before)
			}
			return w.room && (left || gone || released)
		})...)
	}
	return keys
}

// placeOf is the node where a pod needs something; "" for none.
func placeOf(pod *corev1.Pod) string {
	if pod == nil || ended(pod) {
		return ""
	}
	return pod.Spec.NodeName
}

// hopeOf is the node that a pod without one is nominated to.
func hopeOf(pod *corev1.Pod) string {
	if pod == nil || !ours(pod) {
		return ""
	}
	return pod.Status.NominatedNodeName
}

func (s *scheduler) ofNode(e store.Event) []reconcile.Key {
	was, _ := e.Previous.(*corev1.Node)
	is, _ := e.Object.(*corev1.Node)
	s.view.touch(e.Key.Name)
	switch {
	case is == nil: // a domain less to spread over, and pods that are nowhere any more
		return s.wake(func(w wait) bool { return w.near })
	case was != nil && !matters(was, is):
		return nil
	}
	return s.wake(all)
}

// matters says whether a node's change can make it fit for a pod.
func matters(was, is *corev1.Node) bool {
	return ready(was) != ready(is) || was.Spec.Unschedulable != is.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable) ||
		was.Annotations[api.VolumesDirAnnotation] != is.Annotations[api.VolumesDirAnnotation]
}

func (s *scheduler) ofLease(e store.Event) []reconcile.Key {
	if e.Key.Namespace != corev1.NamespaceNodeLease || e.Previous != nil && e.Object != nil {
		return nil
	}
	s.view.touch(e.Key.Name)
	if e.Object == nil {
		return nil
	}
	return s.wake(all)
}

// ofNamespace: selectors of namespaces look at labels.
func (s *scheduler) ofNamespace(e store.Event) []reconcile.Key {
	if e.Previous != nil && e.Object != nil && maps.Equal(e.Previous.GetLabels(), e.Object.GetLabels()) {
		return nil
	}
	s.view.soil(func(d *dirt) { d.spaces[e.Key.Name] = true })
	return s.wake(func(w wait) bool { return w.near })
}

// ofClaim wakes the pods that wait for a claim.
func (s *scheduler) ofClaim(e store.Event) []reconcile.Key {
	s.view.soil(func(d *dirt) { d.shelf[e.Key] = true })
	return s.wake(func(w wait) bool { return slices.Contains(w.claims, e.Key) })
}

// ofVolume wakes the pods that wait for a volume, or for the class that makes one.
func (s *scheduler) ofVolume(e store.Event) []reconcile.Key {
	s.view.soil(func(d *dirt) { d.shelf[e.Key] = true })
	if e.Object == nil {
		return nil
	}
	if v, ok := e.Object.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil { // nobody else's
		key := claimKey(v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
		return s.wake(func(w wait) bool { return slices.Contains(w.claims, key) })
	}
	return s.wake(func(w wait) bool { return w.volumes })
}

func (s *scheduler) ofBudget(store.Event) []reconcile.Key {
	s.view.soil(func(d *dirt) { d.budgets = true })
	return nil
}

// enqueue puts pods into the queue.
func (s *scheduler) enqueue(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range pods {
		s.queue.push(store.KeyOf(pod), corev1helpers.PodPriority(pod))
	}
}

// putBack puts pods that were taken off the queue's front back there, in order.
func (s *scheduler) putBack(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range slices.Backward(pods) {
		s.queue.putBack(store.KeyOf(pod), corev1helpers.PodPriority(pod))
	}
}

func all(wait) bool { return true }

// wake puts pods that fit nowhere back into the queue, those that came first first.
func (s *scheduler) wake(which func(wait) bool) []reconcile.Key {
	s.mu.Lock()
	s.epoch++
	var keys []store.Key
	for key, w := range s.waiting {
		if which(w) {
			keys = append(keys, key)
			delete(s.waiting, key)
		}
	}
	s.mu.Unlock()
	var pods []*corev1.Pod
	for _, key := range keys {
		if pod, ok := s.Store.Get(key).(*corev1.Pod); ok && ours(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), compareKeys(store.KeyOf(a), store.KeyOf(b)))
	})
	s.enqueue(pods...)
	keys = keys[:0]
	for _, pod := range pods {
		keys = append(keys, store.KeyOf(pod))
	}
	return keys
}

// take gives the next pods to place: those of the highest priority first, and of
// one priority in the order in which they came. first's own turn has come; when it
// is not among them, those before it fill a batch.
func (s *scheduler) take(first store.Key) []*corev1.Pod {
	if s.view.uncertain(first) { // alone: what it may hold already is not held against it
		pod, ok := s.Store.Get(first).(*corev1.Pod)
		s.forget(first)
		if ok && ours(pod) {
			return []*corev1.Pod{pod}
		}
		return nil
	}
	var pods []*corev1.Pod
	bytes := 0
	for {
		key, ok := s.pop()
		if !ok {
			return pods
		}
		pod, exists := s.Store.Get(key).(*corev1.Pod)
		if !exists || !ours(pod) || s.view.placed(key, pod) || s.view.uncertain(key) { // an uncertain one's own key is due again
			continue
		}
		bytes += 2 * pod.Size()
		if len(pods) == s.batch || len(pods) > 0 && bytes > store.BulkBytes/2 {
			s.putBack(pod)
			return pods
		}
		pods = append(pods, pod)
	}
}

func (s *scheduler) pop() (store.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.pop()
}

// Reconcile places pods, the most urgent first, until the pod of the key has had
// its turn.
func (s *scheduler) Reconcile(ctx context.Context, key reconcile.Key) error {
	if s.Store.Revision() < max(s.Fence().Revision, s.after) {
		// What the leader before us bound, or the pods that we sent away, may not be in
		// the cache yet.
		return reconcile.After(time.Millisecond, "the cache is behind")
	}
	pod, ok := s.Store.Get(key).(*corev1.Pod)
	if !ok || !ours(pod) || s.view.placed(key, pod) {
		s.forget(key)
		return nil
	}
	if s.idle(key) {
		return nil
	}
	s.enqueue(pod)
	epoch := s.current()
	b := s.view.look()
	pods := s.take(key)
	if len(pods) == 0 {
		return nil
	}
	err := s.place(ctx, b, pods, epoch)
	if err == nil && s.due(key) {
		return reconcile.After(0, "others came first")
	}
	return err
}

// due says whether a pod is still in the queue.
func (s *scheduler) due(key store.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.has(key)
}

// idle says whether the pod has been found to fit nowhere and nothing changed.
func (s *scheduler) idle(key store.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.waiting[key]
	return waits && !s.queue.has(key)
}

func (s *scheduler) forget(key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, key)
	s.queue.drop(key)
}

// current counts what happened that can give a waiting pod a place.
func (s *scheduler) current() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// wait puts a pod with those that fit nowhere, unless something happened since
// the epoch in which that was found.
func (s *scheduler) wait(key store.Key, w wait, epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch {
		s.waiting[key] = w
	}
	return s.epoch == epoch
}
