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
		Watches:    []reconcile.Watch{{Resource: api.Pods(), Keys: newsOf}},
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

// newsOf gives the pod of an event by which a container has ended, and its controller
// where one runs an image now: many pods of one controller are one piece of work.
func newsOf(e store.Event) (keys []reconcile.Key) {
	now, ok := e.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var before []corev1.ContainerStatus
	if was, ok := e.Previous.(*corev1.Pod); ok {
		before = was.Status.ContainerStatuses
	}
	ended, image := false, false
	for _, c := range now.Status.ContainerStatuses {
		i := slices.IndexFunc(before, func(b corev1.ContainerStatus) bool { return b.Name == c.Name })
		ended = ended || i < 0 || before[i].RestartCount != c.RestartCount || (before[i].State.Terminated == nil) != (c.State.Terminated == nil)
		image = image || c.State.Running != nil && (i < 0 || before[i].State.Running == nil || before[i].ImageID != c.ImageID)
	}
	if ended {
		keys = append(keys, e.Key)
	}
	if controller, ok := ownerKey(now); ok && image {
		keys = append(keys, controller)
	}
	return keys
}

// Reconcile says what is new about a pod, or about the workload of a controller.
func (w *RuntimeWatch) Reconcile(ctx context.Context, key reconcile.Key) error {
	now := w.s.cfg.Now()
	for told, at := range w.told {
		if now.Sub(at) > recently {
			delete(w.told, told)
		}
	}
	if key.GroupResource == api.Pods() {
		w.ends(ctx, key, now)
	} else {
		w.images(ctx, key)
	}
	return nil
}

// ends says which containers of a pod were killed.
func (w *RuntimeWatch) ends(ctx context.Context, key reconcile.Key, now time.Time) {
	pod, ok := w.s.cfg.Store.Get(key).(*corev1.Pod)
	if !ok || pod.DeletionTimestamp != nil {
		return
	}
	if _, declared := w.s.declaredOwners().find(pod); !declared {
		return
	}
	for _, c := range pod.Status.ContainerStatuses {
		if d, ok := killed(pod, c, now); ok {
			w.say(ctx, pod, "ContainerKilled", string(pod.UID)+" "+c.Name+" "+d.Time.String(), "Container "+c.Name+" "+d.Message)
		}
	}
}

// images says where pods of the workload that a controller belongs to run different
// images under one name.
func (w *RuntimeWatch) images(ctx context.Context, controller reconcile.Key) {
	workload := w.s.declaredOwner(controller)
	about := w.s.cfg.Store.Get(workload.key)
	if !workload.ok || about == nil {
		return
	}
	owners, images := w.s.declaredOwners(), imagesOf{}
	for _, obj := range w.s.cfg.Store.List(api.Pods(), controller.Namespace) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		if top, ok := owners.find(pod); ok && top == workload.key {
			images.add(pod)
		}
	}
	for _, d := range images.drift(workload.key) {
		w.say(ctx, about, "ImageDiffers", titleOf(workload.key)+" "+d.Message, d.Message)
	}
}

// say makes one Event of one thing that has happened.
func (w *RuntimeWatch) say(ctx context.Context, about api.Object, reason, once, text string) {
	if _, told := w.told[once]; told {
		return
	}
	w.told[once] = w.s.cfg.Now()
	w.s.events.Event(ctx, about, corev1.EventTypeWarning, reason, text)
}
