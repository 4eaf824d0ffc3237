package api

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// KindRule is one row of the table of kinds: what a manifest of the kind gets.
type KindRule struct {
	APIVersion string // the one that the kind is written with today: "apps/v1"
	Kind       string
	Verdict    Verdict // Acted, Stored or Refused
	Why        string  // empty when acted on
	// Allowable says that a commit with the kind is refused until ConfigFile's
	// allowStored names it: a stored one with a risk, or a refused one, which is then
	// in git only.
	Allowable bool
}

// KindRules lists every kind of Kubernetes' API, and Headway's own, by apiVersion
// and kind (R12).
func KindRules() []KindRule { return slices.Clone(kindRules()) }

var kindRules = sync.OnceValue(func() []KindRule {
	out := foreignKinds()
	for _, k := range table() {
		r := KindRule{APIVersion: k.GroupVersion().String(), Kind: k.Kind, Verdict: Acted}
		switch {
		case !k.Declarable:
			r.Verdict, r.Why = Refused, "made by the cluster: no manifest declares it"
		case k.Inert != "":
			r.Verdict, r.Why, r.Allowable = Stored, k.Inert, k.Risk != ""
			if k.Risk != "" {
				r.Why += ", and " + k.Risk
			}
		}
		out = append(out, r)
	}
	out = append(out, KindRule{APIVersion: Group + "/" + Version, Kind: ConfigKind, Verdict: Acted, Why: "only as " + ConfigFile + " at the source's root"})
	slices.SortFunc(out, func(a, b KindRule) int {
		return cmp.Or(cmp.Compare(groupOf(a.APIVersion), groupOf(b.APIVersion)), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind))
	})
	return out
})

// foreignKinds are the kinds of Kubernetes' API that this version does not have.
// They are refused by name instead of as a typing mistake.
func foreignKinds() (out []KindRule) {
	list := func(apiVersion, why, kinds string, allowable bool) {
		for kind := range strings.FieldsSeq(kinds) {
			out = append(out, KindRule{APIVersion: apiVersion, Kind: kind, Verdict: Refused, Why: why, Allowable: allowable})
		}
	}
	add := func(apiVersion, why, kinds string) { list(apiVersion, why, kinds, true) }
	never := func(apiVersion, why, kinds string) { list(apiVersion, why, kinds, false) } // nobody's manifest
	const (
		noRanges  = "there is one range for Services, which the servers are started with"
		noVolumes = "storage drivers are not run"
		noHooks   = "objects are judged by Headway alone"
		noDevices = "devices are not handed to containers"
		noSigning = "certificates are made by Headway alone"
		noGroups  = "pods are scheduled one by one"
		noShares  = "requests to the API are not shared out"
		internal  = "Kubernetes' servers keep their own books in it"
		question  = "a question to the API, not an object that stays"
	)
	add("v1", "nothing is made from it: write the template in a Deployment", "PodTemplate")
	never("v1", question, "Binding")
	never("v1", "deprecated by Kubernetes: see headway status", "ComponentStatus")
	add("networking.k8s.io/v1", noRanges, "IPAddress ServiceCIDR")
	never("policy/v1", question, "Eviction")
	never("policy/v1beta1", "removed from Kubernetes 1.25", "PodSecurityPolicy")
	add("lifecycle.k8s.io/v1alpha1", "pods are not evicted for maintenance", "EvictionRequest Eviction")
	never("authentication.k8s.io/v1", question, "SelfSubjectReview TokenReview")
	never("authorization.k8s.io/v1", question, "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview")
	add("storage.k8s.io/v1", noVolumes, "VolumeAttachment CSIDriver CSINode CSIStorageCapacity VolumeAttributesClass")
	never("storagemigration.k8s.io/v1", internal, "StorageVersionMigration")
	never("internal.apiserver.k8s.io/v1alpha1", internal, "StorageVersion")
	never("coordination.k8s.io/v1beta1", internal, "LeaseCandidate")
	add("scheduling.k8s.io/v1beta1", noGroups, "PodGroup Workload")
	add("scheduling.k8s.io/v1alpha3", noGroups, "CompositePodGroup")
	never("events.k8s.io/v1", "made by the cluster: no manifest declares it", "Event")
	add("node.k8s.io/v1", "every container runs in runc", "RuntimeClass")
	add("certificates.k8s.io/v1", noSigning, "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest")
	add("apiregistration.k8s.io/v1", "there are no custom kinds", "APIService")
	add("admissionregistration.k8s.io/v1", noHooks, "MutatingWebhookConfiguration ValidatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy MutatingAdmissionPolicyBinding")
	add("flowcontrol.apiserver.k8s.io/v1", noShares, "FlowSchema PriorityLevelConfiguration")
	add("resource.k8s.io/v1", noDevices, "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice")
	add("resource.k8s.io/v1alpha3", noDevices, "ResourcePoolStatusRequest")
	return out
}

// kindRule is the row of a kind as written.
func kindRule(apiVersion, kind string) (KindRule, bool) {
	for _, r := range kindRules() {
		if r.Kind == kind && r.APIVersion == apiVersion {
			return r, true
		}
	}
	return KindRule{}, false
}

// kubernetesKinds are the kinds of Kubernetes and the apiVersion that each is
// written with today; of two with one name, the one that people mean.
var kubernetesKinds = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for _, r := range kindRules() {
		if groupOf(r.APIVersion) != Group {
			out[r.Kind] = r.APIVersion
		}
	}
	out["Event"], out["Eviction"] = "v1", "policy/v1"
	return out
})
