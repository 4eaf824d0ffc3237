package endpointslice

import (
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostAddresses is how many addresses Endpoints have; those that have more say so.
const mostAddresses = 1000

// overCapacity is the annotation of Endpoints that are not complete.
const overCapacity = corev1.EndpointsOverCapacity

// legacyOf are the Endpoints of a Service with a selector: by their ports, the ready
// pods and those that are not. A pod that is told to stop is in neither, unless
// addresses are published whatever the pod's state.
func legacyOf(svc *corev1.Service, pods []*corev1.Pod) *corev1.Endpoints {
	type subset struct {
		ports           []discoveryv1.EndpointPort
		ready, notReady []corev1.EndpointAddress
	}
	subsets := map[string]*subset{}
	for _, pod := range pods {
		publish := svc.Spec.PublishNotReadyAddresses
		if !answers(pod) || pod.DeletionTimestamp != nil && !publish {
			continue
		}
		ports := sorted(portsOf(svc, pod))
		if len(ports) == 0 && len(svc.Spec.Ports) > 0 {
			continue // it knows none of the names
		}
		s := subsets[portsKey(ports)]
		if s == nil {
			s = &subset{ports: ports}
			subsets[portsKey(ports)] = s
		}
		address := corev1.EndpointAddress{IP: pod.Status.PodIP, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
		if pod.Spec.NodeName != "" {
			node := pod.Spec.NodeName
			address.NodeName = &node
		}
		if named(svc, pod) {
			address.Hostname = pod.Spec.Hostname
		}
		if publish || ready(pod) {
			s.ready = append(s.ready, address)
		} else {
			s.notReady = append(s.notReady, address)
		}
	}
	out := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, Labels: labelsOf(svc)}}
	out.Labels[managedEndpoints] = manager
	out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))}
	room := mostAddresses
	for _, k := range slices.Sorted(maps.Keys(subsets)) {
		s := subsets[k]
		room -= len(s.ready) + len(s.notReady)
		out.Subsets = append(out.Subsets, corev1.EndpointSubset{Addresses: byAddress(s.ready), NotReadyAddresses: byAddress(s.notReady), Ports: legacyPorts(s.ports)})
	}
	if room < 0 {
		out.Annotations = map[string]string{overCapacity: "truncated"}
		truncate(out)
	}
	return out
}

func byAddress(list []corev1.EndpointAddress) []corev1.EndpointAddress {
	slices.SortFunc(list, func(a, b corev1.EndpointAddress) int {
		return strings.Compare(a.IP+" "+string(a.TargetRef.UID), b.IP+" "+string(b.TargetRef.UID))
	})
	return list
}

func legacyPorts(ports []discoveryv1.EndpointPort) (out []corev1.EndpointPort) {
	for _, p := range ports {
		out = append(out, corev1.EndpointPort{Name: value(p.Name), Port: value(p.Port), Protocol: value(p.Protocol), AppProtocol: p.AppProtocol})
	}
	return out
}

// truncate leaves the first addresses, the ready ones before all others.
func truncate(e *corev1.Endpoints) {
	room := mostAddresses
	take := func(list []corev1.EndpointAddress) []corev1.EndpointAddress {
		n := min(room, len(list))
		room -= n
		return list[:n:n]
	}
	for i := range e.Subsets {
		e.Subsets[i].Addresses = take(e.Subsets[i].Addresses)
	}
	for i := range e.Subsets {
		e.Subsets[i].NotReadyAddresses = take(e.Subsets[i].NotReadyAddresses)
	}
	e.Subsets = slices.DeleteFunc(e.Subsets, func(s corev1.EndpointSubset) bool { return len(s.Addresses)+len(s.NotReadyAddresses) == 0 })
}

// legacySteps makes Endpoints what is wanted, nil for none. Those of others stay as
// they are; those that a repository declares are others', too.
func legacySteps(is, wanted *corev1.Endpoints) []step {
	if is == nil {
		if wanted == nil {
			return nil
		}
		return []step{{create, wanted}}
	}
	_, declared := api.ProvenanceOf(is)
	mine := is.Labels[managedEndpoints] == manager
	switch {
	case declared || wanted == nil && !mine:
		return nil
	case wanted == nil:
		return []step{{remove, is}}
	}
	out := is.DeepCopy()
	out.Labels, out.OwnerReferences, out.Subsets = wanted.Labels, wanted.OwnerReferences, wanted.Subsets
	if _, over := wanted.Annotations[overCapacity]; over {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, overCapacity, wanted.Annotations[overCapacity])
	} else {
		delete(out.Annotations, overCapacity)
	}
	if equality.Semantic.DeepEqual(out, is) {
		return nil
	}
	return []step{{update, out}}
}

// mirrored says whether slices are made of Endpoints that somebody gave.
func mirrored(e *corev1.Endpoints) bool {
	_, lock := e.Annotations[election]
	return e.DeletionTimestamp == nil && e.Labels[managedEndpoints] != manager && e.Labels[skipMirror] != "true" && !lock
}

// ofEndpoints are the endpoints that somebody gave a Service without a selector, as
// many as Endpoints should have.
func ofEndpoints(e *corev1.Endpoints) []group {
	var g grouping
	room := mostAddresses
	for _, s := range e.Subsets {
		ports := []discoveryv1.EndpointPort{}
		for _, p := range s.Ports {
			protocol := protocolOf(p.Protocol)
			ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &protocol, AppProtocol: p.AppProtocol})
		}
		add := func(list []corev1.EndpointAddress, isReady bool) {
			for _, a := range list {
				if room == 0 || !isIPv4(a.IP) {
					continue
				}
				room--
				terminating := false
				out := discoveryv1.Endpoint{Addresses: []string{a.IP}, NodeName: a.NodeName, TargetRef: a.TargetRef,
					Conditions: discoveryv1.EndpointConditions{Ready: &isReady, Serving: &isReady, Terminating: &terminating}}
				if a.Hostname != "" {
					out.Hostname = &a.Hostname
				}
				g.add(ports, out)
			}
		}
		add(s.Addresses, true)
		add(s.NotReadyAddresses, false)
	}
	return g.groups()
}
