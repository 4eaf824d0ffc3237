package statefulset

import (
	"slices"
	"strconv"
	"strings"

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
func (c *controller) observe(set *appsv1.StatefulSet, selector labels.Selector) (observed, error) {
	o := observed{
		set:     set,
		pods:    map[int]*corev1.Pod{},
		claims:  map[string]*corev1.PersistentVolumeClaim{},
		foreign: map[int]bool{},
		limit:   max(1, podset.PerTxn(&set.Spec.Template)/(1+len(set.Spec.VolumeClaimTemplates))),
		refused: map[string]refused{},
	}
	o.namespace, _ = c.Store.Get(store.Key{GroupResource: api.Namespaces(), Name: set.Namespace}).(*corev1.Namespace)
	o.closed = podset.Closed(o.namespace)
	var controlled, orphans []*corev1.Pod
	for _, obj := range c.Store.Owned(set.UID) {
		if !metav1.IsControlledBy(obj, set) {
			continue
		}
		switch obj := obj.(type) {
		case *corev1.Pod:
			if _, ok := ordinalOf(set.Name, obj.Name); ok {
				controlled = append(controlled, obj)
			}
		case *appsv1.ControllerRevision:
			o.history = append(o.history, obj)
		}
	}
	if set.DeletionTimestamp == nil {
		for _, obj := range c.orphanPods.Match(c.Store, set.Namespace, selector) {
			if _, ok := ordinalOf(set.Name, obj.GetName()); ok {
				orphans = append(orphans, obj.(*corev1.Pod))
			}
		}
		for _, obj := range c.orphanRevisions.Match(c.Store, set.Namespace, selector) {
			o.history = append(o.history, obj.(*appsv1.ControllerRevision))
		}
	}
	claim := podset.ClaimPods(selector, controlled, orphans)
	o.adopt, o.release = claim.Adopt, claim.Release
	for _, pod := range slices.Concat(claim.Pods.Active, claim.Pods.Terminating, claim.Pods.Dead) {
		n, _ := ordinalOf(set.Name, pod.Name)
		o.pods[n] = pod
	}
	c.observeNames(&o)
	podset.SortRevisions(o.history)
	var err error
	o.update, err = podset.ChooseRevision(podset.Template{
		Owner: set, Pod: &set.Spec.Template, Collisions: set.Status.CollisionCount, HashLabel: labelHash,
		Refs: podset.Refs(c.Store, set.Namespace, &set.Spec.Template),
	}, o.history, func(name string) bool {
		return c.Store.Get(store.Key{GroupResource: api.ControllerRevisions(), Namespace: set.Namespace, Name: name}) != nil
	})
	if err != nil {
		return observed{}, err
	}
	o.templates = map[string]*corev1.PodTemplateSpec{o.update.To.Name: &set.Spec.Template}
	o.current = o.update.To.Name
	for _, r := range o.history {
		if r.Name != set.Status.CurrentRevision || r.Name == o.update.To.Name {
			continue
		}
		// One that cannot be read counts as gone: nothing could be made of it, and it
		// must not block the next (R13).
		if t, err := podset.RevisionTemplate(r); err == nil {
			o.current, o.templates[r.Name] = r.Name, t
		}
	}
	return o, nil
}

// observeNames reads what has the names of pods and claims that the set wants.
func (c *controller) observeNames(o *observed) {
	first, end := ordinals(o.set)
	wanted := map[int]bool{}
	for n := range o.pods {
		wanted[n] = true
	}
	for n := first; n < end; n++ {
		wanted[n] = true
		if o.pods[n] == nil {
			o.foreign[n] = c.Store.Get(store.Key{GroupResource: api.Pods(), Namespace: o.set.Namespace, Name: podName(o.set, n)}) != nil
		}
	}
	for n := range wanted {
		for i := range o.set.Spec.VolumeClaimTemplates {
			name := claimName(o.set, &o.set.Spec.VolumeClaimTemplates[i], n)
			if claim, ok := c.Store.Get(store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: o.set.Namespace, Name: name}).(*corev1.PersistentVolumeClaim); ok {
				o.claims[name] = claim
			}
		}
	}
}

// ordinalOf reads a pod's ordinal from its name; ok is false for a name that the
// set gives to none.
func ordinalOf(set, pod string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(pod, set+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// parentOf is the name of the set that gives a name like this.
func parentOf(pod string) string {
	i := strings.LastIndexByte(pod, '-')
	if i < 0 {
		return ""
	}
	if _, ok := ordinalOf(pod[:i], pod); !ok {
		return ""
	}
	return pod[:i]
}

func (c *controller) list() []reconcile.Key {
	c.orphanPods.Fill(c.Store.List(api.Pods(), ""))
	c.orphanRevisions.Fill(c.Store.List(api.ControllerRevisions(), ""))
	return reconcile.Keys(c.Store, api.StatefulSets())
}

func (c *controller) key(namespace, name string) (reconcile.Key, bool) {
	key := store.Key{GroupResource: api.StatefulSets(), Namespace: namespace, Name: name}
	return key, name != "" && c.Store.Get(key) != nil
}

// ofPod wakes the pod's set, before and now, and the one that gives such a name:
// it may adopt the pod, or wait for the name.
func (c *controller) ofPod(e store.Event) []reconcile.Key {
	c.orphanPods.Note(e)
	keys := c.controllers(e)
	if key, ok := c.key(e.Key.Namespace, parentOf(e.Key.Name)); ok && !slices.Contains(keys, key) {
		keys = append(keys, key)
	}
	return keys
}

func (c *controller) ofRevision(e store.Event) []reconcile.Key {
	keys := c.controllers(e)
	if c.orphanRevisions.Note(e) {
		for _, obj := range c.Store.List(api.StatefulSets(), e.Key.Namespace) {
			selector, err := metav1.LabelSelectorAsSelector(obj.(*appsv1.StatefulSet).Spec.Selector)
			if err == nil && selector.Matches(labels.Set(e.Object.GetLabels())) {
				keys = append(keys, store.KeyOf(obj))
			}
		}
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
		if ref == nil || ref.Kind != "StatefulSet" {
			continue
		}
		if key, ok := c.key(e.Key.Namespace, ref.Name); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// ofClaim wakes the set that gives a claim its name, when the claim comes or goes:
// a name is that of the template, the set and the ordinal.
func (c *controller) ofClaim(e store.Event) []reconcile.Key {
	var keys []reconcile.Key
	for _, obj := range c.Store.List(api.StatefulSets(), e.Key.Namespace) {
		set := obj.(*appsv1.StatefulSet)
		for i := range set.Spec.VolumeClaimTemplates {
			if _, ok := ordinalOf(set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name, e.Key.Name); ok {
				keys = append(keys, store.KeyOf(set))
			}
		}
	}
	return keys
}

// ofReferred wakes the sets whose template names a ConfigMap or Secret, when a
// commit changed it. A hand edit leaves the provenance, and is no reason.
func (c *controller) ofReferred(e store.Event) []reconcile.Key {
	if podset.ContentHash(e.Previous) == podset.ContentHash(e.Object) {
		return nil
	}
	name := podset.RefName(e.Key)
	var keys []reconcile.Key
	for _, obj := range c.Store.List(api.StatefulSets(), e.Key.Namespace) {
		if slices.Contains(podset.RefNames(&obj.(*appsv1.StatefulSet).Spec.Template.Spec), name) {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys
}
