package syncer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// balancedPort is a port of the nodes that a load balancer listens on.
type balancedPort struct {
	number   int32
	protocol corev1.Protocol
}

func (p balancedPort) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// balancedPorts are the ports of a Service of type LoadBalancer, by their index; nil
// when it is of another type.
func balancedPorts(svc *corev1.Service) (out []balancedPort) {
	if svc == nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	for _, p := range svc.Spec.Ports {
		out = append(out, balancedPort{p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP)})
	}
	return out
}

// checkBalancers finds the changed load balancers that want a port of the nodes which
// another has: the nodes are the load balancer, and each of their ports is one
// Service's. after are all Services as they will be.
func checkBalancers(c *scene, changed []*api.Manifest, after map[store.Key]*corev1.Service, f *findings) {
	judged := map[store.Key]bool{}
	for _, m := range changed {
		judged[keyOf(m)] = true
	}
	had := func(key store.Key) []balancedPort {
		live, _ := c.live.Get(key).(*corev1.Service)
		if live == nil || after[key] == nil || live.Spec.LoadBalancerIP != after[key].Spec.LoadBalancerIP {
			return nil // on another node, or on more of them
		}
		return balancedPorts(live)
	}
	holders := map[balancedPort][]store.Key{}
	// rival is who has a port that key wants, if anybody has.
	rival := func(p balancedPort, key store.Key) (store.Key, bool) {
		for _, by := range holders[p] {
			if by != key && meet(after[by], after[key]) {
				return by, true
			}
		}
		return store.Key{}, false
	}
	for _, key := range slices.SortedFunc(maps.Keys(after), compareKeys) {
		for _, p := range balancedPorts(after[key]) {
			if !judged[key] || slices.Contains(had(key), p) {
				holders[p] = append(holders[p], key)
			}
		}
	}
	for _, m := range changed {
		key := keyOf(m)
		for i, p := range balancedPorts(after[key]) {
			if slices.Contains(had(key), p) {
				continue
			}
			if by, taken := rival(p, key); taken {
				f.add(ruleBalancer, problem(m, fmt.Sprintf("spec.ports[%d].port", i),
					fmt.Sprintf("%s has port %s of the nodes, which are the load balancer: give this one another port, or the type ClusterIP", c.nameOf(by), p)))
			}
			holders[p] = append(holders[p], key)
			c.checkHidden(m, fmt.Sprintf("spec.ports[%d].port", i), p, f)
		}
	}
}

// meet says whether two load balancers may be on one node.
func meet(a, b *corev1.Service) bool {
	x, y := a.Spec.LoadBalancerIP, b.Spec.LoadBalancerIP
	return x == "" || y == "" || x == y
}
