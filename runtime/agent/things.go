package agent

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/session"
)

// things are the ConfigMaps, Secrets and claims that the node's pods refer to, by
// namespace and name, and the volumes that those claims have or whose data is here.
type things struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume // by name
}

func newThings() things {
	return things{
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
	}
}

func (t things) configMap(namespace, name string) *corev1.ConfigMap {
	return t.configMaps[namespace+"/"+name]
}

func (t things) secret(namespace, name string) *corev1.Secret {
	return t.secrets[namespace+"/"+name]
}

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// arrived lets the containers try again that could not start for want of an
// object, and has volumes filled from it anew.
func (a *Agent) arrived(resource, namespace, name string) {
	for _, uid := range sortedKeys(a.entries) {
		e := a.entries[uid]
		if e.pod == nil || e.pod.Namespace != namespace || len(e.record.troubles) == 0 && !e.record.sandbox.forObject && !hasContent(&e.pod.Spec) {
			continue
		}
		if !slices.Contains(session.References(e.pod), session.Reference{Resource: resource, Name: name}) {
			continue
		}
		for container, t := range e.record.troubles {
			if t.forObject {
				t.backoff.Delay = 0
				e.record.troubles[container] = t
			}
		}
		if e.record.sandbox.forObject {
			e.record.sandbox.backoff.Delay = 0
		}
		a.outdate(e)
		a.wake(e)
	}
}

// volumeArrived is arrived for a volume: what waits for it waits by its claim.
func (a *Agent) volumeArrived(name string) {
	for _, key := range sortedKeys(a.things.claims) {
		if claim := a.things.claims[key]; claim.Spec.VolumeName == name {
			a.arrived(session.Claims, claim.Namespace, claim.Name)
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
