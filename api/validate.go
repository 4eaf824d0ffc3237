package api

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/coordination"
	coordinationvalidation "k8s.io/kubernetes/pkg/apis/coordination/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/discovery"
	discoveryvalidation "k8s.io/kubernetes/pkg/apis/discovery/validation"
)

// Validate judges a new object, defaulted, as Kubernetes' API server does when
// one is created. It does not change the object. Kinds of our own are written by
// Headway alone and always pass.
func Validate(obj Object) field.ErrorList {
	if job, ok := obj.(*batchv1.Job); ok {
		job = job.DeepCopy()
		if job.UID == "" {
			job.UID = "00000000-0000-0000-0000-000000000000"
		}
		SelectJob(job)
		obj = job
	}
	var errs field.ErrorList
	if svc, ok := obj.(*corev1.Service); ok {
		svc = svc.DeepCopy()
		errs = append(PrepareService(svc, nil), portsOutOfRange(svc)...)
		expectHealthCheckPort(&svc.Spec)
		obj = svc
	}
	in, err := internal(obj)
	if in == nil {
		return err
	}
	return append(errs, declarative(validateNew(in), obj, nil)...)
}

// ValidateUpdate judges a change from old to obj as Kubernetes' API server does.
// Neither is changed.
func ValidateUpdate(obj, old Object) field.ErrorList {
	if obj.GetResourceVersion() == "" { // Kubernetes compares it; the store does so here
		obj = obj.DeepCopyObject().(Object)
		obj.SetResourceVersion("0")
		old = old.DeepCopyObject().(Object)
		old.SetResourceVersion("0")
	}
	var errs field.ErrorList
	if svc, ok := obj.(*corev1.Service); ok {
		if live, ok := old.(*corev1.Service); ok {
			svc = svc.DeepCopy()
			errs = append(PrepareService(svc, live), portsOutOfRange(svc)...)
			expectHealthCheckPort(&svc.Spec)
			obj = svc
		}
	}
	in, err := internal(obj)
	if in == nil {
		return err
	}
	was, err := internal(old)
	if was == nil {
		return err
	}
	if fmt.Sprintf("%T", in) != fmt.Sprintf("%T", was) {
		return field.ErrorList{field.Invalid(field.NewPath("kind"), fmt.Sprintf("%T", obj), "an object cannot change its kind")}
	}
	return append(errs, declarative(validateChange(in, was), obj, old)...)
}

// internal converts a v1 object to Kubernetes' internal form; nil without errors
// for kinds of our own. The result shares memory with obj.
func internal(obj Object) (runtime.Object, field.ErrorList) {
	k, ok := KindOf(obj)
	if !ok {
		return nil, field.ErrorList{field.InternalError(nil, fmt.Errorf("unknown type %T", obj))}
	}
	if k.Group == Group {
		return nil, nil
	}
	out, err := Scheme().ConvertToVersion(obj, schema.GroupVersion{Group: k.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return out, nil
}

func validateNew(obj runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o)
	case *core.Node:
		return corevalidation.ValidateNode(o)
	case *core.Pod:
		opts := pod.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil)
		opts.ResourceIsPod = true
		return corevalidation.ValidatePodCreate(o, opts)
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(o)
	case *core.Secret:
		return corevalidation.ValidateSecret(o)
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o)
	case *core.Service:
		return corevalidation.ValidateServiceCreate(o)
	case *core.Endpoints:
		return corevalidation.ValidateEndpointsCreate(o)
	case *discovery.EndpointSlice:
		return discoveryvalidation.ValidateEndpointSliceCreate(o)
	case *core.Event:
		return corevalidation.ValidateEventCreate(o, corev1.SchemeGroupVersion)
	case *core.ReplicationController:
		return corevalidation.ValidateReplicationController(o, pod.GetValidationOptionsFromPodTemplate(o.Spec.Template, nil))
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSet(o, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(o, appsvalidation.StatefulSetValidationOptions{}, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.ControllerRevision:
		return appsvalidation.ValidateControllerRevisionCreate(o)
	case *batch.Job:
		return batchvalidation.ValidateJobCreate(o, jobOptions(o, nil))
	case *batch.CronJob:
		return batchvalidation.ValidateCronJobCreate(o, pod.GetValidationOptionsFromPodTemplate(&o.Spec.JobTemplate.Spec.Template, nil))
	case *coordination.Lease:
		return coordinationvalidation.ValidateLease(o)
	}
	return validateNewStored(obj)
}

