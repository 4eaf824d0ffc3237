package syncer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// externalPort is a port of an address from outside that a Service listens on.
type externalPort struct {
	at netip.Addr
	balancedPort
}

// externalPorts are those of a Service, by the index of the address and of the port.
func externalPorts(svc *corev1.Service) map[externalPort][2]int {
	out := map[externalPort][2]int{}
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return out
	}
	for i, text := range svc.Spec.ExternalIPs {
		at, err := netip.ParseAddr(text)
		if err != nil {
			continue // the validation says so
		}
		for j, p := range svc.Spec.Ports {
			e := externalPort{at.Unmap(), balancedPort{p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP)}}
			if _, twice := out[e]; !twice {
				out[e] = [2]int{i, j}
			}
		}
	}
	return out
}

// checkExternals finds the changed Services that want a port of an external address
// which another has: on the nodes the first by name would have it, and so who has it
// could lose it to a newcomer.
func checkExternals(c *scene, changed []*api.Manifest, after map[store.Key]*corev1.Service, f *findings) {
	judged := map[store.Key]bool{}
	for _, m := range changed {
		judged[keyOf(m)] = true
	}
	had := func(key store.Key) map[externalPort][2]int {
		live, _ := c.live.Get(key).(*corev1.Service)
		return externalPorts(live)
	}
	holders := map[externalPort]store.Key{}
	hold := func(key store.Key, p externalPort) {
		if _, held := holders[p]; !held {
			holders[p] = key
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(after), compareKeys) {
		before := had(key)
		for p := range externalPorts(after[key]) {
			if _, kept := before[p]; kept || !judged[key] {
				hold(key, p)
			}
		}
	}
	for _, m := range changed {
		key := keyOf(m)
		ports, before := externalPorts(after[key]), had(key)
		for _, p := range slices.SortedFunc(maps.Keys(ports), func(a, b externalPort) int {
			return cmp.Or(cmp.Compare(ports[a][0], ports[b][0]), cmp.Compare(ports[a][1], ports[b][1]))
		}) {
			if _, kept := before[p]; kept {
				continue
			}
			if by, taken := holders[p]; taken && by != key {
				f.add(ruleAddress, problem(m, fmt.Sprintf("spec.externalIPs[%d]", ports[p][0]), fmt.Sprintf("%s has port %s of %s: give this one another port or address", c.nameOf(by), p, p.at)))
			}
			hold(key, p)
		}
	}
}
