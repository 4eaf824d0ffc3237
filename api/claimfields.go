package api

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NoProvisioner is what Kubernetes calls the provisioner of a class whose volumes
// are all declared.
const NoProvisioner = "kubernetes.io/no-provisioner"

const (
	noDrivers    = "storage drivers are not run"
	noClouds     = "disks of clouds are not mounted"
	noBlocks     = "block devices are not handed to containers"
	noAttributes = "claims have no attribute classes"
)

// claimRules are the rows of what a claim asks for, wherever it stands.
func claimRules(spec string) []FieldRule {
	return slices.Concat(
		acted(spec+".", "accessModes[] resources.requests.storage storageClassName volumeName"),
		selector(spec+".selector"),
		harmless("Kubernetes bounds no volume by it, either", spec+".", "resources.limits"),
		only(spec+".volumeMode", noBlocks, string(corev1.PersistentVolumeFilesystem)),
		refused("volumes are made empty: copy the data in a pod", spec+".", "dataSource dataSourceRef"),
		refused(noAttributes, spec+".", "volumeAttributesClassName"),
	)
}

// claimTemplateRules are the rows of a template from which claims are made.
func claimTemplateRules(path string) []FieldRule {
	return slices.Concat(template(path), claimRules(path+".spec"))
}

// setClaimRules are the rows of a StatefulSet's templates, which are whole claims.
func setClaimRules() []FieldRule {
	const path = "spec.volumeClaimTemplates[]"
	out := slices.DeleteFunc(claimTemplateRules(path), func(r FieldRule) bool { return r.Path == path+".metadata.name" })
	return slices.Concat(out, acted(path+".", "metadata.name"),
		harmless("a template is a claim and nothing else", path+".", "apiVersion kind"),
		harmless("ignored: the cluster writes the status", path+".", "status"))
}

func persistentVolumeRules() []FieldRule {
	return slices.Concat(
		acted("spec.", "capacity.storage accessModes[] storageClassName mountOptions[] hostPath.path hostPath.type local.path nfs.server nfs.path nfs.readOnly"),
		harmless("a local volume is a folder: no disk is formatted", "spec.", "local.fsType"),
		acted("spec.claimRef.", "namespace name uid"),
		harmless("a volume is claimed by claims alone", "spec.claimRef.", "kind apiVersion resourceVersion fieldPath"),
		only("spec.persistentVolumeReclaimPolicy", "a volume is not wiped to be used again", string(corev1.PersistentVolumeReclaimRetain), string(corev1.PersistentVolumeReclaimDelete)),
		only("spec.volumeMode", noBlocks, string(corev1.PersistentVolumeFilesystem)),
		nodeTerm("spec.nodeAffinity.required.nodeSelectorTerms[]."),
		refused(noDrivers, "spec.", "csi flexVolume"),
		refused("file systems of other machines are mounted by nfs alone", "spec.", "glusterfs rbd iscsi cephfs fc flocker quobyte portworxVolume scaleIO storageos"),
		refused(noClouds, "spec.", "gcePersistentDisk awsElasticBlockStore cinder azureFile azureDisk vsphereVolume photonPersistentDisk"),
		refused(noAttributes, "spec.", "volumeAttributesClassName"),
	)
}

func storageClassRules() []FieldRule {
	return slices.Concat(
		acted("", "provisioner volumeBindingMode allowVolumeExpansion"),
		harmless("they are told to the provisioner; "+LocalProvisioner+" has none, and a class of it that names one is refused", "", "parameters mountOptions"),
		only("reclaimPolicy", "a volume is not wiped to be used again", string(corev1.PersistentVolumeReclaimRetain), string(corev1.PersistentVolumeReclaimDelete)),
		acted("allowedTopologies[].matchLabelExpressions[].", "key values[]"),
	)
}

// LocalClassOf says whether the volumes of a class are folders on nodes that are
// made where the first pod of a claim is placed.
func LocalClassOf(class *storagev1.StorageClass) bool { return class.Provisioner == LocalProvisioner }

// unmade lists what a StorageClass of Headway's own provisioner asks for and does
// not get.
func unmade(class *storagev1.StorageClass) (errs field.ErrorList) {
	if !LocalClassOf(class) {
		return nil
	}
	const no = "not supported by this version of Headway: "
	if mode := class.VolumeBindingMode; mode != nil && *mode != storagev1.VolumeBindingWaitForFirstConsumer {
		errs = append(errs, field.Forbidden(field.NewPath("volumeBindingMode"), no+"a volume of "+LocalProvisioner+" is made on the node of its first pod: write WaitForFirstConsumer"))
	}
	for _, name := range slices.Sorted(maps.Keys(class.Parameters)) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters").Key(name), no+LocalProvisioner+" has no parameters"))
	}
	if len(class.MountOptions) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("mountOptions"), no+"a folder on a node is not mounted with options"))
	}
	return errs
}

// unmounted lists what a PersistentVolume asks for and no node does.
func unmounted(v *corev1.PersistentVolume) (errs field.ErrorList) {
	if len(v.Spec.MountOptions) > 0 && (v.Spec.Local != nil || v.Spec.HostPath != nil) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "mountOptions"), "not supported by this version of Headway: a folder on a node is not mounted with options"))
	}
	if v.Annotations[ProvisionedByAnnotation] == LocalProvisioner {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(ProvisionedByAnnotation), "a volume of "+LocalProvisioner+" is made by the cluster, which removes its data: remove the annotation"))
	}
	return errs
}

// ClassNote is what whoever declares a class is told although it is accepted; "" for
// nothing.
func ClassNote(class *storagev1.StorageClass) string {
	if class.Provisioner == NoProvisioner || LocalClassOf(class) {
		return ""
	}
	return "no driver " + strings.TrimSpace(class.Provisioner) + " is run: no volume is made for a claim of this class, which stays pending unless a PersistentVolume of the class is declared (the class " + LocalClass + " makes volumes on nodes)"
}