// validateChange is called with two objects of one type.
func validateChange(obj, old runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *core.Namespace:
		return append(corevalidation.ValidateNamespace(o), corevalidation.ValidateNamespaceUpdate(o, old.(*core.Namespace))...)
	case *core.Node:
		return append(corevalidation.ValidateNode(o), corevalidation.ValidateNodeUpdate(o, old.(*core.Node))...)
	case *core.Pod:
		was := old.(*core.Pod)
		opts := pod.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, &was.Spec, &o.ObjectMeta, &was.ObjectMeta)
		opts.ResourceIsPod = true
		return corevalidation.ValidatePodUpdate(o, was, opts)
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMapUpdate(o, old.(*core.ConfigMap))
	case *core.Secret:
		return corevalidation.ValidateSecretUpdate(o, old.(*core.Secret))
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccountUpdate(o, old.(*core.ServiceAccount))
	case *core.Service:
		return corevalidation.ValidateServiceUpdate(o, old.(*core.Service))
	case *core.Endpoints:
		return corevalidation.ValidateEndpointsUpdate(o, old.(*core.Endpoints))
	case *discovery.EndpointSlice:
		return discoveryvalidation.ValidateEndpointSliceUpdate(o, old.(*discovery.EndpointSlice))
	case *core.Event:
		return corevalidation.ValidateEventUpdate(o, old.(*core.Event), corev1.SchemeGroupVersion)
	case *core.ReplicationController:
		was := old.(*core.ReplicationController)
		return corevalidation.ValidateReplicationControllerUpdate(o, was, pod.GetValidationOptionsFromPodTemplate(o.Spec.Template, was.Spec.Template))
	case *apps.ReplicaSet:
		was := old.(*apps.ReplicaSet)
		return appsvalidation.ValidateReplicaSetUpdate(o, was, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, &was.Spec.Template))
	case *apps.Deployment:
		was := old.(*apps.Deployment)
		return appsvalidation.ValidateDeploymentUpdate(o, was, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, &was.Spec.Template))
	case *apps.DaemonSet:
		was := old.(*apps.DaemonSet)
		opts := pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, &was.Spec.Template)
		opts.AllowInvalidLabelValueInSelector = opts.AllowInvalidLabelValueInSelector || metavalidation.LabelSelectorHasInvalidLabelValue(was.Spec.Selector)
		return appsvalidation.ValidateDaemonSetUpdate(o, was, opts)
	case *apps.StatefulSet:
		was := old.(*apps.StatefulSet)
		set := appsvalidation.StatefulSetValidationOptions{ // what cannot be changed is not held against a change
			AllowInvalidServiceName: true, SkipValidateVolumeClaimTemplates: true,
			AllowStatefulSetRecreateStrategy: was.Spec.UpdateStrategy.Type == apps.RecreateStatefulSetStrategyType,
		}
		return appsvalidation.ValidateStatefulSetUpdate(o, was, set, pod.GetValidationOptionsFromPodTemplate(&o.Spec.Template, &was.Spec.Template))
	case *apps.ControllerRevision:
		return appsvalidation.ValidateControllerRevisionUpdate(o, old.(*apps.ControllerRevision))
	case *batch.Job:
		was := old.(*batch.Job)
		return batchvalidation.ValidateJobUpdate(o, was, jobOptions(o, was))
	case *batch.CronJob:
		was := old.(*batch.CronJob)
		return batchvalidation.ValidateCronJobUpdate(o, was, pod.GetValidationOptionsFromPodTemplate(&o.Spec.JobTemplate.Spec.Template, &was.Spec.JobTemplate.Spec.Template))
	case *coordination.Lease:
		return coordinationvalidation.ValidateLeaseUpdate(o, old.(*coordination.Lease))
	}
	return validateChangeStored(obj, old)
}

