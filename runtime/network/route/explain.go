package route

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Path is how a packet of a pod of this node goes to a port of a Service.
type Path struct {
	Service string `json:"service"`        // namespace/name
	Port    string `json:"port,omitempty"` // name or number
	Steps   []Step `json:"steps"`
	// Stops says why a connection does not get through; "" when nothing here
	// prevents it.
	Stops string `json:"stops,omitempty"`
}

// Step is one stage of a path.
type Step struct {
	Name  string   `json:"name"` // name, service, address, policy, endpoints, kernel
	Lines []string `json:"lines"`
}

// String is for a person to read.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p.Steps {
		for i, line := range s.Lines {
			head := s.Name
			if i > 0 {
				head = ""
			}
			fmt.Fprintf(&b, "%-10s %s\n", head, line)
		}
	}
	if p.Stops != "" {
		fmt.Fprintf(&b, "%-10s %s\n", "STOPS", p.Stops)
	}
	return b.String()
}

func (p *Path) step(name string, lines ...string) { p.Steps = append(p.Steps, Step{name, lines}) }

func (p *Path) stop(format string, args ...any) Path {
	if p.Stops == "" {
		p.Stops = fmt.Sprintf(format, args...)
	}
	return *p
}

// Explain follows a packet from a pod of this node to a Service. The port is a
// name or a number; "" is the only one. What it says of the kernel was read there.
func (r *Router) Explain(namespace, service, port string) (Path, error) {
	r.mu.Lock()
	n := name{namespace, service}
	p := Path{Service: n.String(), Port: port}
	if r.state[n] == nil || r.state[n].object == nil {
		r.mu.Unlock()
		return p.stop("this node knows no Service %s", n), nil
	}
	in := r.input(n)
	in.dropped = maps.Clone(r.dropped) // it goes on changing while we read the kernel
	synced := r.started && len(r.dirty) == 0
	r.mu.Unlock()

	spec := &in.service.Spec
	p.step("service", describe(in)...)
	if !routed(in.service) {
		return p.unrouted(spec), nil
	}
	sp, why := findPort(spec.Ports, port)
	if sp == nil {
		return p.stop("%s", why), nil
	}
	ip, ok := parse4(spec.ClusterIP)
	if !ok {
		return p.stop("cluster IP %q is no IPv4 address", spec.ClusterIP), nil
	}
	k := key{inner, ip, protocolNumber(sp.Protocol), uint32(sp.Port)}
	p.step("address", fmt.Sprintf("%s/%s", target{ip, k.c}, protocolName(k.b)))
	eps := endpoints(in, sp)
	chosen := p.choose(in, eps)
	if to := nowhere(chosen, r.cfg.Services); to != "" {
		p.stop("endpoint %s is the address of a Service, and a Service leads to no other Service: give the addresses of its pods, or use type ExternalName", to)
	}
	if !synced {
		p.step("kernel", "changes wait to be written")
	}
	if err := r.explainKernel(&p, k, chosen); err != nil {
		return p, err
	}
	return p, nil
}

func describe(in input) []string {
	s := in.service
	kind := s.Spec.Type
	if kind == "" {
		kind = corev1.ServiceTypeClusterIP
	}
	line := fmt.Sprintf("%s %s/%s", kind, s.Namespace, s.Name)
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		line += ", headless"
	}
	out := []string{line}
	for _, p := range s.Spec.Ports {
		line := fmt.Sprintf("port %d/%s", p.Port, protocolName(protocolNumber(p.Protocol)))
		if p.Name != "" {
			line += " " + p.Name
		}
		if p.NodePort != 0 {
			line += fmt.Sprintf(", node port %d", p.NodePort)
		}
		out = append(out, line)
	}
	for _, a := range outsideAddresses(s) {
		line := "also at " + addrOf(a).String()
		if in.takes(a) {
			line = "not at " + addrOf(a).String() + ": it is an address of a pod or of a Service"
		}
		out = append(out, line)
	}
	return out
}

// unrouted says what happens to the names that no rule is for.
func (p *Path) unrouted(spec *corev1.ServiceSpec) Path {
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		p.step("address", "the name stands for "+spec.ExternalName+"; packets go there without a rule of Headway")
	case spec.ClusterIP == corev1.ClusterIPNone:
		p.step("address", "the name gives the endpoints' own addresses; packets go there without a rule of Headway")
	default:
		return p.stop("the Service has no cluster IP yet")
	}
	return *p
}

