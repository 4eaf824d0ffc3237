package syncer

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// RuntimeWatch makes Events of what runs on nodes otherwise than declared, when
// agents report it. It looks only at pods whose containers have ended or have
// another image than before, so it costs nothing while nothing happens. Only the
// leader runs it.
type RuntimeWatch struct {
	s    *Syncer
	loop *reconcile.Loop
	told map[string]time.Time // what was said of a pod or a workload, and when
}

// NewRuntimeWatch makes the watch over the pods of a Syncer's source.
func NewRuntimeWatch(s *Syncer, metrics prometheus.Registerer) *RuntimeWatch {
	w := &RuntimeWatch{s: s, told: map[string]time.Time{}}
	w.loop = reconcile.New(reconcile.Config{
		Name:       s.named("runtimedrift"),
		Reconciler: w,
		Watches:    []reconcile.Watch{{Resource: api.Pods(), Keys: ended}},
		List:       func() []reconcile.Key { return nil },
		Workers:    1,
		Log:        s.cfg.Log,
		Now:        s.cfg.Now,
		Metrics:    metrics,
	})
	return w
}

// Run watches until ctx ends.
func (w *RuntimeWatch) Run(ctx context.Context) error {
	clear(w.told)
	return w.loop.Run(ctx)
}

// Step does one piece of work, and says whether there was any.
func (w *RuntimeWatch) Step(ctx context.Context) bool { return w.loop.Step(ctx) }

// Handle is for store.OnEvents.
func (w *RuntimeWatch) Handle(events []store.Event) { w.loop.Handle(events) }

// ended gives the pod of an event by which a container has ended or got an image.
func ended(e store.Event) []reconcile.Key {
	now, ok := e.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var before []corev1.ContainerStatus
	if was, ok := e.Previous.(*corev1.Pod); ok {
		before = was.Status.ContainerStatuses
	}
	for _, c := range now.Status.ContainerStatuses {
		i := slices.IndexFunc(before, func(b corev1.ContainerStatus) bool { return b.Name == c.Name })
		if i < 0 || before[i].ImageID != c.ImageID || before[i].RestartCount != c.RestartCount || (before[i].State.Terminated == nil) != (c.State.Terminated == nil) {
			return []reconcile.Key{e.Key}
		}
	}
	return nil
}

// Reconcile says what is new about a pod and its workload.
func (w *RuntimeWatch) Reconcile(ctx context.Context, key reconcile.Key) error {
	pod, ok := w.s.cfg.Store.Get(key).(*corev1.Pod)
	if !ok || pod.DeletionTimestamp != nil {
		return nil
	}
	owners := w.s.declaredOwners()
	top, declared := owners.find(pod)
	if !declared {
		return nil
	}
	now := w.s.cfg.Now()
	for told, at := range w.told {
		if now.Sub(at) > recently {
			delete(w.told, told)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if d, ok := killed(pod, c, now); ok {
			w.say(ctx, pod, "ContainerKilled", string(pod.UID)+" "+c.Name+" "+d.Time.String(), "Container "+c.Name+" "+d.Message)
		}
	}
	images := imagesOf{}
	if images.add(pod); len(images) == 0 {
		return nil // what the others run is no news of this pod's
	}
	images = imagesOf{}
	for _, obj := range w.s.cfg.Store.List(api.Pods(), pod.Namespace) {
		other, ok := obj.(*corev1.Pod)
		if !ok || other.DeletionTimestamp != nil {
			continue
		}
		if t, ok := owners.find(other); ok && t == top {
			images.add(other)
		}
	}
	about := w.s.cfg.Store.Get(top)
	if about == nil {
		return nil
	}
	for _, d := range images.drift(top) {
		w.say(ctx, about, "ImageDiffers", titleOf(top)+" "+d.Message, d.Message)
	}
	return nil
}

// say makes one Event of one thing that has happened.
func (w *RuntimeWatch) say(ctx context.Context, about api.Object, reason, once, text string) {
	if _, told := w.told[once]; told {
		return
	}
	w.told[once] = w.s.cfg.Now()
	w.s.events.Event(ctx, about, corev1.EventTypeWarning, reason, text)
}