// jobOptions are the options of Kubernetes' own server: a Job's template may
// change only while the Job is suspended and has nothing running.
func jobOptions(job, old *batch.Job) batchvalidation.JobValidationOptions {
	if old == nil {
		return batchvalidation.JobValidationOptions{
			PodValidationOptions:  pod.GetValidationOptionsFromPodTemplate(&job.Spec.Template, nil),
			RequirePrefixedLabels: true,
		}
	}
	opts := batchvalidation.JobValidationOptions{PodValidationOptions: pod.GetValidationOptionsFromPodTemplate(&job.Spec.Template, &old.Spec.Template)}
	opts.AllowInvalidLabelValueInSelector = opts.AllowInvalidLabelValueInSelector || metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	idle := old.Status.StartTime == nil || batchvalidation.IsConditionTrue(old.Status.Conditions, batch.JobSuspended)
	idle = idle && old.Spec.Suspend != nil && *old.Spec.Suspend && old.Status.Active == 0
	opts.AllowMutablePodResources, opts.AllowMutableSchedulingDirectives = idle, idle
	_, name := old.Spec.Template.Labels[batch.JobNameLabel]
	_, uid := old.Spec.Template.Labels[batch.ControllerUidLabel]
	opts.RequirePrefixedLabels = name && uid
	return opts
}

// declarative adds what Kubernetes' generated validation finds to what its
// hand-written one found, each problem once. old is nil for a new object.
func declarative(errs field.ErrorList, obj, old Object) field.ErrorList {
	ctx := context.Background()
	gates := map[string]bool{"WorkloadWithJob": false, "InPlacePodVerticalScalingSchedulerPreemption": false, "HPAScaleToZero": scalesToZero(old)}
	var found field.ErrorList
	if old == nil {
		found = Scheme().Validate(ctx, gates, obj)
	} else {
		found = Scheme().ValidateUpdate(ctx, gates, obj, old)
	}
	found = validate.FilterEnforcedDeclarativeErrors(ctx, found, true)
	errs = append(validate.FilterCoveredHandwrittenErrors(ctx, errs.MarkFromImperative(), found, true), found...)
	seen := map[string]bool{}
	out := errs[:0]
	for _, e := range errs {
		if text := e.Error(); !seen[text] {
			seen[text] = true
			out = append(out, e)
		}
	}
	return out
}

// Problems gives each error its place in the manifest's file.
func (m Manifest) Problems(errs field.ErrorList) []Problem {
	var out []Problem
	for _, e := range errs {
		p := Problem{Field: e.Field, Reason: e.ErrorBody()}
		if len(p.Reason) > 400 && e.Detail != "" { // a whole template as the value helps nobody
			p.Reason = e.Type.String() + ": " + e.Detail
		}
		if p.Field == "<nil>" {
			p.Field = ""
		}
		out = append(out, p.At(m.Place(p.Field)))
	}
	return out
}

// Check finds every reason why the manifest cannot be applied: fields that the
// cluster writes or that a declared object may not have, Kubernetes' validation,
// and fields that this version does not act on (R12).
func (m Manifest) Check() []Problem {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	declared, _ := m.Declared["metadata"].(map[string]any)
	for _, r := range metadataRules(m.Kind.Namespaced) {
		name := strings.TrimPrefix(r.Path, "metadata.")
		if r.Verdict == Refused && !empty(declared[name]) && name != "namespace" { // the validation refuses that one
			errs = append(errs, field.Forbidden(meta.Child(name), r.Why))
		}
	}
	for _, name := range []string{AnnotationSource, AnnotationCommit, AnnotationPath, AnnotationLine, AnnotationAuthor, AnnotationHash} {
		if _, set := m.Object.GetAnnotations()[name]; set {
			errs = append(errs, field.Forbidden(meta.Child("annotations").Key(name), "written by the cluster: remove it"))
		}
	}
	errs = append(errs, nodeLoss(m.Declared, nil)...)
	for _, e := range Validate(m.Object) {
		if m.Object.GetGenerateName() != "" && m.Object.GetName() == "" && strings.HasPrefix(e.Field, "metadata.name") && e.Type == field.ErrorTypeRequired {
			continue // said already
		}
		errs = append(errs, e)
	}
	return m.Problems(append(errs, Unsupported(m.Object)...))
}

// empty says whether a declared value is as good as none.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}
