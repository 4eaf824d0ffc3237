package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kubeadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
)

// gate puts package admission in front of every write of an API client: it looks
// up the facts and converts between the registries' types and v1.
type gate struct {
	store  *store.Store
	scheme *runtime.Scheme
}

var _ kubeadmission.MutationInterface = (*gate)(nil)

// Handles implements kubeadmission.Interface.
func (g *gate) Handles(op kubeadmission.Operation) bool { return op != kubeadmission.Connect }

// Admit implements kubeadmission.MutationInterface.
func (g *gate) Admit(ctx context.Context, a kubeadmission.Attributes, _ kubeadmission.ObjectInterfaces) error {
	gr := a.GetResource().GroupResource()
	if gr == api.Leases() && a.GetNamespace() == corev1.NamespaceNodeLease {
		return apierrors.NewForbidden(gr, a.GetName(), errors.New("the leases of nodes are written by their sessions alone: changing one would declare its node lost (D4)"))
	}
	if gr.Group == "events.k8s.io" {
		gr = api.Events() // another view of the same objects
	}
	kind, known := api.ResourceKind(gr)
	if !known || a.GetSubresource() != "" && a.GetSubresource() != admission.EphemeralContainers {
		return nil // an access review, or a part of an object that was admitted
	}
	r := admission.Request{User: a.GetUserInfo().GetName(), Subresource: a.GetSubresource()}
	var err error
	switch a.GetOperation() {
	case kubeadmission.Create:
		r.Verb = admission.Create
		r.Object, err = g.stored(kind, a.GetObject())
	case kubeadmission.Update:
		r.Verb = admission.Update
		if r.Object, err = g.stored(kind, a.GetObject()); err == nil {
			r.Old, err = g.stored(kind, a.GetOldObject())
		}
	case kubeadmission.Delete:
		r.Verb, r.Object = admission.Delete, kind.New()
		r.Object.SetNamespace(a.GetNamespace())
		r.Object.SetName(a.GetName())
	}
	if err != nil {
		return err
	}
	if kind.Told && r.Verb != admission.Delete {
		warning.AddWarning(ctx, "", kind.Unenforced())
	}
	if class, ok := r.Object.(*storagev1.StorageClass); ok && r.Verb != admission.Delete && api.ClassNote(class) != "" {
		warning.AddWarning(ctx, "", api.ClassNote(class))
	}
	if kind.Namespaced && r.Object.GetNamespace() == "" {
		r.Object.SetNamespace(a.GetNamespace())
	}
	facts := admission.Facts{}
	if kind.Namespaced && (r.Verb == admission.Create || r.Subresource != "") {
		if facts.Namespace, err = g.namespace(ctx, a.GetNamespace()); err != nil {
			return err
		}
	}
	if kind.GroupResource() == api.Pods() || kind.GroupResource() == api.PriorityClasses() {
		facts.PriorityClasses = g.store.List(api.PriorityClasses(), "")
	}
	if pod, ok := r.Object.(*corev1.Pod); ok && (r.Verb == admission.Create || r.Subresource != "") {
		if facts.Accounts, err = g.account(ctx, pod); err != nil {
			return err
		}
	}
	if kind.GroupResource() == api.PersistentVolumeClaims() {
		facts.StorageClasses = g.store.List(api.StorageClasses(), "")
	}
	admitted, err := admission.Admit(r, facts)
	if err == nil && r.Verb != admission.Delete {
		admitted, err = g.bounded(admitted, r, a.IsDryRun())
	}
	if err != nil || admitted == r.Object || r.Verb == admission.Delete {
		return err
	}
	if err := g.scheme.Convert(admitted, a.GetObject(), nil); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("convert the admitted %s: %w", kind.Kind, err))
	}
	return nil
}

// bounded is an object as the LimitRanges of its namespace have it, so that what is
// validated and shown is what is written. Whether it fits into the quotas is for the
// write to say; a dry run is told by what is known here.
func (g *gate) bounded(obj api.Object, r admission.Request, dry bool) (api.Object, error) {
	claim, isClaim := obj.(*corev1.PersistentVolumeClaim)
	if r.Verb != admission.Create && !isClaim || obj.GetNamespace() == "" {
		return obj, nil
	}
	var ranges []*corev1.LimitRange
	for _, l := range g.store.List(api.LimitRanges(), obj.GetNamespace()) {
		ranges = append(ranges, l.(*corev1.LimitRange))
	}
	out, err := admission.Limit(obj, ranges)
	if err != nil || !dry {
		return out, err
	}
	var quotas []*corev1.ResourceQuota
	for _, q := range g.store.List(api.ResourceQuotas(), obj.GetNamespace()) {
		quotas = append(quotas, q.(*corev1.ResourceQuota))
	}
	w := api.Charged{Object: out}
	if isClaim && r.Old != nil {
		w = api.Charged{Object: claim, Old: r.Old}
	}
	_, err = admission.Charge([]api.Charged{w}, quotas, time.Now())
	return out, err
}

// stored converts a registry's object to the form that is kept, sharing no memory
// with it.
func (g *gate) stored(kind api.Kind, obj runtime.Object) (api.Object, error) {
	out := kind.New()
	if err := g.scheme.Convert(obj.DeepCopyObject(), out, nil); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("convert a %s for admission: %w", kind.Kind, err))
	}
	return out, nil
}

// account looks up what a pod runs as; nothing when there is no such account, of which
// only the backend's word counts, too.
func (g *gate) account(ctx context.Context, pod *corev1.Pod) ([]api.Object, error) {
	name := pod.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	key := store.Key{GroupResource: api.ServiceAccounts(), Namespace: pod.Namespace, Name: name}
	if obj := g.store.Get(key); obj != nil {
		return []api.Object{obj}, nil
	}
	obj, _, err := g.store.GetAt(ctx, key, 0)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("read service account %s/%s: %v", key.Namespace, name, err))
	}
	return []api.Object{obj}, nil
}

// namespace looks a namespace up; nil when there is none. The cache may not have
// one that was made a moment ago, so only the backend's word counts for that.
func (g *gate) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	key := store.Key{GroupResource: api.Namespaces(), Name: name}
	obj := g.store.Get(key)
	if obj == nil {
		var err error
		obj, _, err = g.store.GetAt(ctx, key, 0)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("read namespace %s: %v", name, err))
		}
	}
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("namespace %s is a %T", name, obj))
	}
	return ns, nil
}
