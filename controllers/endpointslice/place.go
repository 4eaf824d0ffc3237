package endpointslice

import (
	"cmp"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// mostEndpoints is how many a slice holds, as in Kubernetes unless it is told
// otherwise.
const mostEndpoints = 100

// placed is what a slice is to hold: slice is nil for a new one; without endpoints it
// is to go.
type placed struct {
	slice     *discoveryv1.EndpointSlice
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint

	changed bool // and will be written anyhow
}

// place gives every endpoint a slice. What is in a slice with its ports stays there.
// What is new fills the slices that are written anyhow, then the fullest of the
// others, then new ones: the fewest slices are written. None is emptied into another
// for the sake of order.
func place(groups []group, present []*discoveryv1.EndpointSlice) []placed {
	byPorts := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range present {
		k := portsKey(sorted(s.Ports))
		byPorts[k] = append(byPorts[k], s)
	}
	var out []placed
	for _, g := range groups {
		k := portsKey(g.ports)
		out = append(out, placeGroup(g, byPorts[k])...)
		delete(byPorts, k)
	}
	for _, s := range present {
		if _, unwanted := byPorts[portsKey(sorted(s.Ports))]; unwanted {
			out = append(out, placed{slice: s})
		}
	}
	return out
}

func placeGroup(g group, present []*discoveryv1.EndpointSlice) []placed {
	wanted := make(map[identity]discoveryv1.Endpoint, len(g.endpoints))
	for _, e := range g.endpoints {
		wanted[identityOf(&e)] = e
	}
	out := make([]placed, 0, len(present))
	for _, s := range present {
		out = append(out, keep(s, g.ports, wanted))
	}
	var left []discoveryv1.Endpoint
	for _, e := range g.endpoints {
		if _, open := wanted[identityOf(&e)]; open {
			left = append(left, e)
		}
	}
	order := make([]*placed, len(out))
	for i := range out {
		order[i] = &out[i]
	}
	slices.SortStableFunc(order, func(a, b *placed) int {
		if a.changed != b.changed {
			return cmp.Compare(rank(a.changed), rank(b.changed))
		}
		return cmp.Compare(len(b.endpoints), len(a.endpoints))
	})
	for _, p := range order {
		n := min(len(left), mostEndpoints-len(p.endpoints))
		p.endpoints, left = append(p.endpoints, left[:n]...), left[n:]
	}
	for len(left) > 0 {
		n := min(len(left), mostEndpoints)
		out = append(out, placed{ports: g.ports, endpoints: slices.Clone(left[:n])})
		left = left[n:]
	}
	return out
}

func rank(changed bool) int {
	if changed {
		return 0
	}
	return 1
}

// keep is what of a slice is still wanted, as it is wanted; it takes that out of
// wanted. Of a slice that is too full the rest is placed anew.
func keep(s *discoveryv1.EndpointSlice, ports []discoveryv1.EndpointPort, wanted map[identity]discoveryv1.Endpoint) placed {
	p := placed{slice: s, ports: ports}
	if equality.Semantic.DeepEqual(sorted(s.Ports), ports) {
		p.ports = s.Ports // in the order that they have
	}
	for i := range s.Endpoints {
		id := identityOf(&s.Endpoints[i])
		e, ok := wanted[id]
		if !ok || len(p.endpoints) == mostEndpoints {
			p.changed = true
			continue
		}
		delete(wanted, id)
		if !equality.Semantic.DeepEqual(e, s.Endpoints[i]) {
			p.changed = true
		}
		p.endpoints = append(p.endpoints, e)
	}
	return p
}
