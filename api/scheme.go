package api

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	appsinstall "k8s.io/kubernetes/pkg/apis/apps/install"
	batchinstall "k8s.io/kubernetes/pkg/apis/batch/install"
	coordinationinstall "k8s.io/kubernetes/pkg/apis/coordination/install"
	coreinstall "k8s.io/kubernetes/pkg/apis/core/install"
	discoveryinstall "k8s.io/kubernetes/pkg/apis/discovery/install"
	"k8s.io/kubernetes/pkg/capabilities"
)

var builtScheme = sync.OnceValue(func() *runtime.Scheme {
	// Kubernetes' validation keeps it for the process: privileged containers may be
	// asked for, by a manifest and by an API client. Admission decides who may.
	capabilities.Setup(true, 0)
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	coreinstall.Install(s)
	appsinstall.Install(s)
	batchinstall.Install(s)
	coordinationinstall.Install(s)
	discoveryinstall.Install(s)
	installStored(s)
	utilruntime.Must(metav1.AddMetaToScheme(s))
	gv := schema.GroupVersion{Group: Group, Version: Version}
	s.AddKnownTypes(gv, &Source{}, &GitRef{}, &DoneRecord{}, &Authority{}, &JoinToken{}, &Receipt{}, &CommitStatus{}, &Edit{}, &DriftRecord{}, &SlotRecord{}, &Allocation{}, &NodeFigures{})
	metav1.AddToGroupVersion(s, gv)
	return s
})

// Scheme knows every kind, internal and v1, with Kubernetes' conversions and
// defaulting. It must not be changed.
func Scheme() *runtime.Scheme { return builtScheme() }
