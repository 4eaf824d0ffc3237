package accounts

import (
	"context"
	"errors"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// lookup reads what tokens name. The cache may not have what was made a moment ago on
// another server, so only the backend says that something is not there.
type lookup struct{ store Store }

var _ serviceaccount.ServiceAccountTokenGetter = lookup{}

func find[T api.Object](ctx context.Context, st Store, gr schema.GroupResource, namespace, name string) (found T, err error) {
	key := store.Key{GroupResource: gr, Namespace: namespace, Name: name}
	obj := st.Get(key)
	if obj == nil {
		if obj, _, err = st.GetAt(ctx, key, 0); errors.Is(err, store.ErrNotFound) {
			return found, apierrors.NewNotFound(gr, name)
		}
		if err != nil {
			return found, apierrors.NewServiceUnavailable(fmt.Sprintf("read %s: %v", key, err))
		}
	}
	found, ok := obj.(T)
	if !ok {
		return found, apierrors.NewInternalError(fmt.Errorf("%s is a %T", key, obj))
	}
	return found, nil
}

func (l lookup) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return find[*corev1.ServiceAccount](ctx, l.store, api.ServiceAccounts(), namespace, name)
}

func (l lookup) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return find[*corev1.Pod](ctx, l.store, api.Pods(), namespace, name)
}

func (l lookup) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return find[*corev1.Secret](ctx, l.store, api.Secrets(), namespace, name)
}

func (l lookup) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return find[*corev1.Node](ctx, l.store, api.Nodes(), "", name)
}

func (lookup) GetValidatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"}, name)
}

func (lookup) GetMutatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"}, name)
}
