package ephemeral

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failed is the reason of Kubernetes' event.
const failed = "FailedBinding"

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
}

// New returns the controller's loop; its keys are pods.
func New(cfg Config) *reconcile.Loop {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &controller{Config: cfg, events: &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "ephemeral-volume-controller", Log: cfg.Log}}
	return reconcile.New(reconcile.Config{
		Name: "ephemeral", Reconciler: c, List: c.list, Log: cfg.Log, Now: cfg.Now, Metrics: cfg.Metrics,
		Watches: []reconcile.Watch{
			{Resource: api.Pods(), Keys: ofPod},
			{Resource: api.PersistentVolumeClaims(), Keys: c.ofClaim},
		},
	})
}

func (c *controller) list() (keys []reconcile.Key) {
	for _, obj := range c.Store.List(api.Pods(), "") {
		if pod, ok := obj.(*corev1.Pod); ok && wants(pod) {
			keys = append(keys, store.KeyOf(pod))
		}
	}
	return keys
}

// ofPod wakes a pod that is new: what it asks for does not change.
func ofPod(e store.Event) []reconcile.Key {
	if pod, ok := e.Object.(*corev1.Pod); ok && wants(pod) && (e.Previous == nil || e.Previous.GetUID() != pod.UID) {
		return []reconcile.Key{e.Key}
	}
	return nil
}

// ofClaim wakes the pods that a claim which is gone was made for, or stood in the way of.
func (c *controller) ofClaim(e store.Event) (keys []reconcile.Key) {
	if e.Object != nil && (e.Previous == nil || e.Object.GetUID() == e.Previous.GetUID()) {
		return nil
	}
	for _, obj := range c.Store.List(api.Pods(), e.Key.Namespace) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || !wants(pod) {
			continue
		}
		for i := range pod.Spec.Volumes {
			if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil && api.ClaimName(pod, v) == e.Key.Name {
				keys = append(keys, store.KeyOf(pod))
			}
		}
	}
	return keys
}

// Reconcile observes, decides and acts in one transaction.
func (c *controller) Reconcile(ctx context.Context, key reconcile.Key) error {
	pod, ok := c.Store.Get(key).(*corev1.Pod)
	if !ok || !wants(pod) {
		return nil
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for i := range pod.Spec.Volumes {
		name := api.ClaimName(pod, &pod.Spec.Volumes[i])
		claim, ok := c.Store.Get(store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: pod.Namespace, Name: name}).(*corev1.PersistentVolumeClaim)
		if ok {
			claims[name] = claim
		}
	}
	missing, trouble := plan(pod, claims)
	ns, _ := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: pod.Namespace}).(*corev1.Namespace)
	if ns == nil || podset.Closed(ns) {
		return nil // the pod goes, too
	}
	txn := store.Txn{Fence: c.Fence(), If: []api.Object{pod}}
	for _, claim := range missing {
		admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: claim}, admission.FactsFor(ns, c.Store))
		if err != nil {
			trouble = append(trouble, err.Error())
			continue
		}
		made := admitted.DeepCopyObject().(api.Object)
		store.Stamp(made, c.Now())
		made.SetGeneration(0) // claims have none
		txn.Ops = append(txn.Ops, store.Op{Verb: store.Create, Object: made})
	}
	for _, why := range trouble {
		txn.Ops = append(txn.Ops, c.events.Op(pod, corev1.EventTypeWarning, failed, why)...)
	}
	if len(txn.Ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, txn)
	if err != nil {
		c.events.Undo(txn.Ops)
	}
	if podset.Refused(err) { // a quota or a LimitRange
		c.events.Event(ctx, pod, corev1.EventTypeWarning, failed, err.Error())
	}
	if err != nil {
		return fmt.Errorf("claims of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// wants says whether a pod has volumes that claims are made for.
func wants(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || podset.Terminal(pod) {
		return false
	}
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			return true
		}
	}
	return false
}

// claimFor is the claim of one volume of a pod.
func claimFor(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	t, yes := v.Ephemeral.VolumeClaimTemplate.DeepCopy(), true
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: api.ClaimName(pod, v), Labels: t.Labels, Annotations: t.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Spec:   t.Spec,
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}
