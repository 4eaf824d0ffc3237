package podset

import (
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// AnnotationRefs is where a ReplicaSet or a ControllerRevision records the declared
// content that its template refers to (D13): refsVersion, a colon, and name=hash pairs.
const AnnotationRefs = "headway.dev/refs"

// refsVersion is the version of what is hashed and how it is written. A record of
// another version counts as missing.
const refsVersion = "v1"

// refHash is how much of a manifest's hash is recorded.
const refHash = 16

// Refs returns the manifest hash of each declared ConfigMap and Secret that a
// template names. Objects that no source declares are left out: nobody's commit
// changes them.
func Refs(r store.Reader, namespace string, template *corev1.PodTemplateSpec) map[string]string {
	refs := map[string]string{}
	for _, name := range RefNames(&template.Spec) {
		kind, object, _ := strings.Cut(name, "/")
		key := store.Key{GroupResource: api.ConfigMaps(), Namespace: namespace, Name: object}
		if kind == "secret" {
			key.GroupResource = api.Secrets()
		}
		if hash := ContentHash(r.Get(key)); hash != "" {
			refs[name] = hash
		}
	}
	return refs
}

// ContentHash is the hash of the manifest that declares obj; "" for none.
func ContentHash(obj api.Object) string {
	if obj == nil {
		return ""
	}
	p, ok := api.ProvenanceOf(obj)
	if !ok {
		return ""
	}
	return p.Hash[:min(refHash, len(p.Hash))]
}

// RefName is how a record names a ConfigMap or Secret.
func RefName(key store.Key) string {
	if key.GroupResource == api.Secrets() {
		return "secret/" + key.Name
	}
	return "configmap/" + key.Name
}

// RefNames lists the ConfigMaps and Secrets that a pod reads, sorted, each once.
// Pull secrets are not content of the pod.
func RefNames(spec *corev1.PodSpec) []string {
	names := map[string]bool{}
	add := func(kind, name string) {
		if name != "" {
			names[kind+"/"+name] = true
		}
	}
	var debug []corev1.Container
	for i := range spec.EphemeralContainers {
		debug = append(debug, corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers, debug} {
		for i := range containers {
			for _, from := range containers[i].EnvFrom {
				if from.ConfigMapRef != nil {
					add("configmap", from.ConfigMapRef.Name)
				}
				if from.SecretRef != nil {
					add("secret", from.SecretRef.Name)
				}
			}
			for _, env := range containers[i].Env {
				if from := env.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
					add("configmap", from.ConfigMapKeyRef.Name)
				} else if from != nil && from.SecretKeyRef != nil {
					add("secret", from.SecretKeyRef.Name)
				}
			}
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.ConfigMap != nil {
			add("configmap", v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add("secret", v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil {
				add("configmap", source.ConfigMap.Name)
			}
			if source.Secret != nil {
				add("secret", source.Secret.Name)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// RecordedRefs reads a record; what cannot be read counts as missing.
func RecordedRefs(on api.Object) map[string]string {
	refs := map[string]string{}
	record, ok := strings.CutPrefix(on.GetAnnotations()[AnnotationRefs], refsVersion+":")
	if !ok {
		return refs
	}
	for _, pair := range strings.Split(record, ",") {
		if name, hash, ok := strings.Cut(pair, "="); ok {
			refs[name] = hash
		}
	}
	return refs
}

// SameRefs says whether no recorded hash differs from the present one.
func SameRefs(recorded, present map[string]string) bool {
	for name, hash := range present {
		if before, ok := recorded[name]; ok && before != hash {
			return false
		}
	}
	return true
}

// FillRefs records what is not recorded yet. The object is the caller's own copy.
func FillRefs(on api.Object, present map[string]string) {
	refs := RecordedRefs(on)
	for name, hash := range present {
		refs[name] = hash
	}
	if len(refs) == 0 {
		return
	}
	pairs := make([]string, 0, len(refs))
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		pairs = append(pairs, name+"="+refs[name])
	}
	annotations := on.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationRefs] = refsVersion + ":" + strings.Join(pairs, ",")
	on.SetAnnotations(annotations)
}
