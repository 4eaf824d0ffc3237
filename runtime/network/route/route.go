package route

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/knftables"
)

// Config says for whom a Router routes.
type Config struct {
	// Table is the name of the nftables table, one per instance on a machine.
	Table string
	Node  string // this node's name, as endpoints have it
	// Bridge is the interface that this node's pods are behind. Without it
	// everybody counts as a pod of this node.
	Bridge string
	// Services is the range of cluster IPs. What of it leads nowhere is refused,
	// and the node itself gets a route to it by the bridge. Zero: neither.
	Services netip.Prefix
	// Pods is the network of this node's pods. No Service is led to by an address
	// of it or of Services that it names as one from outside: that would take what
	// is sent to a pod, or to another Service. Zero: it is not known.
	Pods   netip.Prefix
	Period time.Duration // of looking at the kernel again; zero: 10 s
	Log    *slog.Logger
}

// Router keeps the kernel's routes to Services. Methods may be called at once
// from several goroutines; an object that was given is not to be changed.
type Router struct {
	cfg    Config
	layout layout
	nft    knftables.Interface
	kernel reader
	health *healthServers

	// writing is held by whoever changes the kernel, never together with mu
	// while something outside the process is waited for.
	writing chan struct{}
	started bool   // there was a Sync; written under mu, too
	synced  bool   // the kernel holds what wanted says; false after a failure
	seen    uint32 // generation at which that was so
	nextAll time.Time
	flows   flows // that remain to be deleted

	mu      sync.Mutex
	state   map[name]*service
	where   map[name]name // slice: its Service
	dirty   map[name]bool
	dropped map[netip.Addr]bool
	users   map[uint32][]use // by address
	numbers *numbers
	wanted  *wanted
}

// service is what is known of a Service, and what came of it.
type service struct {
	name    name
	object  *corev1.Service
	slices  map[string]*discoveryv1.EndpointSlice
	entries []entry
	serving []road
}

// use is how often the slices of a Service have an address.
type use struct {
	by    *service
	times int
}

// reader reads what the kernel has.
type reader interface {
	generation() (uint32, error)
	observe() (*observed, error)
	lookup(key) (value, bool, error)
}

// New returns a Router. It changes nothing before the first Sync, so what an
// earlier process left goes on.
func New(cfg Config) (*Router, error) {
	if cfg.Table == "" || cfg.Node == "" {
		return nil, errors.New("routes of Services need the name of a table and of the node")
	}
	if cfg.Services.IsValid() && !cfg.Services.Addr().Is4() {
		return nil, fmt.Errorf("routes of Services need an IPv4 range of addresses, not %s", cfg.Services)
	}
	nft, err := knftables.New(knftables.IPv4Family, cfg.Table)
	if err != nil {
		return nil, fmt.Errorf("routes of Services need nftables 1.0.1 or later: %w", err)
	}
	return newRouter(cfg, nft, kernel{cfg.Table}), nil
}

const defaultPeriod = 10 * time.Second

func newRouter(cfg Config, nft knftables.Interface, k reader) *Router {
	if cfg.Period == 0 {
		cfg.Period = defaultPeriod
	}
	cfg.Services = cfg.Services.Masked()
	return &Router{
		cfg: cfg, layout: newLayout(cfg.Bridge, cfg.Services), nft: nft, kernel: k,
		health: newHealthServers(cfg.Log), writing: make(chan struct{}, 1),
		state: map[name]*service{}, where: map[name]name{}, dirty: map[name]bool{}, dropped: map[netip.Addr]bool{},
		users: map[uint32][]use{}, numbers: newNumbers(numberBits), wanted: newWanted(),
	}
}

// SetService tells of a Service, new or changed.
func (r *Router) SetService(s *corev1.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := name{s.Namespace, s.Name}
	known := r.of(n)
	if known.object != nil && equality.Semantic.DeepEqual(known.object.Spec, s.Spec) &&
		equality.Semantic.DeepEqual(known.object.Status.LoadBalancer, s.Status.LoadBalancer) {
		return
	}
	known.object, r.dirty[n] = s, true
}

// UnsetService tells that a Service is gone.
func (r *Router) UnsetService(namespace, service string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := name{namespace, service}
	if known := r.state[n]; known != nil {
		known.object, r.dirty[n] = nil, true
	}
}

