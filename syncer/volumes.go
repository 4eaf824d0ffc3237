package syncer

import (
	"fmt"
	"slices"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// declaredClaim is what a manifest asks for in a claim, or in a template of claims.
type declaredClaim struct {
	at   string // its place in the manifest, with a dot behind it: ""
	spec *corev1.PersistentVolumeClaimSpec
	old  string // the class by the annotation of before
}

// claimsIn are the claims that a manifest declares or has made.
func claimsIn(obj api.Object) (out []declaredClaim) {
	add := func(at string, spec *corev1.PersistentVolumeClaimSpec, annotations map[string]string) {
		out = append(out, declaredClaim{at, spec, annotations[corev1.BetaStorageClassAnnotation]})
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		add("", &o.Spec, o.Annotations)
	case *appsv1.StatefulSet:
		for i := range o.Spec.VolumeClaimTemplates {
			t := &o.Spec.VolumeClaimTemplates[i]
			add(fmt.Sprintf("spec.volumeClaimTemplates[%d].", i), &t.Spec, t.Annotations)
		}
	}
	if t, at := template(obj); t != nil {
		for i := range t.Spec.Volumes {
			if e := t.Spec.Volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
				add(fmt.Sprintf("%sspec.volumes[%d].ephemeral.volumeClaimTemplate.", at, i), &e.VolumeClaimTemplate.Spec, e.VolumeClaimTemplate.Annotations)
			}
		}
	}
	return out
}

// checkVolumes tells who declares a class of a driver that nobody runs, a claim that
// stays without a volume, and one that keeps its pods on one node.
func checkVolumes(c *scene, f *findings) {
	var classes []*storagev1.StorageClass
	for _, m := range c.changed {
		if class, ok := m.Object.(*storagev1.StorageClass); ok {
			if note := api.ClassNote(class); note != "" {
				f.add(ruleDriver, problem(m, "provisioner", note))
			}
		}
		for _, claim := range claimsIn(m.Object) {
			if classes == nil {
				classes = c.classes()
			}
			c.checkClaim(m, claim, classes, f)
		}
	}
}

// classes are those that there will be.
func (c *scene) classes() []*storagev1.StorageClass {
	out := []*storagev1.StorageClass{}
	for _, obj := range c.after(api.StorageClasses())[""] {
		if class, ok := obj.(*storagev1.StorageClass); ok {
			out = append(out, class)
		}
	}
	if !slices.ContainsFunc(out, func(c *storagev1.StorageClass) bool { return c.Name == api.LocalClass }) {
		class := &storagev1.StorageClass{Provisioner: api.LocalProvisioner} // the cluster makes it
		class.Name = api.LocalClass
		if admission.DefaultClass(out) == nil {
			class.Annotations = map[string]string{admission.DefaultClassAnnotation: "true"}
		}
		out = append(out, class)
	}
	return out
}

func (c *scene) checkClaim(m *api.Manifest, claim declaredClaim, classes []*storagev1.StorageClass, f *findings) {
	name, field := claim.old, claim.at+"spec.storageClassName"
	switch {
	case name != "":
		field = claim.at + "metadata.annotations"
	case claim.spec.StorageClassName != nil:
		name = *claim.spec.StorageClassName
	default:
		if d := admission.DefaultClass(classes); d != nil {
			name, field = d.Name, claim.at+"spec"
		}
	}
	if name == "" {
		return
	}
	i := slices.IndexFunc(classes, func(c *storagev1.StorageClass) bool { return c.Name == name })
	switch {
	case i < 0:
		if claim.spec.VolumeName == "" && !c.declaresVolume(name) {
			f.add(ruleNoClass, problem(m, field, fmt.Sprintf("StorageClass %q is neither in this commit nor in the cluster: the claim gets no volume unless a PersistentVolume of that class is there; the class %s makes volumes on nodes", name, api.LocalClass)))
		}
	case api.LocalClassOf(classes[i]):
		for _, mode := range claim.spec.AccessModes {
			if mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany {
				f.add(ruleOneNode, problem(m, claim.at+"spec.accessModes", fmt.Sprintf("%s of the class %s: its volume is a folder on one node, so all its pods run on that node", mode, name)))
				return
			}
		}
	case api.ClassNote(classes[i]) != "" && claim.spec.VolumeName == "" && !c.declaresVolume(name):
		f.add(ruleDriver, problem(m, field, fmt.Sprintf("StorageClass %q: %s", name, api.ClassNote(classes[i]))))
	}
}

