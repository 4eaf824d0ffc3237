package server

import (
	"context"
	"errors"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
)

// budgets is how Kubernetes' eviction of pods reads and uses up
// PodDisruptionBudgets: the store's newest, since each eviction counts.
type budgets struct{ store *store.Store }

var _ policyclient.PodDisruptionBudgetsGetter = budgets{}

// PodDisruptionBudgets implements policyclient.PodDisruptionBudgetsGetter.
func (b budgets) PodDisruptionBudgets(namespace string) policyclient.PodDisruptionBudgetInterface {
	return budgetsIn{store: b.store, namespace: namespace}
}

// budgetsIn has what an eviction asks of a client, and of the rest of one nothing.
type budgetsIn struct {
	policyclient.PodDisruptionBudgetInterface // nil
	store                                     *store.Store
	namespace                                 string
}

// List implements policyclient.PodDisruptionBudgetInterface.
func (b budgetsIn) List(ctx context.Context, _ metav1.ListOptions) (*policyv1.PodDisruptionBudgetList, error) {
	page, err := b.store.ListAt(ctx, api.PodDisruptionBudgets(), b.namespace, 0, 0, "")
	if err != nil {
		return nil, apierrors.NewServiceUnavailable("read the PodDisruptionBudgets: " + err.Error())
	}
	out := &policyv1.PodDisruptionBudgetList{}
	for _, obj := range page.Objects {
		out.Items = append(out.Items, *obj.(*policyv1.PodDisruptionBudget).DeepCopy())
	}
	return out, nil
}

// Get implements policyclient.PodDisruptionBudgetInterface.
func (b budgetsIn) Get(ctx context.Context, name string, _ metav1.GetOptions) (*policyv1.PodDisruptionBudget, error) {
	obj, _, err := b.store.GetAt(ctx, store.Key{GroupResource: api.PodDisruptionBudgets(), Namespace: b.namespace, Name: name}, 0)
	if err != nil {
		return nil, budgetError(name, err)
	}
	return obj.(*policyv1.PodDisruptionBudget).DeepCopy(), nil
}

// UpdateStatus implements policyclient.PodDisruptionBudgetInterface. Nobody changed
// the spec: what is written is as it was read but for the status.
func (b budgetsIn) UpdateStatus(ctx context.Context, budget *policyv1.PodDisruptionBudget, _ metav1.UpdateOptions) (*policyv1.PodDisruptionBudget, error) {
	out := budget.DeepCopy()
	if _, err := b.store.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: out}}}); err != nil {
		return nil, budgetError(budget.Name, err)
	}
	return out, nil
}

// budgetError is err as a client of the API knows it.
func budgetError(name string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(api.PodDisruptionBudgets(), name)
	case errors.Is(err, store.ErrConflict):
		return apierrors.NewConflict(api.PodDisruptionBudgets(), name, err)
	}
	return apierrors.NewServiceUnavailable("the PodDisruptionBudget " + name + ": " + err.Error())
}
