package dns

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// key names a Service or a slice.
type key struct{ namespace, name string }

// names is everything that is known of the cluster, for reading without a lock:
// what the maps hold is replaced and never changed. Names in it are lower case.
type names struct {
	mu         sync.Mutex // of those who set
	services   sync.Map   // key → *service
	slices     sync.Map   // key → *slice
	clusterIPs sync.Map   // netip.Addr → key of the Service
	endpoints  sync.Map   // netip.Addr → []key of the slices that have it
	namespaces sync.Map   // string → int, how many Services it has
	count      int        // of Services
}

// service is what names say of one Service. Its slices may be there before it.
type service struct {
	known    bool
	external string // ExternalName: where it leads, with the dot at its end
	ips      []netip.Addr
	headless bool
	all      bool // publishNotReadyAddresses
	ports    []port
	slices   []*slice // by name
}

type port struct {
	name, proto string
	number      uint16
}

// slice is an EndpointSlice.
type slice struct {
	key       key
	service   string
	endpoints []endpoint
	ports     []port
	hosts     map[string][]netip.Addr // of the endpoints that have a hostname, ready ones only
	allHosts  map[string][]netip.Addr // the same with those that are not ready; shared when equal
}

type endpoint struct {
	addr  netip.Addr
	host  string // "": none given
	ready bool
}

func (n *names) service(k key) *service {
	s, ok := n.services.Load(k)
	if !ok {
		return nil
	}
	return s.(*service)
}

func (n *names) slice(k key) *slice {
	s, ok := n.slices.Load(k)
	if !ok {
		return nil
	}
	return s.(*slice)
}

// SetService takes a Service into the names, or its newer version.
func (n *names) SetService(obj *corev1.Service) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := key{strings.ToLower(obj.Namespace), strings.ToLower(obj.Name)}
	next := serviceOf(obj)
	old := n.service(k)
	if old != nil {
		next.slices = old.slices
		if old.known && next.equal(old) {
			return
		}
		n.dropIPs(k, old, next)
	}
	if old == nil || !old.known {
		n.count++
		n.inNamespace(k.namespace, 1)
	}
	n.services.Store(k, next)
	for _, ip := range next.ips {
		n.clusterIPs.Store(ip, k)
	}
}

// UnsetService forgets a Service; one that is not known is fine.
func (n *names) UnsetService(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := key{strings.ToLower(namespace), strings.ToLower(name)}
	old := n.service(k)
	if old == nil || !old.known {
		return
	}
	n.dropIPs(k, old, &service{})
	n.count--
	n.inNamespace(k.namespace, -1)
	if len(old.slices) == 0 {
		n.services.Delete(k)
		return
	}
	n.services.Store(k, &service{slices: old.slices})
}

// dropIPs forgets the cluster IPs that a Service no longer has and that no other
// one has taken since.
func (n *names) dropIPs(k key, old, next *service) {
	for _, ip := range old.ips {
		if !slices.Contains(next.ips, ip) {
			n.clusterIPs.CompareAndDelete(ip, k)
		}
	}
}

func (n *names) inNamespace(namespace string, change int) {
	now, _ := n.namespaces.Load(namespace)
	count, _ := now.(int)
	if count += change; count == 0 {
		n.namespaces.Delete(namespace)
		return
	}
	n.namespaces.Store(namespace, count)
}

// SetSlice takes an EndpointSlice into the names, or its newer version.
func (n *names) SetSlice(obj *discoveryv1.EndpointSlice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replace(key{strings.ToLower(obj.Namespace), strings.ToLower(obj.Name)}, sliceOf(obj))
}

// UnsetSlice forgets an EndpointSlice; one that is not known is fine.
func (n *names) UnsetSlice(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replace(key{strings.ToLower(namespace), strings.ToLower(name)}, nil)
}

// replace puts a slice in the place of the one of its name; nil: nothing.
func (n *names) replace(k key, next *slice) {
	old := n.slice(k)
	if old == nil && next == nil || old != nil && next != nil && old.equal(next) {
		return
	}
	if old != nil && (next == nil || next.service != old.service) {
		n.attach(key{k.namespace, old.service}, k, nil)
	}
	if next == nil {
		n.slices.Delete(k)
	} else {
		n.slices.Store(k, next)
		n.attach(key{k.namespace, next.service}, k, next)
	}
	before, after := old.addrs(), next.addrs()
	for addr := range before {
		if !after[addr] {
			n.forget(addr, k)
		}
	}
	for addr := range after {
		if !before[addr] {
			n.remember(addr, k)
		}
	}
}

// attach replaces one of a Service's slices; nil takes it away.
func (n *names) attach(k, name key, next *slice) {
	now := n.service(k)
	if now == nil {
		now = &service{}
	}
	changed := *now
	at, found := slices.BinarySearchFunc(now.slices, name.name, func(s *slice, name string) int { return cmp.Compare(s.key.name, name) })
	changed.slices = slices.Clone(now.slices)
	switch {
	case found && next != nil:
		changed.slices[at] = next
	case found:
		changed.slices = slices.Delete(changed.slices, at, at+1)
	case next != nil:
		changed.slices = slices.Insert(changed.slices, at, next)
	}
	if len(changed.slices) == 0 {
		changed.slices = nil
	}
	if !changed.known && changed.slices == nil {
		n.services.Delete(k)
		return
	}
	n.services.Store(k, &changed)
}

func (n *names) remember(addr netip.Addr, k key) {
	have, _ := n.endpoints.Load(addr)
	keys, _ := have.([]key)
	n.endpoints.Store(addr, append(slices.Clip(keys), k))
}

func (n *names) forget(addr netip.Addr, k key) {
	have, _ := n.endpoints.Load(addr)
	keys, _ := have.([]key)
	rest := slices.DeleteFunc(slices.Clone(keys), func(other key) bool { return other == k })
	if len(rest) == 0 {
		n.endpoints.Delete(addr)
		return
	}
	n.endpoints.Store(addr, rest)
}

// size is how many Services have a name.
func (n *names) size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count
}