func findPort(ports []corev1.ServicePort, want string) (*corev1.ServicePort, string) {
	var have []string
	for i := range ports {
		number := strconv.Itoa(int(ports[i].Port))
		if want == number || want != "" && want == ports[i].Name || want == "" && len(ports) == 1 {
			return &ports[i], ""
		}
		have = append(have, strings.TrimSuffix(number+" "+ports[i].Name, " "))
	}
	if want == "" {
		return nil, "the Service has several ports, say which: " + strings.Join(have, ", ")
	}
	return nil, fmt.Sprintf("the Service has no port %s, only %s", want, strings.Join(have, ", "))
}

// choose says which endpoints the policy leaves.
func (p *Path) choose(in input, eps []endpoint) []endpoint {
	from, policy := eps, "connections go to every node's endpoints"
	spec := &in.service.Spec
	if spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal {
		policy = "connections stay on this node (internalTrafficPolicy: Local)"
		from = slices.DeleteFunc(slices.Clone(eps), func(e endpoint) bool { return !e.local })
	}
	lines := []string{policy}
	if s := stickSeconds(in.service); s != 0 {
		lines = append(lines, fmt.Sprintf("a client stays with its endpoint for %d s (sessionAffinity: ClientIP)", s))
	}
	p.step("policy", lines...)
	chosen := usable(from)
	lines = nil
	for _, e := range eps {
		line := e.describe()
		if slices.ContainsFunc(chosen, func(c endpoint) bool { return c.target == e.target }) {
			line += ", gets connections"
		}
		lines = append(lines, line)
	}
	if len(eps) == 0 {
		lines = []string{"none"}
	}
	p.step("endpoints", lines...)
	switch {
	case len(chosen) > 0:
	case len(eps) == 0:
		p.stop("no pod of the Service has this port: connections are refused")
	case len(from) == 0:
		p.stop("no endpoint is on this node: connections are refused")
	default:
		p.stop("no endpoint is ready: connections are refused")
	}
	return chosen
}

// nowhere names the chosen endpoint that is a cluster IP: a packet is led once, so
// that one leads nobody further.
func nowhere(chosen []endpoint, services netip.Prefix) string {
	for _, e := range chosen {
		if services.Contains(addrOf(e.addr)) {
			return e.target.String()
		}
	}
	return ""
}

func (e endpoint) describe() string {
	state := "not ready"
	switch {
	case e.dropped:
		state = "being stopped by this node"
	case e.terminating && e.serving:
		state = "terminating, still serving"
	case e.terminating:
		state = "terminating"
	case e.ready:
		state = "ready"
	}
	if e.local {
		return e.target.String() + " " + state + ", on this node"
	}
	return e.target.String() + " " + state
}

// explainKernel follows the packet through the maps as they are.
func (r *Router) explainKernel(p *Path, asked key, chosen []endpoint) error {
	var lines []string
	defer func() { p.step("kernel", lines...) }()
	look := func(k key) (value, bool, error) {
		v, ok, err := r.kernel.lookup(k)
		line := k.String() + ": nothing"
		if ok {
			line = k.String()
			if text := k.valueText(v); text != nil {
				line += " : " + strings.Join(text, " . ")
			}
		}
		lines = append(lines, "table ip "+r.cfg.Table+" "+line)
		return v, ok, err
	}
	group, ok, err := look(asked)
	if err != nil {
		return err
	}
	if !ok {
		_, refusal, err := look(key{refused, asked.a, asked.b, asked.c})
		if len(chosen) > 0 {
			p.stop("the kernel does not have the Service's rules; they are put back within %s", r.cfg.Period)
		} else if !refusal {
			p.stop("the kernel has no rule for this address")
		}
		return err
	}
	size, ok, err := look(key{groups, group.a, 0, 0})
	if err != nil {
		return err
	}
	if !ok || size.a != uint32(len(chosen)) {
		p.stop("the kernel's rules differ from what is wanted; they are put right within %s", r.cfg.Period)
		return nil
	}
	from := slots
	if size.b != 0 {
		from = picks
	}
	const shown = 20
	for i := range min(size.a, shown) {
		member, ok, err := look(key{from, group.a, i, 0})
		if err == nil && ok {
			_, ok, err = look(key{members, member.a, 0, 0})
		}
		if err != nil {
			return err
		}
		if !ok {
			p.stop("the kernel's rules lack an endpoint; they are put right within %s", r.cfg.Period)
			return nil
		}
	}
	if size.a > shown {
		lines = append(lines, fmt.Sprintf("and %d more", size.a-shown))
	}
	return nil
}
