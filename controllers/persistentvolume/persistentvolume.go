package persistentvolume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// Config is what the controller needs. Store, Fence and Now are required.
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

type controller struct {
	Config
	events *event.Recorder
	told   map[store.Key]string // what was last told of an object that waits; one worker only
}

// New returns the controller's loop. Its keys are volumes, claims and the class local.
func New(cfg Config) *reconcile.Loop {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &controller{
		Config: cfg,
		events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "persistentvolume-controller", Log: cfg.Log},
		told:   map[store.Key]string{},
	}
	return reconcile.New(reconcile.Config{
		// One worker: of two claims that fit one volume, the second sees what the first got.
		Name: "persistentvolume", Reconciler: c, Workers: 1, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: api.PersistentVolumes(), Keys: c.ofVolume},
			{Resource: api.PersistentVolumeClaims(), Keys: c.ofClaim},
			{Resource: api.StorageClasses(), Keys: c.ofClass},
			{Resource: api.Pods(), Keys: c.ofPod},
			{Resource: api.Nodes(), Keys: c.ofNode},
		},
	})
}

func (c *controller) list() []reconcile.Key {
	return slices.Concat([]reconcile.Key{localClass()}, reconcile.Keys(c.Store, api.PersistentVolumes()), reconcile.Keys(c.Store, api.PersistentVolumeClaims()))
}

func localClass() store.Key {
	return store.Key{GroupResource: api.StorageClasses(), Name: api.LocalClass}
}

func volumeKey(name string) store.Key {
	return store.Key{GroupResource: api.PersistentVolumes(), Name: name}
}

func claimKey(namespace, name string) store.Key {
	return store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: namespace, Name: name}
}

// ofVolume wakes the volume, the claim that it names, and when it names none every
// claim that waits for one of its class.
func (c *controller) ofVolume(e store.Event) []reconcile.Key {
	keys := []reconcile.Key{e.Key}
	for _, obj := range []api.Object{e.Previous, e.Object} {
		v, ok := obj.(*corev1.PersistentVolume)
		switch {
		case !ok:
		case v.Spec.ClaimRef != nil:
			keys = append(keys, claimKey(v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name))
		case obj == e.Object && v.DeletionTimestamp == nil:
			keys = append(keys, c.waiting(func(claim *corev1.PersistentVolumeClaim) bool {
				return storagehelpers.GetPersistentVolumeClaimClass(claim) == storagehelpers.GetPersistentVolumeClass(v)
			})...)
		}
	}
	return keys
}

// waiting are the claims without a volume that which is true of.
func (c *controller) waiting(which func(*corev1.PersistentVolumeClaim) bool) (keys []reconcile.Key) {
	for _, obj := range c.Store.List(api.PersistentVolumeClaims(), "") {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && !binding.Complete(claim) && which(claim) {
			keys = append(keys, store.KeyOf(claim))
		}
	}
	return keys
}

func (c *controller) ofClaim(e store.Event) []reconcile.Key {
	keys := []reconcile.Key{e.Key}
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName != "" {
			keys = append(keys, volumeKey(claim.Spec.VolumeName))
		}
	}
	return keys
}

// ofClass wakes the claims that wait for a class, also for one that is the default, and
// those that its change lets grow.
func (c *controller) ofClass(e store.Event) []reconcile.Key {
	keys := []reconcile.Key{localClass()}
	if e.Object == nil {
		return keys
	}
	for _, obj := range c.Store.List(api.PersistentVolumeClaims(), "") {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			if class := storagehelpers.GetPersistentVolumeClaimClass(claim); class == e.Key.Name || claim.Spec.StorageClassName == nil {
				keys = append(keys, store.KeyOf(claim))
			}
		}
	}
	return keys
}

// ofPod wakes the claims that a pod uses no longer.
func (c *controller) ofPod(e store.Event) (keys []reconcile.Key) {
	pod, ok := e.Previous.(*corev1.Pod)
	if !ok || e.Object != nil && e.Object.GetUID() == pod.UID {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if name := api.ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			keys = append(keys, claimKey(pod.Namespace, name))
		}
	}
	return keys
}

// ofNode wakes the volumes that wait for a node that is gone.
func (c *controller) ofNode(e store.Event) (keys []reconcile.Key) {
	if e.Object != nil {
		return nil
	}
	for _, obj := range c.Store.List(api.PersistentVolumes(), "") {
		if v, ok := obj.(*corev1.PersistentVolume); ok && v.DeletionTimestamp != nil && api.LocalVolumeNode(v) == e.Key.Name {
			keys = append(keys, store.KeyOf(v))
		}
	}
	return keys
}

