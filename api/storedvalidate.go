package api

import (
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
	volumevalidation "k8s.io/kubernetes/pkg/volume/validation"
)

// validateNewStored judges a new object of a stored kind, in its internal form.
func validateNewStored(obj runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *core.LimitRange:
		return corevalidation.ValidateLimitRange(o)
	case *core.PersistentVolume:
		return validateVolume(o, nil)
	case *core.PersistentVolumeClaim:
		return corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.ValidationOptionsForPersistentVolumeClaim(o, nil))
	case *core.ResourceQuota:
		return corevalidation.ValidateResourceQuota(o)
	case *apiextensions.CustomResourceDefinition:
		return apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(), o)
	case *autoscaling.HorizontalPodAutoscaler:
		return autoscalingvalidation.ValidateHorizontalPodAutoscaler(o, autoscalerOptions(o, nil))
	case *networking.Ingress:
		return networkingvalidation.ValidateIngressCreate(o)
	case *networking.IngressClass:
		return networkingvalidation.ValidateIngressClass(o)
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.ValidationOptionsForNetworking(o, nil))
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *rbac.ClusterRole:
		return rbacvalidation.ValidateClusterRole(o, rbacvalidation.ClusterRoleValidationOptions{})
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBinding(o)
	case *rbac.Role:
		return rbacvalidation.ValidateRole(o)
	case *rbac.RoleBinding:
		return rbacvalidation.ValidateRoleBinding(o)
	case *scheduling.PriorityClass:
		return schedulingvalidation.ValidatePriorityClass(o)
	case *storage.StorageClass:
		return storagevalidation.ValidateStorageClass(o)
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("no validation for %T", obj))}
}

// validateChangeStored is called with two objects of one type.
func validateChangeStored(obj, old runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *core.LimitRange:
		return corevalidation.ValidateLimitRange(o)
	case *core.PersistentVolume:
		was := old.(*core.PersistentVolume)
		return append(validateVolume(o, was), corevalidation.ValidatePersistentVolumeUpdate(o, was, corevalidation.ValidationOptionsForPersistentVolume(o, was))...)
	case *core.PersistentVolumeClaim:
		was := old.(*core.PersistentVolumeClaim)
		return corevalidation.ValidatePersistentVolumeClaimUpdate(o, was, corevalidation.ValidationOptionsForPersistentVolumeClaim(o, was))
	case *core.ResourceQuota:
		return corevalidation.ValidateResourceQuotaUpdate(o, old.(*core.ResourceQuota))
	case *apiextensions.CustomResourceDefinition:
		return apiextensionsvalidation.ValidateCustomResourceDefinitionUpdate(context.Background(), o, old.(*apiextensions.CustomResourceDefinition))
	case *autoscaling.HorizontalPodAutoscaler:
		was := old.(*autoscaling.HorizontalPodAutoscaler)
		return autoscalingvalidation.ValidateHorizontalPodAutoscalerUpdate(o, was, autoscalerOptions(o, was))
	case *networking.Ingress:
		return networkingvalidation.ValidateIngressUpdate(o, old.(*networking.Ingress))
	case *networking.IngressClass:
		return networkingvalidation.ValidateIngressClassUpdate(o, old.(*networking.IngressClass))
	case *networking.NetworkPolicy:
		was := old.(*networking.NetworkPolicy)
		return networkingvalidation.ValidateNetworkPolicyUpdate(o, was, networkingvalidation.ValidationOptionsForNetworking(o, was))
	case *policy.PodDisruptionBudget:
		was := old.(*policy.PodDisruptionBudget)
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{AllowInvalidLabelValueInSelector: was.Spec.Selector != nil && invalidSelector(*was.Spec.Selector)})
	case *rbac.ClusterRole:
		was := old.(*rbac.ClusterRole)
		opts := rbacvalidation.ClusterRoleValidationOptions{}
		if was.AggregationRule != nil {
			opts.AllowInvalidLabelValueInSelector = invalidSelector(was.AggregationRule.ClusterRoleSelectors...)
		}
		return rbacvalidation.ValidateClusterRoleUpdate(o, was, opts)
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBindingUpdate(o, old.(*rbac.ClusterRoleBinding))
	case *rbac.Role:
		return rbacvalidation.ValidateRoleUpdate(o, old.(*rbac.Role))
	case *rbac.RoleBinding:
		return rbacvalidation.ValidateRoleBindingUpdate(o, old.(*rbac.RoleBinding))
	case *scheduling.PriorityClass:
		return schedulingvalidation.ValidatePriorityClassUpdate(o, old.(*scheduling.PriorityClass))
	case *storage.StorageClass:
		return append(storagevalidation.ValidateStorageClass(o), storagevalidation.ValidateStorageClassUpdate(o, old.(*storage.StorageClass))...)
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("no validation for %T", obj))}
}

func validateVolume(v, old *core.PersistentVolume) field.ErrorList {
	errs := corevalidation.ValidatePersistentVolume(v, corevalidation.ValidationOptionsForPersistentVolume(v, old))
	return append(errs, volumevalidation.ValidatePersistentVolume(v)...)
}

func invalidSelector(selectors ...metav1.LabelSelector) bool {
	for _, s := range selectors {
		if len(metavalidation.ValidateLabelSelector(&s, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0 {
			return true
		}
	}
	return false
}

// autoscalerOptions are those of Kubernetes' own server: what an old object has is
// not held against a change that leaves it.
func autoscalerOptions(a, old *autoscaling.HorizontalPodAutoscaler) autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions {
	opts := autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{
		MinReplicasLowerBound:           1,
		ScaleTargetRefValidationOptions: autoscalingvalidation.CrossVersionObjectReferenceValidationOptions{RequiredCoveredByDeclarative: true},
		ObjectMetricsValidationOptions:  autoscalingvalidation.CrossVersionObjectReferenceValidationOptions{AllowEmptyAPIGroup: true},
	}
	target := a.Spec.ScaleTargetRef
	if old == nil {
		opts.ScaleTargetRefValidationOptions.AllowEmptyAPIGroup = target.Kind == "ReplicationController"
		return opts
	}
	if old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		opts.MinReplicasLowerBound = 0
	}
	if was := old.Spec.ScaleTargetRef; was.APIVersion == target.APIVersion && was.Kind == target.Kind {
		opts.ScaleTargetRefValidationOptions.AllowInvalidAPIVersion = true
	} else {
		opts.ScaleTargetRefValidationOptions.AllowEmptyAPIGroup = target.Kind == "ReplicationController"
	}
	for _, metric := range old.Spec.Metrics {
		if metric.Type == autoscaling.ObjectMetricSourceType && metric.Object != nil && autoscalingvalidation.ValidateAPIVersion(metric.Object.DescribedObject, opts.ObjectMetricsValidationOptions) != nil {
			opts.ObjectMetricsValidationOptions.AllowInvalidAPIVersion = true
		}
	}
	return opts
}

// scalesToZero says whether a live autoscaler already has what needs a feature that
// Kubernetes leaves off.
func scalesToZero(old Object) bool {
	a, ok := old.(*autoscalingv2.HorizontalPodAutoscaler)
	return ok && a.Spec.MinReplicas != nil && *a.Spec.MinReplicas == 0
}
