package api

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Complete gives a new object what Kubernetes' API does when one is
// created and its defaulting does not.
func Complete(obj Object) {
	switch o := obj.(type) {
	case *appsv1.DaemonSet:
		if templateGeneration(o) < 1 {
			setTemplateGeneration(o, 1)
		}
	case *corev1.PersistentVolume:
		o.Status.Phase = corev1.VolumePending
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimPending
	case *apiextensionsv1.CustomResourceDefinition:
		storeVersion(o)
	}
}

// CompleteChange gives a changed object what Kubernetes' API does
// when one is updated.
func CompleteChange(obj, old Object) {
	switch o := obj.(type) {
	case *appsv1.DaemonSet:
		was := old.(*appsv1.DaemonSet)
		n := templateGeneration(was)
		if !equality.Semantic.DeepEqual(o.Spec.Template, was.Spec.Template) {
			n++
		}
		if n != templateGeneration(o) {
			setTemplateGeneration(o, n)
		}
	case *apiextensionsv1.CustomResourceDefinition:
		storeVersion(o)
	}
}

// templateGeneration counts the changes of a DaemonSet's template: Kubernetes'
// validation still asks for it, and apps/v1 has it in an annotation. 0 is none.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(n, 10))
}

// storeVersion says in which version the objects of a custom kind are kept. There
// are none, so it is the one that is written now, and none of before holds a change
// up.
func storeVersion(d *apiextensionsv1.CustomResourceDefinition) {
	d.Status.StoredVersions = nil
	for _, v := range d.Spec.Versions {
		if v.Storage {
			d.Status.StoredVersions = []string{v.Name}
		}
	}
}
