package loadbalancer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observed is what a plan is made from.
type observed struct {
	service *corev1.Service
	others  []*corev1.Service // of the type, service among them
	nodes   []*corev1.Node
	at      map[string]bool // nodes with a ready endpoint; nil: it does not matter
}

// decision is the Service as it should be, nil when it is, and those that it was
// decided against.
type decision struct {
	service *corev1.Service
	rivals  []*corev1.Service
}

func plan(o observed, now time.Time) decision {
	out := o.service.DeepCopy()
	var d decision
	holder := ""
	for _, other := range o.others {
		port := shared(o.service, other)
		if other.Namespace == o.service.Namespace && other.Name == o.service.Name || port == "" {
			continue
		}
		d.rivals = append(d.rivals, other)
		if holder == "" && before(other, o.service) {
			holder = fmt.Sprintf("port %s of the nodes is that of Service %s/%s: give this one another port, or the type ClusterIP", port, other.Namespace, other.Name)
		}
	}
	out.Status.LoadBalancer.Ingress = nil
	if holder == "" {
		out.Status.LoadBalancer.Ingress = ingress(o)
		meta.RemoveStatusCondition(&out.Status.Conditions, corev1.LoadBalancerPortsError)
	} else {
		meta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{
			Type: corev1.LoadBalancerPortsError, Status: metav1.ConditionTrue, Reason: "PortTaken", Message: holder,
			ObservedGeneration: out.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	if len(out.Status.Conditions) == 0 {
		out.Status.Conditions = nil
	}
	if !equality.Semantic.DeepEqual(out.Status, o.service.Status) {
		d.service = out
	}
	return d
}

// before says whether a has a port rather than b: the one that has addresses, then the
// older one.
func before(a, b *corev1.Service) bool {
	has := func(s *corev1.Service) int { return min(len(s.Status.LoadBalancer.Ingress), 1) }
	return cmp.Or(cmp.Compare(has(b), has(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

// shared is a port of a node that both Services want, for people; "" for none.
func shared(a, b *corev1.Service) string {
	if x, y := a.Spec.LoadBalancerIP, b.Spec.LoadBalancerIP; x != "" && y != "" && x != y {
		return "" // on different nodes
	}
	for _, p := range a.Spec.Ports {
		for _, q := range b.Spec.Ports {
			if p.Port == q.Port && protocol(p) == protocol(q) {
				return fmt.Sprintf("%d/%s", p.Port, protocol(p))
			}
		}
	}
	return ""
}

func protocol(p corev1.ServicePort) corev1.Protocol { return cmp.Or(p.Protocol, corev1.ProtocolTCP) }

// ingress are the addresses, sorted, each once.
func ingress(o observed) (out []corev1.LoadBalancerIngress) {
	var addresses []string
	for _, n := range o.nodes {
		at := addressOf(n)
		if at == "" || o.at != nil && !o.at[n.Name] || o.service.Spec.LoadBalancerIP != "" && o.service.Spec.LoadBalancerIP != at {
			continue
		}
		addresses = append(addresses, at)
	}
	slices.Sort(addresses)
	mode := corev1.LoadBalancerIPModeVIP
	for _, at := range slices.Compact(addresses) {
		out = append(out, corev1.LoadBalancerIngress{IP: at, IPMode: &mode})
	}
	return out
}

// addressOf is where clients reach a node; "" when they should not: it is not ready,
// being deleted, or excluded.
func addressOf(n *corev1.Node) string {
	if n == nil || n.DeletionTimestamp != nil {
		return ""
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return ""
	}
	if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return ""
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}
	return ""
}

// nodesOf adds the nodes with a ready endpoint.
func nodesOf(slice *discoveryv1.EndpointSlice, at map[string]bool) {
	for _, e := range slice.Endpoints {
		if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
			at[*e.NodeName] = true
		}
	}
}
