package endpointslice

import (
	"maps"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// manager is the value of the labels that say what is ours.
	manager = "endpointslice-controller.headway.dev"
	// managedEndpoints is the label of Endpoints that a controller makes.
	managedEndpoints = "endpoints.kubernetes.io/managed-by"
	// skipMirror on Endpoints says that no slices are to be made of them.
	skipMirror = discoveryv1.LabelSkipMirror
	// election on Endpoints says that they are a lock and no addresses.
	election = "control-plane.alpha.kubernetes.io/leader"
)

// observed is what a plan is made from.
type observed struct {
	namespace, name string
	service         *corev1.Service              // nil: there is none
	pods            []*corev1.Pod                // that it selects
	zones           map[string]string            // of their nodes, by name
	slices          []*discoveryv1.EndpointSlice // ours, in the order of their names
	endpoints       *corev1.Endpoints
}

type verb string

const (
	create verb = "create"
	update verb = "update"
	remove verb = "delete"
)

// step is one change: object is new for create, a changed copy for update, as
// observed for delete. A new slice has no name yet.
type step struct {
	verb   verb
	object api.Object
}

// plan decides what makes the slices and the Endpoints of a Service right: what adds
// first, deletions last, so that an endpoint which moves is never missing.
func plan(o observed) []step {
	svc := o.service
	var groups []group
	var legacy *corev1.Endpoints
	switch {
	case svc == nil || svc.DeletionTimestamp != nil || !api.HasClusterIP(&svc.Spec):
	case len(svc.Spec.Selector) > 0:
		groups = ofPods(svc, o.pods, o.zones)
		legacy = legacyOf(svc, o.pods)
	case o.endpoints != nil && mirrored(o.endpoints):
		groups = ofEndpoints(o.endpoints)
	}
	var steps, last []step
	for _, s := range place(groups, o.slices) {
		switch {
		case s.slice == nil:
			steps = append(steps, step{create, dressed(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: s.ports, Endpoints: s.endpoints}, svc)})
		case len(s.endpoints) == 0:
			last = append(last, step{remove, s.slice})
		default:
			out := s.slice.DeepCopy()
			out.Ports, out.Endpoints = s.ports, s.endpoints
			if dressed(out, svc); !equality.Semantic.DeepEqual(out, s.slice) {
				out.Generation++
				steps = append(steps, step{update, out})
			}
		}
	}
	return append(append(steps, legacySteps(o.endpoints, legacy)...), last...)
}

func ours(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == manager
}

// dressed gives a slice the metadata that it has by its Service: the labels of that,
// and those that say what it is.
func dressed(slice *discoveryv1.EndpointSlice, svc *corev1.Service) *discoveryv1.EndpointSlice {
	slice.Namespace, slice.Labels = svc.Namespace, labelsOf(svc)
	slice.Labels[discoveryv1.LabelServiceName] = svc.Name
	slice.Labels[discoveryv1.LabelManagedBy] = manager
	slice.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))}
	return slice
}

// labelsOf are the Service's labels, and whether it is headless.
func labelsOf(svc *corev1.Service) map[string]string {
	out := maps.Clone(svc.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		out[corev1.IsHeadlessService] = ""
	}
	return out
}
