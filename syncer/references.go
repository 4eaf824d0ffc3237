package syncer

import (
	"fmt"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scene is what the rules beyond one object look at: what a commit declares, what
// is live, and what the plan takes away.
type scene struct {
	desired *desired
	changed []*api.Manifest // that the plan is about
	live    store.Reader
	steps   []Step
	gone    map[store.Key]api.Provenance // by the steps
	first   bool                         // no commit has been applied yet

	autoscaled map[store.Key]store.Key // whose replicas an autoscaler sets, and which

	pods  map[string][]map[string]string // what podLabels found, by namespace
	named map[store.Key]*api.Manifest    // what is declared, without its namespace; made when first asked for
}

// reference is one object that a pod template names.
type reference struct {
	key      store.Key
	rule     string // that is broken when the object is not there
	field    string // where it is named
	entry    string // key of a ConfigMap or Secret that must be there, too; "" for none
	entryAt  string // its field
	optional bool
}

// template is the pod that an object makes, and its path in the manifest; nil for
// an object that makes none, also of a kind that is only stored.
func template(obj api.Object) (*corev1.PodTemplateSpec, string) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, ""
	case *appsv1.Deployment:
		return &o.Spec.Template, "spec.template."
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, "spec.template."
	case *corev1.ReplicationController:
		return o.Spec.Template, "spec.template."
	case *appsv1.StatefulSet:
		return &o.Spec.Template, "spec.template."
	case *appsv1.DaemonSet:
		return &o.Spec.Template, "spec.template."
	case *batchv1.Job:
		return &o.Spec.Template, "spec.template."
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, "spec.jobTemplate.spec.template."
	}
	return nil, ""
}

// references lists what an object's pods need in their namespace, with defaults.
// Kinds that this version does not know are left out.
func references(obj api.Object) []reference {
	t, at := template(obj)
	if t == nil {
		return nil
	}
	r := referrer{namespace: obj.GetNamespace()}
	at += "spec."
	spec := &t.Spec
	switch {
	case spec.ServiceAccountName != "":
		r.add(reference{key: r.key(api.ServiceAccounts(), spec.ServiceAccountName), rule: ruleAccount, field: at + "serviceAccountName"})
	case spec.DeprecatedServiceAccount != "":
		r.add(reference{key: r.key(api.ServiceAccounts(), spec.DeprecatedServiceAccount), rule: ruleAccount, field: at + "serviceAccount"})
	}
	if name := spec.PriorityClassName; !admission.SystemPriorityClass(name) {
		r.add(reference{key: store.Key{GroupResource: api.PriorityClasses(), Name: name}, rule: rulePriorityClass, field: at + "priorityClassName"})
	}
	for i, s := range spec.ImagePullSecrets {
		r.add(reference{key: r.key(api.Secrets(), s.Name), rule: rulePullSecret, field: fmt.Sprintf("%simagePullSecrets[%d].name", at, i)})
	}
	for i := range spec.InitContainers {
		r.container(fmt.Sprintf("%sinitContainers[%d].", at, i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		r.container(fmt.Sprintf("%scontainers[%d].", at, i), &spec.Containers[i])
	}
	for i := range spec.Volumes {
		r.volume(fmt.Sprintf("%svolumes[%d].", at, i), &spec.Volumes[i])
	}
	return r.found
}

type referrer struct {
	namespace string
	found     []reference
}

func (r *referrer) key(gr schema.GroupResource, name string) store.Key {
	return store.Key{GroupResource: gr, Namespace: r.namespace, Name: name}
}

func (r *referrer) add(ref reference) {
	if _, known := api.ResourceKind(ref.key.GroupResource); known && ref.key.Name != "" {
		r.found = append(r.found, ref)
	}
}

func (r *referrer) configMap(name string, optional *bool, field, entry, entryAt string) {
	r.add(reference{r.key(api.ConfigMaps(), name), ruleConfigMap, field, entry, entryAt, optional != nil && *optional})
}

func (r *referrer) secret(name string, optional *bool, field, entry, entryAt string) {
	r.add(reference{r.key(api.Secrets(), name), ruleSecret, field, entry, entryAt, optional != nil && *optional})
}

func (r *referrer) container(at string, c *corev1.Container) {
	for i, from := range c.EnvFrom {
		if f := from.ConfigMapRef; f != nil {
			r.configMap(f.Name, f.Optional, fmt.Sprintf("%senvFrom[%d].configMapRef.name", at, i), "", "")
		}
		if f := from.SecretRef; f != nil {
			r.secret(f.Name, f.Optional, fmt.Sprintf("%senvFrom[%d].secretRef.name", at, i), "", "")
		}
	}
	for i, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		at := fmt.Sprintf("%senv[%d].valueFrom.", at, i)
		if f := env.ValueFrom.ConfigMapKeyRef; f != nil {
			r.configMap(f.Name, f.Optional, at+"configMapKeyRef.name", f.Key, at+"configMapKeyRef.key")
		}
		if f := env.ValueFrom.SecretKeyRef; f != nil {
			r.secret(f.Name, f.Optional, at+"secretKeyRef.name", f.Key, at+"secretKeyRef.key")
		}
	}
}

func (r *referrer) volume(at string, v *corev1.Volume) {
	if f := v.PersistentVolumeClaim; f != nil {
		r.add(reference{key: r.key(api.PersistentVolumeClaims(), f.ClaimName), rule: ruleClaim, field: at + "persistentVolumeClaim.claimName"})
	}
	if f := v.ConfigMap; f != nil {
		r.items(at+"configMap.", f.Items, func(entry, entryAt string) {
			r.configMap(f.Name, f.Optional, at+"configMap.name", entry, entryAt)
		})
	}
	if f := v.Secret; f != nil {
		r.items(at+"secret.", f.Items, func(entry, entryAt string) {
			r.secret(f.SecretName, f.Optional, at+"secret.secretName", entry, entryAt)
		})
	}
	if v.Projected == nil {
		return
	}
	for i, source := range v.Projected.Sources {
		at := fmt.Sprintf("%sprojected.sources[%d].", at, i)
		if f := source.ConfigMap; f != nil {
			r.items(at+"configMap.", f.Items, func(entry, entryAt string) {
				r.configMap(f.Name, f.Optional, at+"configMap.name", entry, entryAt)
			})
		}
		if f := source.Secret; f != nil {
			r.items(at+"secret.", f.Items, func(entry, entryAt string) {
				r.secret(f.Name, f.Optional, at+"secret.name", entry, entryAt)
			})
		}
	}
}

// items adds a volume's object once, or once for each of the keys that it picks.
func (r *referrer) items(at string, items []corev1.KeyToPath, add func(entry, entryAt string)) {
	if len(items) == 0 {
		add("", "")
	}
	for i, item := range items {
		add(item.Key, fmt.Sprintf("%sitems[%d].key", at, i))
	}
}

// checkReferences finds what pods need and will not find: of the manifests that
// change, whatever is not there; of the others, what the plan takes away.
func checkReferences(c *scene, f *findings) {
	taken := false // something that can be referred to
	for key := range c.gone {
		switch key.GroupResource {
		case api.ConfigMaps(), api.Secrets(), api.ServiceAccounts(), api.PersistentVolumeClaims():
			taken = true
		}
	}
	changed := make(map[*api.Manifest]bool, len(c.changed))
	for _, m := range c.changed {
		changed[m] = true
		c.checkManifest(m, true, f)
	}
	if !taken {
		return
	}
	for _, m := range c.desired.list {
		if !changed[m] {
			c.checkManifest(m, false, f)
		}
	}
}

// checkManifest looks at the references of one manifest; unless all, only at those
// to what is gone.
func (c *scene) checkManifest(m *api.Manifest, all bool, f *findings) {
	said := map[store.Key]bool{}
	for _, r := range references(m.Object) {
		from, removed := c.gone[r.key]
		if r.optional || said[r.key] || !all && !removed || isDefaultAccount(r.key) {
			continue
		}
		switch obj := c.find(r.key); {
		case obj != nil:
			if r.entry != "" && !hasEntry(obj, r.entry) {
				f.add(ruleKey, problem(m, r.entryAt, fmt.Sprintf("%s has no key %q: add it there, or set optional: true", titleOf(r.key), r.entry)))
			}
			continue
		case removed:
			rule := ruleInUse
			if severity(r.rule) == Warning {
				rule = r.rule
			}
			f.add(rule, problem(m, r.field, fmt.Sprintf("%s is removed by this commit (it was %s:%d), and %s needs it: keep its manifest, or take the reference out",
				titleOf(r.key), from.Path, from.Line, titleOf(keyOf(m)))))
		default:
			f.add(c.missingRule(r), problem(m, r.field, c.missingReason(r)))
		}
		said[r.key] = true
	}
}

// find returns the object as it will be when the commit is applied; nil when it
// will not be there.
func (c *scene) find(key store.Key) api.Object {
	if m := c.desired.manifest(key); m != nil {
		return m.Object
	}
	if _, removed := c.gone[key]; removed {
		return nil
	}
	obj := c.live.Get(key)
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		return nil
	}
	return obj
}

