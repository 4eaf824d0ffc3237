package api

import (
	"reflect"
	"slices"
	"strings"
)

// metadataRules are the rows of a declared object's metadata. Manifest.Check
// refuses by them; the decoder drops, with a warning, what the cluster writes.
func metadataRules(namespaced bool) []FieldRule {
	out := slices.Concat(
		acted("metadata.", "name labels{} annotations{}"),
		refused("a declared object needs a name of its own: each commit would make another", "metadata.", "generateName"),
		refused("a declared object is deleted when its manifest is: remove it", "metadata.", "finalizers"),
		refused("a declared object is owned by its manifest: remove it", "metadata.", "ownerReferences"),
		harmless("ignored: the cluster writes it", "metadata.", "creationTimestamp deletionGracePeriodSeconds deletionTimestamp generation managedFields resourceVersion selfLink uid"),
	)
	if namespaced {
		return append(out, acted("metadata.", "namespace")...)
	}
	return append(out, refused("the kind has no namespaces", "metadata.", "namespace")...)
}

// objectRules are the rows of a kind, those of a pod's spec included, without
// metadata and status.
func objectRules(k Kind) []FieldRule {
	const noTokens = "pods get no API credentials"
	if k.Told {
		return storedRules(k)
	}
	switch k.Kind {
	case "Namespace":
		return harmless("the cluster keeps them", "spec.", "finalizers")
	case "ConfigMap":
		return acted("", "data{} binaryData{} immutable")
	case "Secret":
		return acted("", "data{} stringData{} type immutable")
	case "ServiceAccount":
		return append(harmless(noTokens, "", "automountServiceAccountToken secrets"),
			refused("images are pulled without credentials", "", "imagePullSecrets")...)
	case "PriorityClass":
		return append(acted("", "value globalDefault preemptionPolicy"), harmless("a note for people", "", "description")...)
	case "Service":
		return serviceRules()
	case "Endpoints":
		return endpointsRules()
	case "EndpointSlice":
		return endpointSliceRules()
	case "LimitRange":
		return slices.Concat(acted("spec.limits[].", "type"), amounts("spec.limits[].", "max", "min", "default", "defaultRequest", "maxLimitRequestRatio"))
	case "ResourceQuota":
		scopes := []string{"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"}
		return slices.Concat(amounts("spec.", "hard"), only("spec.scopes[]", noAttributes, scopes...),
			only("spec.scopeSelector.matchExpressions[].scopeName", noAttributes, scopes...),
			acted("spec.scopeSelector.matchExpressions[].", "operator values[]"))
	case "PersistentVolume":
		return persistentVolumeRules()
	case "PersistentVolumeClaim":
		return claimRules("spec")
	case "StorageClass":
		return storageClassRules()
	case "HorizontalPodAutoscaler":
		return autoscalerRules()
	case "PodDisruptionBudget":
		return append(acted("spec.", "minAvailable maxUnavailable unhealthyPodEvictionPolicy"), selector("spec.selector")...)
	case "Pod":
		return podAt("spec")
	case "ReplicaSet":
		return slices.Concat(acted("spec.", "replicas minReadySeconds"), selector("spec.selector"), template("spec.template"), podAt("spec.template.spec"))
	case "ReplicationController":
		return slices.Concat(acted("spec.", "replicas minReadySeconds selector{}"), template("spec.template"), podAt("spec.template.spec"))
	case "Deployment":
		return slices.Concat(
			acted("spec.", "replicas minReadySeconds revisionHistoryLimit progressDeadlineSeconds paused strategy.type strategy.rollingUpdate.maxSurge strategy.rollingUpdate.maxUnavailable"),
			selector("spec.selector"), template("spec.template"), podAt("spec.template.spec"))
	case "StatefulSet":
		return slices.Concat(
			acted("spec.", "replicas serviceName podManagementPolicy ordinals.start minReadySeconds revisionHistoryLimit updateStrategy.type updateStrategy.rollingUpdate.partition updateStrategy.rollingUpdate.maxUnavailable"),
			setClaimRules(),
			acted("spec.persistentVolumeClaimRetentionPolicy.", "whenDeleted whenScaled"),
			selector("spec.selector"), template("spec.template"), podAt("spec.template.spec"))
	case "DaemonSet":
		return slices.Concat(
			acted("spec.", "minReadySeconds revisionHistoryLimit updateStrategy.type updateStrategy.rollingUpdate.maxSurge updateStrategy.rollingUpdate.maxUnavailable"),
			selector("spec.selector"), template("spec.template"), podAt("spec.template.spec"))
	case "Job":
		return jobRules("spec")
	case "CronJob":
		return slices.Concat(
			acted("spec.", "schedule timeZone startingDeadlineSeconds concurrencyPolicy suspend successfulJobsHistoryLimit failedJobsHistoryLimit"),
			template("spec.jobTemplate"), jobRules("spec.jobTemplate.spec"))
	}
	return nil
}

