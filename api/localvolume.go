package api

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubernetes' finalizers that keep claims and volumes which are in use.
const (
	ProtectClaim  = "kubernetes.io/pvc-protection" // a pod uses the claim
	ProtectVolume = "kubernetes.io/pv-protection"  // the volume is bound
)

// The built-in class of persistent volumes: a folder on the node that the first pod
// of a claim is placed on. The scheduler makes the volume in the transaction that
// places the pod; the node's agent makes the folder, and removes it before the
// volume's object may go.
const (
	// LocalClass is the name of the StorageClass that every cluster has.
	LocalClass = "local"
	// LocalProvisioner is the provisioner of LocalClass, and of any other StorageClass
	// whose volumes are folders on nodes.
	LocalProvisioner = "headway.dev/local"
	// LocalVolumeFinalizer keeps a PersistentVolume's object until its node's agent has
	// removed the data.
	LocalVolumeFinalizer = "headway.dev/local-volume"
	// VolumesDirAnnotation is set by an agent on its Node: the folder in which it makes
	// volumes, one folder per PersistentVolume, by name. A Node without it makes none.
	VolumesDirAnnotation = "headway.dev/volumes-dir"
	// ProvisionedByAnnotation is Kubernetes' own, on a PersistentVolume that was made
	// for a claim: the name of the provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)

// LocalVolumeAffinity ties a volume to the node that has its data: by the node's name,
// which no agent can change, where every label of a Node may be of its agent's making.
func LocalVolumeAffinity(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}

// LocalVolumeNode is the node that has the data of a volume of LocalProvisioner, as
// LocalVolumeAffinity says it; "" for every other volume.
func LocalVolumeNode(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Annotations[ProvisionedByAnnotation] != LocalProvisioner || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchExpressions) > 0 || len(terms[0].MatchFields) != 1 {
		return ""
	}
	if f := terms[0].MatchFields[0]; f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
		return f.Values[0]
	}
	return ""
}

// ClaimName is the claim that a volume of a pod is of, in the pod's namespace; "" if it
// is of none.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}
