package deployment

import (
	"cmp"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// observe reads what a plan decides on.
func (c *controller) observe(d *appsv1.Deployment, selector labels.Selector) (observed, error) {
	ns, _ := c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: d.Namespace}).(*corev1.Namespace)
	o := observed{
		deployment: d,
		closed:     podset.Closed(ns),
		limit:      podset.PerTxn(&d.Spec.Template),
		refs:       podset.Refs(c.Store, d.Namespace, &d.Spec.Template),
		refused:    map[string]string{},
	}
	for _, obj := range c.Store.Owned(d.UID) {
		set, ok := obj.(*appsv1.ReplicaSet)
		if !ok || !metav1.IsControlledBy(set, d) {
			continue
		}
		if !selector.Matches(labels.Set(set.Labels)) {
			o.strangers = append(o.strangers, set)
			continue
		}
		s, err := c.observeSet(set, d)
		if err != nil {
			return observed{}, err
		}
		o.sets = append(o.sets, s)
	}
	if d.DeletionTimestamp == nil {
		for _, obj := range c.orphanSets.Match(c.Store, d.Namespace, selector) {
			s, err := c.observeSet(obj.(*appsv1.ReplicaSet), d)
			if err != nil {
				return observed{}, err
			}
			s.adopt = true
			o.sets = append(o.sets, s)
		}
	}
	slices.SortFunc(o.sets, func(a, b *set) int {
		if n := a.is.CreationTimestamp.Compare(b.is.CreationTimestamp.Time); n != 0 {
			return n
		}
		return cmp.Compare(a.is.Name, b.is.Name)
	})
	if current(&o) != nil {
		return o, nil
	}
	o.fresh = freshName(d, func(name string) bool {
		return c.Store.Get(store.Key{GroupResource: api.ReplicaSets(), Namespace: d.Namespace, Name: name}) != nil
	})
	return o, nil
}

// observeSet reads one set's pods. Pods are adopted only through a set that the
// Deployment keeps, and released from every one.
func (c *controller) observeSet(rs *appsv1.ReplicaSet, d *appsv1.Deployment) (*set, error) {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of replica set %s: %w", rs.Name, err)
	}
	var controlled, orphans []*corev1.Pod
	for _, obj := range c.Store.Owned(rs.UID) {
		if pod, ok := obj.(*corev1.Pod); ok && metav1.IsControlledBy(pod, rs) {
			controlled = append(controlled, pod)
		}
	}
	if rs.DeletionTimestamp == nil && d.DeletionTimestamp == nil {
		for _, obj := range c.orphanPods.Match(c.Store, rs.Namespace, selector) {
			orphans = append(orphans, obj.(*corev1.Pod))
		}
	}
	return &set{is: rs, claim: podset.ClaimPods(selector, controlled, orphans)}, nil
}

func (c *controller) list() []reconcile.Key {
	c.orphanSets.Fill(c.Store.List(api.ReplicaSets(), ""))
	c.orphanPods.Fill(c.Store.List(api.Pods(), ""))
	var keys []reconcile.Key
	for _, obj := range c.Store.List(api.Deployments(), "") {
		keys = append(keys, store.KeyOf(obj))
	}
	return keys
}

// controllerKey is the key of the Deployment that controls obj.
func controllerKey(obj api.Object) (reconcile.Key, bool) {
	if obj == nil {
		return reconcile.Key{}, false
	}
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != "Deployment" {
		return reconcile.Key{}, false
	}
	return store.Key{GroupResource: api.Deployments(), Namespace: obj.GetNamespace(), Name: ref.Name}, true
}

// ofSet wakes the set's Deployment, before and now; and for a set without a
// controller the Deployments that may want it.
func (c *controller) ofSet(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if key, ok := controllerKey(obj); ok {
			keys = append(keys, key)
		}
	}
	if c.orphanSets.Note(e) {
		for _, obj := range c.Store.List(api.Deployments(), e.Key.Namespace) {
			if matches(obj.(*appsv1.Deployment).Spec.Selector, e.Object) {
				keys = append(keys, store.KeyOf(obj))
			}
		}
	}
	return keys
}

// ofPod wakes the Deployment behind the pod's set.
func (c *controller) ofPod(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if obj == nil {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil || ref.Kind != "ReplicaSet" {
			continue
		}
		rs := c.Store.Get(store.Key{GroupResource: api.ReplicaSets(), Namespace: e.Key.Namespace, Name: ref.Name})
		if rs == nil || rs.GetUID() != ref.UID {
			continue
		}
		if key, ok := controllerKey(rs); ok {
			keys = append(keys, key)
		}
	}
	if c.orphanPods.Note(e) {
		for _, obj := range c.Store.List(api.ReplicaSets(), e.Key.Namespace) {
			if key, ok := controllerKey(obj); ok && matches(obj.(*appsv1.ReplicaSet).Spec.Selector, e.Object) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func matches(s *metav1.LabelSelector, obj api.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(obj.GetLabels()))
}

// ofReferred wakes the Deployments whose template names a ConfigMap or Secret,
// when a commit changed it. A hand edit leaves the provenance, and is no reason.
func (c *controller) ofReferred(e store.Event) []reconcile.Key {
	if podset.ContentHash(e.Previous) == podset.ContentHash(e.Object) {
		return nil
	}
	name := podset.RefName(e.Key)
	var keys []reconcile.Key
	for _, obj := range c.Store.List(api.Deployments(), e.Key.Namespace) {
		if slices.Contains(podset.RefNames(&obj.(*appsv1.Deployment).Spec.Template.Spec), name) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}
