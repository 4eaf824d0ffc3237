package admission

import (
	"errors"
	"slices"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// DefaultClassAnnotation is Kubernetes' own: "true" on the class that claims get which
// name none.
const DefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// DefaultClass is the class that a claim gets which names none; nil for none. Of several
// the youngest counts, as in Kubernetes.
func DefaultClass(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var out *storagev1.StorageClass
	for _, c := range classes {
		if c.Annotations[DefaultClassAnnotation] != "true" && c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true" || c.DeletionTimestamp != nil {
			continue
		}
		if out == nil || out.CreationTimestamp.Before(&c.CreationTimestamp) || out.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < out.Name {
			out = c
		}
	}
	return out
}

// WithDefaultClass is the claim with the default class when it names none; the same one
// when nothing is to be done.
func WithDefaultClass(claim *corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) *corev1.PersistentVolumeClaim {
	if _, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old || claim.Spec.StorageClassName != nil {
		return claim
	}
	class := DefaultClass(classes)
	if class == nil {
		return claim
	}
	out := claim.DeepCopy()
	out.Spec.StorageClassName = &class.Name
	return out
}

// Claim is a new claim as it is to be written: with the default class when it names
// none, and protected while a pod uses it.
func Claim(claim *corev1.PersistentVolumeClaim, classes []api.Object) *corev1.PersistentVolumeClaim {
	out := WithDefaultClass(claim, classesOf(classes))
	if slices.Contains(out.Finalizers, api.ProtectClaim) {
		return out
	}
	out = out.DeepCopy()
	out.Finalizers = append(out.Finalizers, api.ProtectClaim)
	return out
}

// volume is a new volume, protected while a claim has it.
func volume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	if slices.Contains(v.Finalizers, api.ProtectVolume) {
		return v
	}
	out := v.DeepCopy()
	out.Finalizers = append(out.Finalizers, api.ProtectVolume)
	return out
}

// Resize refuses that a claim asks for more than its volume has, unless its class lets
// its volumes grow.
func Resize(claim, old *corev1.PersistentVolumeClaim, classes []api.Object) error {
	was, is := old.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if is.Cmp(was) <= 0 {
		return nil
	}
	refuse := func(why string) error {
		return apierrors.NewForbidden(api.PersistentVolumeClaims(), claim.Name, errors.New(why))
	}
	if old.Status.Phase != corev1.ClaimBound {
		return refuse("Only bound persistent volume claims can be expanded")
	}
	name := ""
	if claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	for _, c := range classesOf(classes) {
		if c.Name == name && c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion {
			return nil
		}
	}
	return refuse("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
}

func classesOf(objects []api.Object) (out []*storagev1.StorageClass) {
	for _, obj := range objects {
		if c, ok := obj.(*storagev1.StorageClass); ok {
			out = append(out, c)
		}
	}
	return out
}