// declaresVolume says whether there will be a volume of a class.
func (c *scene) declaresVolume(class string) bool {
	return slices.ContainsFunc(c.after(api.PersistentVolumes())[""], func(obj api.Object) bool {
		v, ok := obj.(*corev1.PersistentVolume)
		return ok && storagehelpers.GetPersistentVolumeClass(v) == class
	})
}

// claimHealth is that a claim has its volume, or that it waits as its class says.
func claimHealth(claim *corev1.PersistentVolumeClaim, r store.Reader) (State, string) {
	name := storagehelpers.GetPersistentVolumeClaimClass(claim)
	class, _ := r.Get(store.Key{GroupResource: api.StorageClasses(), Name: name}).(*storagev1.StorageClass)
	switch {
	case claim.Status.Phase == corev1.ClaimLost:
		return Failed, fmt.Sprintf("its volume %s is gone, and the data with it", claim.Spec.VolumeName)
	case binding.Complete(claim):
		return Healthy, "bound to " + claim.Spec.VolumeName
	case claim.Spec.VolumeName != "":
		return Progressing, fmt.Sprintf("waiting for volume %s", claim.Spec.VolumeName)
	case name == "":
		return Progressing, "waiting for a PersistentVolume without a class"
	case class == nil:
		return Progressing, fmt.Sprintf("waiting for a PersistentVolume of class %s: there is no StorageClass of this name", name)
	case api.ClassNote(class) != "":
		return Progressing, fmt.Sprintf("waiting for a PersistentVolume of class %s: no driver %s is run", name, class.Provisioner)
	case binding.Delayed(class):
		return Healthy, "waiting for its first pod"
	}
	return Progressing, fmt.Sprintf("waiting for a PersistentVolume of class %s", name)
}

// volumeHealth is that nobody has to see to a volume.
func volumeHealth(v *corev1.PersistentVolume) (State, string) {
	switch v.Status.Phase {
	case corev1.VolumeFailed:
		return Failed, v.Status.Message
	case corev1.VolumeBound:
		if ref := v.Spec.ClaimRef; ref != nil {
			return Healthy, fmt.Sprintf("bound to %s/%s", ref.Namespace, ref.Name)
		}
	case corev1.VolumeReleased:
		return Healthy, "released: its claim is gone and the data is kept"
	}
	return Healthy, "available"
}

// takesClaims says whether the claims of an object, and the data in them, go with it.
func takesClaims(obj api.Object) bool {
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok || len(set.Spec.VolumeClaimTemplates) == 0 {
		return false
	}
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	return p != nil && p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// ownedClaims names the claims that go with an object.
func ownedClaims(obj api.Object, r store.Reader) (out []string) {
	for _, owned := range r.Owned(obj.GetUID()) {
		if claim, ok := owned.(*corev1.PersistentVolumeClaim); ok {
			if len(out) == maxAlong {
				return append(out, "more")
			}
			out = append(out, titleOf(store.KeyOf(claim)))
		}
	}
	return out
}

// resizes says why a claim cannot be changed to another size.
func resizes(m *api.Manifest, out, live api.Object, classes []api.Object) []api.Problem {
	claim, ok := out.(*corev1.PersistentVolumeClaim)
	old, was := live.(*corev1.PersistentVolumeClaim)
	if !ok || !was {
		return nil
	}
	if err := admission.Resize(claim, old, classes); err != nil {
		return []api.Problem{problem(m, "spec.resources.requests.storage", err.Error())}
	}
	return nil
}

// changesClaims says whether a StatefulSet is to make other claims than it has made.
func changesClaims(obj, live api.Object) bool {
	is, ok := obj.(*appsv1.StatefulSet)
	was, had := live.(*appsv1.StatefulSet)
	return ok && had && !equality.Semantic.DeepEqual(is.Spec.VolumeClaimTemplates, was.Spec.VolumeClaimTemplates)
}
