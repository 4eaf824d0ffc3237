package api

import (
	"strings"
	"sync"
)

// removal says since which release of Kubernetes no cluster accepts some kinds
// under an apiVersion, and what to write instead.
type removal struct {
	apiVersion  string
	release     string // "1.16"; "" for those of before 1.0
	kinds       string // by spaces
	replacement string // "" where there is none
}

// removals follow Kubernetes' deprecated API migration guide; a test compares
// them with the life cycles in k8s.io/api.
func removals() []removal {
	return []removal{
		{"extensions/v1beta1", "1.16", "Deployment DaemonSet ReplicaSet", "apps/v1"},
		{"extensions/v1beta1", "1.16", "NetworkPolicy", "networking.k8s.io/v1"},
		{"extensions/v1beta1", "1.22", "Ingress", "networking.k8s.io/v1"},
		{"extensions/v1beta1", "1.16", "PodSecurityPolicy", ""},
		{"apps/v1beta1", "1.16", "Deployment StatefulSet ControllerRevision", "apps/v1"},
		{"apps/v1beta2", "1.16", "Deployment DaemonSet ReplicaSet StatefulSet ControllerRevision", "apps/v1"},
		{"batch/v2alpha1", "1.21", "CronJob", "batch/v1"},
		{"batch/v1beta1", "1.25", "CronJob", "batch/v1"},
		{"autoscaling/v2beta1", "1.25", "HorizontalPodAutoscaler", "autoscaling/v2"},
		{"autoscaling/v2beta2", "1.26", "HorizontalPodAutoscaler", "autoscaling/v2"},
		{"policy/v1beta1", "1.25", "PodDisruptionBudget Eviction", "policy/v1"},
		{"policy/v1beta1", "1.25", "PodSecurityPolicy", ""},
		{"networking.k8s.io/v1beta1", "1.22", "Ingress IngressClass", "networking.k8s.io/v1"},
		{"networking.k8s.io/v1beta1", "1.37", "IPAddress ServiceCIDR", "networking.k8s.io/v1"},
		{"rbac.authorization.k8s.io/v1beta1", "1.22", "Role RoleBinding ClusterRole ClusterRoleBinding", "rbac.authorization.k8s.io/v1"},
		{"rbac.authorization.k8s.io/v1alpha1", "1.22", "Role RoleBinding ClusterRole ClusterRoleBinding", "rbac.authorization.k8s.io/v1"},
		{"authorization.k8s.io/v1beta1", "1.22", "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview", "authorization.k8s.io/v1"},
		{"authentication.k8s.io/v1beta1", "1.22", "TokenReview", "authentication.k8s.io/v1"},
		{"authentication.k8s.io/v1beta1", "1.33", "SelfSubjectReview", "authentication.k8s.io/v1"},
		{"storage.k8s.io/v1beta1", "1.22", "StorageClass VolumeAttachment CSIDriver CSINode", "storage.k8s.io/v1"},
		{"storage.k8s.io/v1beta1", "1.27", "CSIStorageCapacity", "storage.k8s.io/v1"},
		{"storage.k8s.io/v1beta1", "1.37", "VolumeAttributesClass", "storage.k8s.io/v1"},
		{"storage.k8s.io/v1alpha1", "1.24", "VolumeAttachment CSIStorageCapacity", "storage.k8s.io/v1"},
		{"storage.k8s.io/v1alpha1", "1.35", "VolumeAttributesClass", "storage.k8s.io/v1"},
		{"scheduling.k8s.io/v1beta1", "1.22", "PriorityClass", "scheduling.k8s.io/v1"},
		{"scheduling.k8s.io/v1alpha1", "1.17", "PriorityClass", "scheduling.k8s.io/v1"},
		{"coordination.k8s.io/v1beta1", "1.22", "Lease", "coordination.k8s.io/v1"},
		{"discovery.k8s.io/v1beta1", "1.25", "EndpointSlice", "discovery.k8s.io/v1"},
		{"events.k8s.io/v1beta1", "1.25", "Event", "v1"},
		{"node.k8s.io/v1beta1", "1.25", "RuntimeClass", "node.k8s.io/v1"},
		{"certificates.k8s.io/v1beta1", "1.22", "CertificateSigningRequest", "certificates.k8s.io/v1"},
		{"apiextensions.k8s.io/v1beta1", "1.22", "CustomResourceDefinition", "apiextensions.k8s.io/v1"},
		{"apiregistration.k8s.io/v1beta1", "1.22", "APIService", "apiregistration.k8s.io/v1"},
		{"admissionregistration.k8s.io/v1beta1", "1.22", "MutatingWebhookConfiguration ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1"},
		{"admissionregistration.k8s.io/v1beta1", "1.34", "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1"},
		{"admissionregistration.k8s.io/v1alpha1", "1.32", "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1"},
		{"flowcontrol.apiserver.k8s.io/v1beta1", "1.26", "FlowSchema PriorityLevelConfiguration", "flowcontrol.apiserver.k8s.io/v1"},
		{"flowcontrol.apiserver.k8s.io/v1beta2", "1.29", "FlowSchema PriorityLevelConfiguration", "flowcontrol.apiserver.k8s.io/v1"},
		{"flowcontrol.apiserver.k8s.io/v1beta3", "1.32", "FlowSchema PriorityLevelConfiguration", "flowcontrol.apiserver.k8s.io/v1"},
		{"v1beta1", "", "Pod Service ReplicationController Namespace", "v1"},
		{"v1beta2", "", "Pod Service ReplicationController Namespace", "v1"},
		{"v1beta3", "", "Pod Service ReplicationController Namespace Secret ServiceAccount PersistentVolume PersistentVolumeClaim ResourceQuota LimitRange Endpoints", "v1"},
	}
}

type removed struct {
	versions map[string]bool       // apiVersions of which something was removed
	kinds    map[[2]string]removal // by apiVersion and kind
}

var removedKinds = sync.OnceValue(func() removed {
	out := removed{versions: map[string]bool{}, kinds: map[[2]string]removal{}}
	for _, r := range removals() {
		out.versions[r.apiVersion] = true
		for kind := range strings.FieldsSeq(r.kinds) {
			out.kinds[[2]string{r.apiVersion, kind}] = r
		}
	}
	return out
})

func removedVersions() map[string]bool { return removedKinds().versions }

// gone says whether a kind was removed and nothing replaces it.
func gone(apiVersion, kind string) bool {
	r, known := removedKinds().kinds[[2]string{apiVersion, kind}]
	return known && r.replacement == ""
}

// removedReason says what became of a kind under an apiVersion of which Kubernetes
// has removed something. current is the apiVersion that the kind has today.
func removedReason(apiVersion, kind, current string) string {
	r, known := removedKinds().kinds[[2]string{apiVersion, kind}]
	switch {
	case known && r.replacement == "":
		return "apiVersion " + apiVersion + " of " + kind + " was removed in Kubernetes " + r.release + " and nothing replaces it: remove the object"
	case known && r.release != "":
		return "apiVersion " + apiVersion + " of " + kind + " was removed in Kubernetes " + r.release + ": write " + r.replacement
	}
	return "apiVersion " + apiVersion + " of " + kind + " was removed from Kubernetes: write " + current
}
