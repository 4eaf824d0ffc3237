package daemonset

import (
	"cmp"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// observe reads what a plan decides on.
func (c *controller) observe(set *appsv1.DaemonSet, selector labels.Selector, now time.Time) (observed, error) {
	o := observed{
		set:     set,
		pods:    map[string][]*corev1.Pod{},
		waiting: map[string]time.Duration{},
		limit:   podset.PerTxn(&set.Spec.Template),
	}
	o.namespace, _ = c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: set.Namespace}).(*corev1.Namespace)
	o.closed = podset.Closed(o.namespace)
	for _, obj := range c.Store.List(api.Nodes(), "") {
		o.nodes = append(o.nodes, obj.(*corev1.Node))
	}
	var controlled, orphans []*corev1.Pod
	for _, obj := range c.Store.Owned(set.UID) {
		if !metav1.IsControlledBy(obj, set) {
			continue
		}
		switch obj := obj.(type) {
		case *corev1.Pod:
			controlled = append(controlled, obj)
		case *appsv1.ControllerRevision:
			o.history = append(o.history, obj)
		}
	}
	for _, obj := range c.orphanPods.Match(c.Store, set.Namespace, selector) {
		orphans = append(orphans, obj.(*corev1.Pod))
	}
	for _, obj := range c.orphanRevisions.Match(c.Store, set.Namespace, selector) {
		o.history = append(o.history, obj.(*appsv1.ControllerRevision))
	}
	claim := podset.ClaimPods(selector, controlled, orphans)
	o.adopt, o.release = claim.Adopt, claim.Release
	for _, pod := range slices.Concat(claim.Pods.Active, claim.Pods.Terminating, claim.Pods.Dead) {
		node := nodeOf(pod)
		if node == "" || podset.Ended(pod) && pod.DeletionTimestamp != nil {
			o.others = append(o.others, pod) // of no node, or ended and on its way
			continue
		}
		o.pods[node] = append(o.pods[node], pod)
		if pod.Status.Phase == corev1.PodFailed {
			o.waiting[node] = c.failures.left(set.UID, node, now)
		}
	}
	for _, pods := range o.pods {
		slices.SortFunc(pods, oldestFirst)
	}
	podset.SortRevisions(o.history)
	var err error
	o.update, err = podset.ChooseRevision(podset.Template{
		Owner: set, Pod: &set.Spec.Template, Collisions: set.Status.CollisionCount, HashLabel: appsv1.DefaultDaemonSetUniqueLabelKey,
		Refs: podset.Refs(c.Store, set.Namespace, &set.Spec.Template),
	}, o.history, func(name string) bool {
		return c.Store.Get(store.Key{GroupResource: api.ControllerRevisions(), Namespace: set.Namespace, Name: name}) != nil
	})
	return o, err
}

// oldestFirst sorts bound pods before others, then by age.
func oldestFirst(a, b *corev1.Pod) int {
	free := func(p *corev1.Pod) int {
		if p.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(free(a), free(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func (c *controller) list() []reconcile.Key {
	c.orphanPods.Fill(c.Store.List(api.Pods(), ""))
	c.orphanRevisions.Fill(c.Store.List(api.ControllerRevisions(), ""))
	return reconcile.Keys(c.Store, api.DaemonSets())
}

// ofPod wakes the pod's set, before and now; and for a pod without a controller the
// sets that may want it.
func (c *controller) ofPod(e store.Event) []reconcile.Key {
	keys := c.controllers(e)
	if c.orphanPods.Note(e) {
		keys = append(keys, c.matching(e.Object)...)
	}
	return keys
}

func (c *controller) ofRevision(e store.Event) []reconcile.Key {
	keys := c.controllers(e)
	if c.orphanRevisions.Note(e) {
		keys = append(keys, c.matching(e.Object)...)
	}
	return keys
}

// controllers are the sets that control an object, before and now.
func (c *controller) controllers(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	for _, obj := range []api.Object{e.Previous, e.Object} {
		if obj == nil {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil || ref.Kind != "DaemonSet" {
			continue
		}
		key := store.Key{GroupResource: api.DaemonSets(), Namespace: e.Key.Namespace, Name: ref.Name}
		if c.Store.Get(key) != nil && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c *controller) matching(obj api.Object) []reconcile.Key {
	var keys []reconcile.Key
	for _, s := range c.Store.List(api.DaemonSets(), obj.GetNamespace()) {
		selector, err := metav1.LabelSelectorAsSelector(s.(*appsv1.DaemonSet).Spec.Selector)
		if err == nil && selector.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, store.KeyOf(s))
		}
	}
	return keys
}

// ofNode wakes every set when a node comes, goes, or may suit other pods.
func (c *controller) ofNode(e store.Event) []reconcile.Key {
	before, _ := e.Previous.(*corev1.Node)
	now, _ := e.Object.(*corev1.Node)
	if before != nil && now != nil && equality.Semantic.DeepEqual(before.Labels, now.Labels) && equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints) {
		return nil
	}
	return reconcile.Keys(c.Store, api.DaemonSets())
}

// ofReferred wakes the sets whose template names a ConfigMap or Secret, when a
// commit changed it. A hand edit leaves the provenance, and is no reason.
func (c *controller) ofReferred(e store.Event) []reconcile.Key {
	if podset.ContentHash(e.Previous) == podset.ContentHash(e.Object) {
		return nil
	}
	name := podset.RefName(e.Key)
	var keys []reconcile.Key
	for _, obj := range c.Store.List(api.DaemonSets(), e.Key.Namespace) {
		if slices.Contains(podset.RefNames(&obj.(*appsv1.DaemonSet).Spec.Template.Spec), name) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}