// Reconcile observes, decides and acts in one transaction.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	var s step
	switch key.GroupResource {
	case api.StorageClasses():
		s = planClass(c.classes())
	case api.PersistentVolumes():
		v, ok := c.Store.Get(key).(*corev1.PersistentVolume)
		if !ok {
			delete(c.told, key)
			return nil
		}
		s = planVolume(c.observeVolume(v))
	default:
		claim, ok := c.Store.Get(key).(*corev1.PersistentVolumeClaim)
		if !ok {
			delete(c.told, key)
			return nil
		}
		s = planClaim(c.observeClaim(claim))
	}
	return c.apply(ctx, key, s)
}

func (c *controller) classes() (out []*storagev1.StorageClass) {
	for _, obj := range c.Store.List(api.StorageClasses(), "") {
		if class, ok := obj.(*storagev1.StorageClass); ok {
			out = append(out, class)
		}
	}
	return out
}

func (c *controller) observeVolume(v *corev1.PersistentVolume) seenVolume {
	o := seenVolume{volume: v, now: c.Now()}
	if ref := v.Spec.ClaimRef; ref != nil {
		o.claim, _ = c.Store.Get(claimKey(ref.Namespace, ref.Name)).(*corev1.PersistentVolumeClaim)
	}
	if name := api.LocalVolumeNode(v); name != "" {
		o.node, _ = c.Store.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node)
	}
	return o
}

func (c *controller) observeClaim(claim *corev1.PersistentVolumeClaim) seenClaim {
	o := seenClaim{claim: claim, classes: c.classes()}
	if claim.Spec.VolumeName != "" {
		o.volume, _ = c.Store.Get(volumeKey(claim.Spec.VolumeName)).(*corev1.PersistentVolume)
	}
	if claim.DeletionTimestamp != nil {
		o.used = c.used(claim)
		return o
	}
	if claim.Spec.VolumeName == "" && !binding.Complete(claim) {
		for _, obj := range c.Store.List(api.PersistentVolumes(), "") {
			if v, ok := obj.(*corev1.PersistentVolume); ok {
				o.volumes = append(o.volumes, v)
			}
		}
	}
	return o
}

// used says whether a pod that has a node uses a claim: what waits for a node does not
// get one while the claim is being deleted.
func (c *controller) used(claim *corev1.PersistentVolumeClaim) bool {
	for _, obj := range c.Store.List(api.Pods(), claim.Namespace) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			continue
		}
		for i := range pod.Spec.Volumes {
			if api.ClaimName(pod, &pod.Spec.Volumes[i]) == claim.Name {
				return true
			}
		}
	}
	return false
}

// apply does one step in one transaction. What is told of an object that only waits is
// told once.
func (c *controller) apply(ctx context.Context, key store.Key, s step) error {
	t := store.Txn{Fence: c.Fence(), If: s.given}
	for _, op := range s.ops {
		if op.Verb == store.Create {
			store.Stamp(op.Object, c.Now())
			op.Object.SetGeneration(0) // classes, volumes and claims have none
		}
		t.Ops = append(t.Ops, op)
	}
	if n := s.note; n != nil && (len(s.ops) > 0 || c.told[key] != n.message) {
		t.Ops = append(t.Ops, c.events.Op(n.about, n.kind, n.reason, n.message)...)
	}
	if len(t.Ops) == 0 {
		return nil
	}
	if _, err := c.Store.Commit(ctx, t); err != nil {
		c.events.Undo(t.Ops)
		if podset.Refused(err) && len(s.ops) == 1 { // a quota of the default class has no room for a claim that was there before
			if why := err.Error(); c.told[key] != why {
				c.told[key] = why
				c.events.Event(ctx, s.ops[0].Object, corev1.EventTypeWarning, provisioningFailed, why)
			}
			return reconcile.Terminal(fmt.Errorf("%s: %w", key, err))
		}
		if errors.Is(err, store.ErrExists) && key == localClass() {
			return nil // its event wakes us
		}
		return fmt.Errorf("%s: %w", key, err)
	}
	if s.note != nil {
		c.told[key] = s.note.message
	} else {
		delete(c.told, key)
	}
	return nil
}
