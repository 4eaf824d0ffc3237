package binding

import (
	"fmt"
	"maps"
	"slices"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// Complete says whether a claim has its volume.
func Complete(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && metav1.HasAnnotation(claim.ObjectMeta, storagehelpers.AnnBindCompleted)
}

// Holds says whether a volume is a claim's by the word of both.
func Holds(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return Complete(claim) && claim.Spec.VolumeName == v.Name && v.Spec.ClaimRef != nil && storagehelpers.IsVolumeBoundToClaim(v, claim)
}

// Delayed says whether the volumes of a class wait for the pod that decides where they
// are; nil is no class.
func Delayed(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Mismatch says what keeps a volume from being a claim's that names it, or is named in
// it; "" for nothing.
func Mismatch(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) string {
	has, wants := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	class, wanted := storagehelpers.GetPersistentVolumeClass(v), storagehelpers.GetPersistentVolumeClaimClass(claim)
	switch {
	case has.Cmp(wants) < 0:
		return "requested PV is too small"
	case class != wanted:
		return "storageClassName does not match"
	case storagehelpers.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return "incompatible volumeMode"
	case !storagehelpers.CheckAccessModes(claim, v):
		return "incompatible accessMode"
	}
	return ""
}

// Candidates are the volumes that a claim without one may be bound to, the best first:
// the one that names the claim, and then alone; else those that nobody has, the
// smallest first. Where a volume can be reached from is not asked.
func Candidates(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume) ([]*corev1.PersistentVolume, error) {
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(claim.Spec.Selector); err != nil {
			return nil, fmt.Errorf("selector of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	var out []*corev1.PersistentVolume
	for _, v := range volumes {
		switch {
		case v.DeletionTimestamp != nil || Mismatch(v, claim) != "":
		case v.Spec.ClaimRef != nil:
			if storagehelpers.IsVolumeBoundToClaim(v, claim) {
				return []*corev1.PersistentVolume{v}, nil
			}
		case (v.Status.Phase == corev1.VolumeAvailable || v.Status.Phase == corev1.VolumePending || v.Status.Phase == "") && selector.Matches(labels.Set(v.Labels)):
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b *corev1.PersistentVolume) int {
		x, y := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
		return x.Cmp(y)
	})
	return out, nil
}

// Bind is both sides bound to each other, as they are to be written. Neither argument
// is changed.
func Bind(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	volume, _, err := storagehelpers.GetBindVolumeToClaim(v, claim)
	if err != nil {
		return nil, nil, fmt.Errorf("bind volume %s to claim %s/%s: %w", v.Name, claim.Namespace, claim.Name, err)
	}
	volume.Status.Phase, volume.Status.Reason, volume.Status.Message = corev1.VolumeBound, "", ""
	volume.Finalizers = with(volume.Finalizers, api.ProtectVolume)

	out := claim.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if claim.Spec.VolumeName == "" {
		out.Annotations[storagehelpers.AnnBoundByController] = "yes"
	}
	out.Annotations[storagehelpers.AnnBindCompleted] = "yes"
	out.Spec.VolumeName = v.Name
	out.Finalizers = with(out.Finalizers, api.ProtectClaim)
	Report(out, v)
	return volume, out, nil
}

// Report writes into a claim's status that it has a volume.
func Report(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.AccessModes = slices.Clone(v.Spec.AccessModes)
	claim.Status.Capacity = maps.Clone(v.Spec.Capacity)
}

// Provision is the volume that is made for a claim on a node, and the claim, bound to
// each other. The folder is made by the node's agent, and removed by it before the
// volume's object goes.
func Provision(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	mode, policy := corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	name := "pvc-" + string(claim.UID)
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{api.ProvisionedByAnnotation: api.LocalProvisioner},
			Finalizers:  []string{api.ProtectVolume, api.LocalVolumeFinalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: node.Annotations[api.VolumesDirAnnotation] + "/" + name}},
			AccessModes:                   slices.Clone(claim.Spec.AccessModes),
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			VolumeMode:                    &mode,
			NodeAffinity:                  api.LocalVolumeAffinity(node.Name),
		},
	}
	volume, out, err := Bind(v, claim)
	if err != nil {
		return nil, nil, err
	}
	out.Annotations[storagehelpers.AnnSelectedNode] = node.Name
	out.Annotations[storagehelpers.AnnStorageProvisioner] = api.LocalProvisioner
	return volume, out, nil
}

func with(list []string, one string) []string {
	if slices.Contains(list, one) {
		return list
	}
	return append(slices.Clone(list), one)
}

// Allows says whether a class may have volumes on a node, by its allowedTopologies.
func Allows(class *storagev1.StorageClass, node *corev1.Node) bool {
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(r corev1.TopologySelectorLabelRequirement) bool {
			value, has := node.Labels[r.Key]
			return !has || !slices.Contains(r.Values, value)
		})
	})
}