// SetSlice tells of an EndpointSlice, new or changed.
func (r *Router) SetSlice(s *discoveryv1.EndpointSlice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slice, n := name{s.Namespace, s.Name}, name{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
	if before, ok := r.where[slice]; ok {
		old := r.state[before].slices[s.Name]
		if before == n && old.AddressType == s.AddressType &&
			equality.Semantic.DeepEqual(old.Endpoints, s.Endpoints) && equality.Semantic.DeepEqual(old.Ports, s.Ports) {
			return
		}
		if before != n {
			r.unsetSlice(slice)
		}
	}
	if n.name == "" {
		return // belongs to no Service
	}
	known := r.of(n)
	if known.slices == nil {
		known.slices = map[string]*discoveryv1.EndpointSlice{}
	}
	r.count(n, s, 1)
	if old := known.slices[s.Name]; old != nil {
		r.count(n, old, -1)
	}
	known.slices[s.Name], r.where[slice], r.dirty[n] = s, n, true
}

// UnsetSlice tells that an EndpointSlice is gone.
func (r *Router) UnsetSlice(namespace, slice string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsetSlice(name{namespace, slice})
}

func (r *Router) unsetSlice(slice name) {
	n, ok := r.where[slice]
	if !ok {
		return
	}
	r.count(n, r.state[n].slices[slice.name], -1)
	delete(r.state[n].slices, slice.name)
	delete(r.where, slice)
	r.dirty[n] = true
}

// of returns what is known of a Service, made where there is nothing.
func (r *Router) of(n name) *service {
	if r.state[n] == nil {
		r.state[n] = &service{name: n}
	}
	return r.state[n]
}

// count notes which Services have an address. One that the last slice gives up is
// forgotten to be dropped: who has it next starts anew.
func (r *Router) count(n name, s *discoveryv1.EndpointSlice, by int) {
	service := r.state[n]
	for i := range s.Endpoints {
		for _, a := range s.Endpoints[i].Addresses {
			ip, ok := parse4(a)
			if !ok {
				continue
			}
			users := r.users[ip]
			at := slices.IndexFunc(users, func(u use) bool { return u.by == service })
			if at < 0 {
				at, users = len(users), append(users, use{by: service})
			}
			if users[at].times += by; users[at].times == 0 {
				users = slices.Delete(users, at, at+1)
			}
			if r.users[ip] = users; len(users) == 0 {
				delete(r.users, ip)
				delete(r.dropped, addrOf(ip))
			}
		}
	}
}

// Drop takes a pod that is about to be stopped out of every Service, as if its
// slices said that it is terminating: it gets new connections only where no other
// endpoint is left. It holds until Admit, or until no slice has the address.
func (r *Router) Drop(pod netip.Addr) { r.setDropped(pod, true) }

// Admit ends a Drop.
func (r *Router) Admit(pod netip.Addr) { r.setDropped(pod, false) }

func (r *Router) setDropped(pod netip.Addr, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod = pod.Unmap()
	if r.dropped[pod] == yes {
		return
	}
	if delete(r.dropped, pod); yes {
		r.dropped[pod] = true
	}
	if !pod.Is4() {
		return
	}
	for _, u := range r.users[word(pod)] {
		r.dirty[u.by.name] = true
	}
}

// settle brings wanted up to what is known. Under mu.
func (r *Router) settle() {
	for n := range r.dirty {
		s := r.state[n]
		p := plan(r.input(n), r.numbers)
		r.wanted.replace(&s.name, s.entries, p.entries)
		r.wanted.serve(s.serving, p.serving)
		r.numbers.release(s.entries, p.entries)
		s.entries, s.serving = p.entries, p.serving
		r.health.set(n, p.healthPort, p.local)
		if s.object == nil && len(s.slices) == 0 {
			delete(r.state, n)
		}
	}
	clear(r.dirty)
}

func (r *Router) input(n name) input {
	s := r.state[n]
	in := input{name: n, service: s.object, dropped: r.dropped, node: r.cfg.Node, taken: [2]netip.Prefix{r.cfg.Services, r.cfg.Pods}}
	for _, slice := range s.slices {
		in.slices = append(in.slices, slice)
	}
	return in
}
