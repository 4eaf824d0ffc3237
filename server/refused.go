package server

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
)

// refused stands for a way into containers that this version of Headway does not
// offer, so that a client hears which and what to do instead of "not found".
type refused struct {
	what    string
	instead string
	options func() runtime.Object
}

var _ rest.Connecter = refused{}

func refusedAttach() refused {
	return refused{"attach", "follow the output with kubectl logs -f", func() runtime.Object { return &core.PodAttachOptions{} }}
}

// New implements rest.Storage.
func (r refused) New() runtime.Object { return r.options() }

// Destroy implements rest.Storage.
func (r refused) Destroy() {}

// Connect implements rest.Connecter.
func (r refused) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotImplemented,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: "Headway does not offer " + r.what + " yet; " + r.instead,
	}}
}

// NewConnectOptions implements rest.Connecter.
func (r refused) NewConnectOptions() (runtime.Object, bool, string) { return r.options(), false, "" }

// ConnectMethods implements rest.Connecter.
func (r refused) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }
