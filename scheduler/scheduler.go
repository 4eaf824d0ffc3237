package scheduler

import (
	"context"
	"log/slog"
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

	mu      sync.Mutex // events come on another goroutine
	queue   []store.Key
	queued  map[store.Key]bool
	waiting map[store.Key]bool // pods that fit nowhere
	epoch   uint64             // raised when waiting is woken
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
		queued:  map[store.Key]bool{},
		waiting: map[store.Key]bool{},
	}
	return reconcile.New(reconcile.Config{
		// One worker: decisions see each other in order.
		Name: "scheduler", Reconciler: s, List: s.list, Workers: 1, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: api.Pods(), Keys: s.ofPod},
			{Resource: api.Nodes(), Keys: s.ofNode},
			{Resource: api.Leases(), Keys: s.ofLease},
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
	var keys []reconcile.Key
	for _, pod := range pods {
		keys = append(keys, store.KeyOf(pod))
	}
	s.enqueue(keys...)
	return keys
}

// ofPod wakes a pod that needs a node, and all that wait when one leaves its node.
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
		if was == nil || !ours(was) || was.Spec.NodeName != is.Spec.NodeName || !equality.Semantic.DeepEqual(was.Spec, is.Spec) {
			s.enqueue(e.Key)
			keys = append(keys, e.Key)
		}
	}
	if is != nil && is.Spec.NodeName != "" {
		if was == nil || was.Spec.NodeName != is.Spec.NodeName || ended(was) != ended(is) {
			s.view.touch(is.Spec.NodeName)
		}
	}
	if was != nil && was.Spec.NodeName != "" && !ended(was) && (is == nil || ended(is)) {
		s.view.touch(was.Spec.NodeName)
		left = true
	}
	if left {
		keys = append(keys, s.wakeWaiting()...)
	}
	return keys
}

func (s *scheduler) ofNode(e store.Event) []reconcile.Key {
	was, _ := e.Previous.(*corev1.Node)
	is, _ := e.Object.(*corev1.Node)
	s.view.touch(e.Key.Name)
	if is == nil || was != nil && !matters(was, is) {
		return nil
	}
	return s.wakeWaiting()
}

// matters says whether a node's change can make it fit for a pod.
func matters(was, is *corev1.Node) bool {
	return ready(was) != ready(is) || was.Spec.Unschedulable != is.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable)
}

func (s *scheduler) ofLease(e store.Event) []reconcile.Key {
	if e.Key.Namespace != corev1.NamespaceNodeLease || e.Previous != nil && e.Object != nil {
		return nil
	}
	s.view.touch(e.Key.Name)
	if e.Object == nil {
		return nil
	}
	return s.wakeWaiting()
}

func (s *scheduler) enqueue(keys ...store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if !s.queued[key] {
			s.queued[key] = true
			s.queue = append(s.queue, key)
		}
	}
}

// wakeWaiting puts the pods that fit nowhere back into the queue.
func (s *scheduler) wakeWaiting() []reconcile.Key {
	s.mu.Lock()
	keys := make([]reconcile.Key, 0, len(s.waiting))
	for key := range s.waiting {
		keys = append(keys, key)
	}
	clear(s.waiting)
	s.epoch++
	s.mu.Unlock()
	slices.SortFunc(keys, compareKeys)
	s.enqueue(keys...)
	return keys
}

// take gives the next pods to place, first's own first.
func (s *scheduler) take(first store.Key) []*corev1.Pod {
	s.drop(first)
	var pods []*corev1.Pod
	bytes := 0
	for key, ok := first, true; ok; key, ok = s.pop() {
		pod, exists := s.Store.Get(key).(*corev1.Pod)
		if !exists || !ours(pod) || s.view.placed(key, pod) {
			continue
		}
		if s.view.uncertain(key) {
			if key == first {
				return []*corev1.Pod{pod} // alone: what it may hold already is not held against it
			}
			continue // its own key is due again
		}
		bytes += 2 * pod.Size()
		if len(pods) == s.batch || len(pods) > 0 && bytes > store.BulkBytes/2 {
			s.putBack(key)
			break
		}
		pods = append(pods, pod)
	}
	return pods
}

// pop takes the key off the queue's front.
func (s *scheduler) pop() (store.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		key := s.queue[0]
		s.queue = s.queue[1:]
		if s.queued[key] { // else taken by its own key
			delete(s.queued, key)
			return key, true
		}
	}
	s.queue = nil
	return store.Key{}, false
}

func (s *scheduler) putBack(key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued[key] = true
	s.queue = slices.Insert(s.queue, 0, key)
}

// drop takes a key out of the queue, wherever it stands.
func (s *scheduler) drop(key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queued, key)
}

// Reconcile places the pod of the key, and with it others that wait for their
// turn.
func (s *scheduler) Reconcile(ctx context.Context, key reconcile.Key) error {
	if s.Store.Revision() < s.Fence().Revision {
		// What the leader before us bound may not be in the cache yet.
		return reconcile.After(10*time.Millisecond, "the cache is behind the election")
	}
	if pod, ok := s.Store.Get(key).(*corev1.Pod); !ok || !ours(pod) || s.view.placed(key, pod) {
		s.forget(key)
		return nil
	}
	if s.idle(key) {
		return nil
	}
	epoch := s.current()
	nodes := s.view.look(key)
	pods := s.take(key)
	if len(pods) == 0 {
		return nil
	}
	return s.place(ctx, nodes, pods, epoch)
}

// idle says whether the pod has been found to fit nowhere and nothing changed.
func (s *scheduler) idle(key store.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[key] && !s.queued[key]
}

func (s *scheduler) forget(key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, key)
	delete(s.queued, key)
}

// current counts what happened that can give a waiting pod a place.
func (s *scheduler) current() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// wait puts a pod with those that fit nowhere, unless something happened since
// the epoch in which that was found.
func (s *scheduler) wait(key store.Key, epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch {
		s.waiting[key] = true
	}
	return s.epoch == epoch
}
