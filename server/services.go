package server

import (
	"context"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// services is the registry of Services: Kubernetes' strategy without Kubernetes'
// allocators, which keep books of their own beside the Services. Here the store
// completes a Service in the transaction that writes it.
type services struct{ *registry.Store }

func (s *Server) newServices(options generic.RESTOptionsGetter, scheme *runtime.Scheme) (*services, *serviceStatus, error) {
	draft := serviceDraft{scheme: scheme, store: s.cfg.Store}
	kept := &registry.Store{
		NewFunc:                   func() runtime.Object { return &core.Service{} },
		NewListFunc:               func() runtime.Object { return &core.ServiceList{} },
		PredicateFunc:             service.Matcher,
		DefaultQualifiedResource:  core.Resource("services"),
		SingularQualifiedResource: core.Resource("service"),
		ReturnDeletedObject:       true,
		CreateStrategy:            serviceStrategy{service.Strategy},
		UpdateStrategy:            serviceStrategy{service.Strategy},
		DeleteStrategy:            service.Strategy,
		ResetFieldsStrategy:       service.Strategy,
		BeginCreate:               draft.create,
		BeginUpdate:               draft.update,
		TableConvertor:            printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)},
	}
	if err := kept.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: service.GetAttrs}); err != nil {
		return nil, nil, err
	}
	status := *kept
	status.BeginUpdate = nil
	status.UpdateStrategy = service.StatusStrategy
	status.ResetFieldsStrategy = service.StatusStrategy
	return &services{kept}, &serviceStatus{&status}, nil
}

// serviceStrategy is Kubernetes' strategy for Services that are validated before
// ports are given out.
type serviceStrategy struct{ kubernetesStrategy }

type kubernetesStrategy interface {
	rest.RESTCreateUpdateStrategy
	rest.DeclarativeValidationStrategy
}

func (s serviceStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.kubernetesStrategy.Validate(ctx, withHealthCheckPort(obj))
}

func (s serviceStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.kubernetesStrategy.ValidateUpdate(ctx, withHealthCheckPort(obj), old)
}

// withHealthCheckPort stands in for the port that a Service will be given, which the
// validation demands.
func withHealthCheckPort(obj runtime.Object) runtime.Object {
	svc, ok := obj.(*core.Service)
	if !ok || svc.Spec.Type != core.ServiceTypeLoadBalancer || svc.Spec.ExternalTrafficPolicy != core.ServiceExternalTrafficPolicyLocal || svc.Spec.HealthCheckNodePort != 0 {
		return obj
	}
	svc = svc.DeepCopy()
	svc.Spec.HealthCheckNodePort = api.FirstNodePort
	return svc
}

// serviceDraft prepares what a client sends for Kubernetes' validation, which wants
// it as it is before addresses are given out.
type serviceDraft struct {
	scheme *runtime.Scheme
	store  *store.Store
}

func (d serviceDraft) create(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (registry.FinishFunc, error) {
	return done, d.prepare(ctx, obj, nil, dryrun.IsDryRun(options.DryRun))
}

func (d serviceDraft) update(ctx context.Context, obj, live runtime.Object, options *metav1.UpdateOptions) (registry.FinishFunc, error) {
	return done, d.prepare(ctx, obj, live, dryrun.IsDryRun(options.DryRun))
}

func done(context.Context, bool) {}

// prepare changes obj, an internal Service. A dry run, which never comes to the
// store, is told what it would be given.
func (d serviceDraft) prepare(ctx context.Context, obj, live runtime.Object, dry bool) error {
	op := store.Op{Verb: store.Create}
	var was *corev1.Service
	if live != nil {
		was = &corev1.Service{}
		if err := d.scheme.Convert(live.DeepCopyObject(), was, nil); err != nil {
			return fmt.Errorf("convert the live Service: %w", err)
		}
		op.Verb = store.Update
	}
	svc := &corev1.Service{}
	if err := d.scheme.Convert(obj.DeepCopyObject(), svc, nil); err != nil {
		return fmt.Errorf("convert the Service: %w", err)
	}
	if errs := api.PrepareService(svc, was); len(errs) > 0 {
		return apierrors.NewInvalid(core.Kind("Service"), svc.Name, errs)
	}
	if dry {
		op.Object = svc.DeepCopy()
		if was != nil {
			op.Object.SetResourceVersion(was.ResourceVersion)
		}
		if err := d.store.Rehearse(ctx, op); err != nil {
			return err
		}
		svc.Spec = op.Object.(*corev1.Service).Spec
	}
	if err := d.scheme.Convert(svc, obj, nil); err != nil {
		return fmt.Errorf("convert the prepared Service: %w", err)
	}
	return nil
}

// ShortNames implements rest.ShortNamesProvider.
func (s *services) ShortNames() []string { return []string{"svc"} }

// Categories implements rest.CategoriesProvider.
func (s *services) Categories() []string { return []string{"all"} }

// serviceStatus changes the status of Services alone.
type serviceStatus struct{ store *registry.Store }

var (
	_ rest.Patcher             = (*serviceStatus)(nil)
	_ rest.ResetFieldsStrategy = (*serviceStatus)(nil)
)

func (s *serviceStatus) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the store is the Services' own.
func (s *serviceStatus) Destroy() {}

func (s *serviceStatus) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update never creates: a status is of something that is there.
func (s *serviceStatus) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, obj, create, update, false, options)
}

func (s *serviceStatus) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}

func (s *serviceStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}
