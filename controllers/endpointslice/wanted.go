package endpointslice

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// group is endpoints that have the same ports, in an order of their own.
type group struct {
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// ofPods are the endpoints that the pods of a Service are.
func ofPods(svc *corev1.Service, pods []*corev1.Pod, zones map[string]string) []group {
	var g grouping
	for _, pod := range pods {
		if answers(pod) {
			g.add(portsOf(svc, pod), endpointOf(svc, pod, zones[pod.Spec.NodeName]))
		}
	}
	return g.groups()
}

// answers says whether a pod has an address that is its own.
func answers(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !ended && isIPv4(pod.Status.PodIP)
}

func isIPv4(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4()
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func endpointOf(svc *corev1.Service, pod *corev1.Pod, zone string) discoveryv1.Endpoint {
	serving, terminating := ready(pod), pod.DeletionTimestamp != nil
	isReady := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	out := discoveryv1.Endpoint{
		Addresses:  []string{pod.Status.PodIP},
		Conditions: discoveryv1.EndpointConditions{Ready: &isReady, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.NodeName != "" {
		node := pod.Spec.NodeName
		out.NodeName = &node
	}
	if zone != "" {
		out.Zone = &zone
	}
	if named(svc, pod) {
		hostname := pod.Spec.Hostname
		out.Hostname = &hostname
	}
	return out
}

// named says whether a pod has a name of its own below that of the Service.
func named(svc *corev1.Service, pod *corev1.Pod) bool {
	return pod.Spec.Hostname != "" && pod.Spec.Subdomain == svc.Name
}

// portsOf are the ports of a Service as a pod has them. One whose name the pod does
// not know is left out.
func portsOf(svc *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for _, p := range svc.Spec.Ports {
		number, ok := target(&p, pod)
		if !ok {
			continue
		}
		name, protocol := p.Name, protocolOf(p.Protocol)
		out = append(out, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

func protocolOf(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }

// target is the number of a Service's target port in a pod.
func target(p *corev1.ServicePort, pod *corev1.Pod) (int32, bool) {
	if p.TargetPort.Type == intstr.Int {
		return cmp.Or(p.TargetPort.IntVal, p.Port), true
	}
	for _, c := range containers(pod) {
		for _, port := range c.Ports {
			if port.Name == p.TargetPort.StrVal && protocolOf(port.Protocol) == protocolOf(p.Protocol) {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}

// containers are those that run as long as the pod does.
func containers(pod *corev1.Pod) []corev1.Container {
	out := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

// grouping collects endpoints by their ports. An endpoint is in a group once.
type grouping struct {
	byPorts map[string]*group
	seen    map[string]map[identity]bool
}

func (g *grouping) add(ports []discoveryv1.EndpointPort, e discoveryv1.Endpoint) {
	ports = sorted(ports)
	k := portsKey(ports)
	if g.byPorts == nil {
		g.byPorts, g.seen = map[string]*group{}, map[string]map[identity]bool{}
	}
	if g.byPorts[k] == nil {
		g.byPorts[k], g.seen[k] = &group{ports: ports}, map[identity]bool{}
	}
	if id := identityOf(&e); !g.seen[k][id] {
		g.seen[k][id] = true
		g.byPorts[k].endpoints = append(g.byPorts[k].endpoints, e)
	}
}

// groups are in the order of their ports.
func (g *grouping) groups() []group {
	var keys []string
	for k := range g.byPorts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []group
	for _, k := range keys {
		out = append(out, *g.byPorts[k])
	}
	return out
}

func sorted(ports []discoveryv1.EndpointPort) []discoveryv1.EndpointPort {
	out := slices.Clone(ports)
	slices.SortStableFunc(out, func(a, b discoveryv1.EndpointPort) int { return strings.Compare(portKey(a), portKey(b)) })
	return out
}

func portKey(p discoveryv1.EndpointPort) string {
	return fmt.Sprintf("%s/%s/%d/%s", value(p.Name), value(p.Protocol), value(p.Port), value(p.AppProtocol))
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func portsKey(ports []discoveryv1.EndpointPort) string {
	var out []string
	for _, p := range ports {
		out = append(out, portKey(p))
	}
	return strings.Join(out, ",")
}

// identity is what makes an endpoint the same one after it has changed.
type identity struct {
	address string
	pod     types.UID
}

func identityOf(e *discoveryv1.Endpoint) identity {
	id := identity{address: strings.Join(e.Addresses, ",")}
	if e.TargetRef != nil {
		id.pod = e.TargetRef.UID
	}
	return id
}
