package kubernetes

import (
	"net/netip"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	name     = "kubernetes"
	portName = "https"
	port     = 443
)

func key(gr schema.GroupResource) store.Key {
	return store.Key{GroupResource: gr, Namespace: metav1.NamespaceDefault, Name: name}
}

// observed is what there is; nil: it is not there.
type observed struct {
	address   netip.Addr
	server    netip.AddrPort
	service   *corev1.Service
	endpoints *corev1.Endpoints
	slice     *discoveryv1.EndpointSlice
}

type step struct {
	verb   store.Verb
	object api.Object
}

// plan is what makes the three objects right. A Service with another address, which
// cannot change, is made anew.
func plan(o observed) (steps []step) {
	if o.service != nil && o.service.Spec.ClusterIP != o.address.String() {
		return []step{{store.Delete, o.service}} // that wakes us
	}
	service, endpoints, slice := &corev1.Service{}, &corev1.Endpoints{}, &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	var haveService, haveEndpoints, haveSlice api.Object
	if o.service != nil {
		service, haveService = o.service.DeepCopy(), o.service
	}
	if o.endpoints != nil {
		endpoints, haveEndpoints = o.endpoints.DeepCopy(), o.endpoints
	}
	if o.slice != nil {
		slice, haveSlice = o.slice.DeepCopy(), o.slice
	}
	named(service, map[string]string{"component": "apiserver", "provider": "kubernetes"})
	named(endpoints, map[string]string{discoveryv1.LabelSkipMirror: "true"})
	named(slice, map[string]string{discoveryv1.LabelServiceName: name})

	target := int32(port)
	if o.server.IsValid() {
		target = int32(o.server.Port())
	}
	service.Spec.Type, service.Spec.Selector = corev1.ServiceTypeClusterIP, nil
	service.Spec.ClusterIP, service.Spec.ClusterIPs = o.address.String(), []string{o.address.String()}
	service.Spec.Ports = []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(target)}}
	api.Scheme().Default(service)

	endpoints.Subsets, slice.Endpoints, slice.Ports = nil, []discoveryv1.Endpoint{}, []discoveryv1.EndpointPort{}
	if o.server.IsValid() {
		yes, no, name, protocol := true, false, portName, corev1.ProtocolTCP
		at := o.server.Addr().String()
		endpoints.Subsets = []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: at}}, Ports: []corev1.EndpointPort{{Name: name, Port: target, Protocol: protocol}},
		}}
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{at}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}}
		slice.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &target, Protocol: &protocol}}
	}
	for _, s := range []struct{ have, want api.Object }{{haveService, service}, {haveEndpoints, endpoints}, {haveSlice, slice}} {
		switch {
		case s.have == nil:
			steps = append(steps, step{store.Create, s.want})
		case !equality.Semantic.DeepEqual(s.have, s.want):
			steps = append(steps, step{store.Update, s.want})
		}
	}
	return steps
}

func named(obj api.Object, labels map[string]string) {
	obj.SetNamespace(metav1.NamespaceDefault)
	obj.SetName(name)
	obj.SetLabels(labels)
}
