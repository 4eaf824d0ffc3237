package syncer

import (
	"cmp"
	"fmt"
	"net/netip"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secureShell is where machines are mended from.
var secureShell = balancedPort{22, corev1.ProtocolTCP}

// checkHidden looks at a port that a load balancer newly takes of the nodes: packets go
// to the Service before any program of a node sees them, so it must not be the API's,
// and people should know of others; a pod's hostPort is looked at before the Service.
func (c *scene) checkHidden(m *api.Manifest, at string, p balancedPort, f *findings) {
	if p == secureShell {
		f.add(ruleHidden, problem(m, at, "on the nodes' addresses port 22/TCP is then this Service's: nobody reaches their sshd by it, unless that listens on another port"))
	}
	if where := c.apiAt(p); where != "" {
		f.add(ruleBalancer, problem(m, at, fmt.Sprintf("the API listens on port %s of the nodes, at %s: agents and kubectl would reach the Service instead; give it another port, or the type ClusterIP", p, where)))
	}
	if by := c.hostPortOf(p); by != "" {
		f.add(ruleHidden, problem(m, at, fmt.Sprintf("pods of %s have port %s of their node as hostPort: what is sent to this Service there goes to them", by, p)))
	}
}

// apiAt is where the API listens, if it does on a port of a node.
func (c *scene) apiAt(p balancedPort) string {
	for _, obj := range c.live.List(api.EndpointSlices(), metav1.NamespaceDefault) {
		slice := obj.(*discoveryv1.EndpointSlice)
		if slice.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			continue
		}
		for _, port := range slice.Ports {
			if port.Port == nil || *port.Port != p.number || p.protocol != corev1.ProtocolTCP {
				continue
			}
			for _, e := range slice.Endpoints {
				for _, address := range e.Addresses {
					if c.isNode(address) {
						return fmt.Sprintf("%s:%d", address, p.number)
					}
				}
			}
		}
	}
	return ""
}

func (c *scene) isNode(address string) bool {
	for _, obj := range c.live.List(api.Nodes(), "") {
		for _, a := range obj.(*corev1.Node).Status.Addresses {
			if a.Address == address {
				return true
			}
		}
	}
	return false
}

// hostPortOf names an object, declared or live, whose pods have a port of their node.
func (c *scene) hostPortOf(p balancedPort) string {
	for _, m := range c.desired.list {
		if hasHostPort(m.Object, p) {
			return c.nameOf(keyOf(m))
		}
	}
	for _, k := range api.Kinds() {
		if t, _ := template(k.New()); t == nil {
			continue
		}
		for _, obj := range c.live.List(k.GroupResource(), "") {
			key := store.Key{GroupResource: k.GroupResource(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
			if _, leaves := c.gone[key]; leaves || metav1.GetControllerOfNoCopy(obj) != nil || c.desired.manifest(key) != nil {
				continue
			}
			if hasHostPort(obj, p) {
				return c.nameOf(key)
			}
		}
	}
	return ""
}

func hasHostPort(obj api.Object, p balancedPort) bool {
	t, _ := template(obj)
	if t == nil {
		return false
	}
	for _, container := range t.Spec.Containers {
		for _, port := range container.Ports {
			if ip, err := netip.ParseAddr(port.HostIP); err == nil && ip.IsLoopback() {
				continue
			}
			if port.HostPort == p.number && cmp.Or(port.Protocol, corev1.ProtocolTCP) == p.protocol {
				return true
			}
		}
	}
	return false
}