// isDefaultAccount is true for the ServiceAccount that every namespace has.
func isDefaultAccount(key store.Key) bool {
	return key.GroupResource == api.ServiceAccounts() && key.Name == "default"
}

// missingRule is the reference's own rule, or the milder one where nobody can have
// made the object by hand yet.
func (c *scene) missingRule(r reference) string {
	newGround := c.first || r.key.Namespace != "" && !admission.Permanent(r.key.Namespace) && c.live.Get(store.Key{GroupResource: api.Namespaces(), Name: r.key.Namespace}) == nil
	if newGround && severity(r.rule) == Error {
		return ruleNewGround
	}
	return r.rule
}

func (c *scene) missingReason(r reference) string {
	reason := fmt.Sprintf("%s is neither in this commit nor in the cluster", titleOf(r.key))
	if c.named == nil {
		c.named = map[store.Key]*api.Manifest{}
		for _, m := range c.desired.list {
			key := keyOf(m)
			key.Namespace = ""
			c.named[key] = m
		}
	}
	elsewhere := r.key
	elsewhere.Namespace = ""
	if m := c.named[elsewhere]; m != nil {
		return reason + fmt.Sprintf(": the one declared in %s is in namespace %q, and pods see only their own", place(m), m.Object.GetNamespace())
	}
	way := ": declare it, or make it before you push"
	switch r.key.GroupResource {
	case api.ConfigMaps(), api.Secrets():
		if r.rule != rulePullSecret {
			way = ": declare it, make it before you push, or set optional: true where pods can do without"
		}
	}
	return reason + way
}

// hasEntry says whether a ConfigMap or Secret has a key.
func hasEntry(obj api.Object, name string) bool {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		_, text := o.Data[name]
		_, binary := o.BinaryData[name]
		return text || binary
	case *corev1.Secret:
		_, text := o.StringData[name]
		_, data := o.Data[name]
		return text || data
	}
	return true
}