// storedRules are the rows of a stored kind: one for each field at its top.
func storedRules(k Kind) (out []FieldRule) {
	for name := range fieldsOf(reflect.TypeOf(k.Prototype).Elem()) {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
		default:
			out = append(out, rows(Stored, "kept and shown with everything below it", "", name)...)
		}
	}
	return out
}

// podAt are the rows of a pod's spec that stands at a path.
func podAt(path string) []FieldRule {
	out := podRules()
	for i := range out {
		out[i].Path = path + "." + out[i].Path
	}
	return out
}

func jobRules(spec string) []FieldRule {
	return slices.Concat(
		acted(spec+".", "completions parallelism completionMode suspend backoffLimit backoffLimitPerIndex maxFailedIndexes podReplacementPolicy activeDeadlineSeconds ttlSecondsAfterFinished manualSelector"),
		selector(spec+".selector"),
		acted(spec+".podFailurePolicy.rules[].", "action onExitCodes.containerName onExitCodes.operator onExitCodes.values[] onPodConditions[].type onPodConditions[].status"),
		acted(spec+".successPolicy.rules[].", "succeededIndexes succeededCount"),
		only(spec+".managedBy", "Headway runs every Job", "kubernetes.io/job-controller"),
		refused("pods are scheduled one by one", spec+".", "scheduling"),
		template(spec+".template"), podAt(spec+".template.spec"),
	)
}

// template are the rows of a template's metadata.
func template(path string) []FieldRule {
	meta := path + ".metadata."
	return slices.Concat(
		acted(meta, "labels{} annotations{}"),
		refused("what a template makes has no finalizers", meta, "finalizers"),
		refused("what a template makes is owned by its maker", meta, "ownerReferences"),
		harmless("Kubernetes ignores it, too", meta, "name namespace generateName creationTimestamp deletionGracePeriodSeconds deletionTimestamp generation managedFields resourceVersion selfLink uid"),
	)
}

// FieldRules lists what this version does with the fields of a declarable kind,
// by path; empty for other kinds. For the spec of a pod it has one row:
// PodFieldRules has what is below.
func FieldRules(k Kind) []FieldRule {
	if !k.Declarable {
		return nil
	}
	out := slices.Concat(acted("", "apiVersion kind"), metadataRules(k.Namespaced), objectRules(k))
	if at := PodSpecPath(k); at != "" {
		out = slices.DeleteFunc(out, func(r FieldRule) bool { return strings.HasPrefix(r.Path, at+".") })
		out = append(out, FieldRule{Path: at, Verdict: Acted, Why: "a pod's fields have a list of their own"})
	}
	if _, ok := fieldsOf(reflect.TypeOf(k.Prototype).Elem())["status"]; ok {
		out = append(out, harmless("ignored: the cluster writes the status", "", "status")...)
	}
	slices.SortFunc(out, func(a, b FieldRule) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// PodFieldRules lists what this version does with the fields of a pod's spec, wherever it stands; the paths start with "spec.".
func PodFieldRules() []FieldRule {
	out := podAt("spec")
	slices.SortFunc(out, func(a, b FieldRule) int { return strings.Compare(a.Path, b.Path) })
	return out
}
