package server

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinstall "k8s.io/kubernetes/pkg/apis/apps/install"
	authenticationinstall "k8s.io/kubernetes/pkg/apis/authentication/install"
	authorizationinstall "k8s.io/kubernetes/pkg/apis/authorization/install"
	batchinstall "k8s.io/kubernetes/pkg/apis/batch/install"
	coordinationinstall "k8s.io/kubernetes/pkg/apis/coordination/install"
	coreinstall "k8s.io/kubernetes/pkg/apis/core/install"
	discoveryinstall "k8s.io/kubernetes/pkg/apis/discovery/install"
	eventsinstall "k8s.io/kubernetes/pkg/apis/events/install"
	metricsinstall "k8s.io/metrics/pkg/apis/metrics/install"
)

// newScheme knows what goes over the wire: more than package api, which knows
// what is kept (a Scale, an access review, and events.k8s.io's view of an Event
// are never stored).
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	coreinstall.Install(s)
	appsinstall.Install(s)
	batchinstall.Install(s)
	coordinationinstall.Install(s)
	discoveryinstall.Install(s)
	eventsinstall.Install(s)
	authenticationinstall.Install(s)
	authorizationinstall.Install(s)
	metricsinstall.Install(s)
	installStored(s)
	return s
}
