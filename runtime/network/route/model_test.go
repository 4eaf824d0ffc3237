package route

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"
)

// world is what was told, for telling it again to another Router.
type world struct {
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	dropped  map[netip.Addr]bool
}

func (w *world) tell(r *Router) {
	for _, n := range slices.Sorted(maps.Keys(w.services)) {
		r.SetService(w.services[n])
	}
	for _, n := range slices.Sorted(maps.Keys(w.slices)) {
		r.SetSlice(w.slices[n])
	}
	for ip := range w.dropped {
		r.Drop(ip)
	}
}

// has reports whether a slice has an address.
func (w *world) has(ip netip.Addr) bool {
	for _, s := range w.slices {
		for _, e := range s.Endpoints {
			if e.Addresses[0] == ip.String() {
				return true
			}
		}
	}
	return false
}

// step changes the world and tells it.
func (w *world) step(rt *rapid.T, r *Router) {
	n := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "service")
	ip := netip.MustParseAddr(fmt.Sprintf("10.42.0.%d", rapid.IntRange(1, 9).Draw(rt, "pod")))
	switch rapid.IntRange(0, 9).Draw(rt, "verb") {
	case 0:
		delete(w.services, n)
		r.UnsetService("default", n)
	case 1:
		slice := n + rapid.SampledFrom([]string{"-1", "-2"}).Draw(rt, "slice")
		delete(w.slices, slice)
		r.UnsetSlice("default", slice)
		w.forget()
	case 2:
		if w.has(ip) {
			w.dropped[ip] = true
			r.Drop(ip)
		}
	case 3:
		delete(w.dropped, ip)
		r.Admit(ip)
	case 4, 5:
		s := drawService(rt, n)
		w.services[n] = s
		r.SetService(s)
	default:
		s := drawSlice(rt, n)
		w.slices[s.Name] = s
		r.SetSlice(s)
		w.forget()
	}
}

func (w *world) forget() {
	for ip := range w.dropped {
		if !w.has(ip) {
			delete(w.dropped, ip)
		}
	}
}

func drawService(rt *rapid.T, n string) *corev1.Service {
	s := testService(n, fmt.Sprintf("10.43.0.%d", rapid.IntRange(1, 3).Draw(rt, "cluster IP")))
	spec := &s.Spec
	spec.Ports = nil
	for i := range rapid.IntRange(1, 2).Draw(rt, "ports") {
		p := corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + i)}
		p.Protocol = rapid.SampledFrom([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}).Draw(rt, "protocol")
		if rapid.Bool().Draw(rt, "node port") {
			p.NodePort = int32(30000 + rapid.IntRange(0, 3).Draw(rt, "which"))
		}
		spec.Ports = append(spec.Ports, p)
	}
	spec.Type = rapid.SampledFrom([]corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName,
	}).Draw(rt, "type")
	if rapid.IntRange(0, 5).Draw(rt, "headless") == 0 {
		spec.ClusterIP = corev1.ClusterIPNone
	}
	if rapid.Bool().Draw(rt, "affinity") {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		seconds := rapid.Int32Range(1, 3).Draw(rt, "seconds")
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if rapid.Bool().Draw(rt, "outside local") {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if rapid.Bool().Draw(rt, "inside local") {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if rapid.Bool().Draw(rt, "external IP") {
		spec.ExternalIPs = []string{fmt.Sprintf("203.0.113.%d", rapid.IntRange(1, 2).Draw(rt, "which"))}
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	return s
}

func drawSlice(rt *rapid.T, n string) *discoveryv1.EndpointSlice {
	s := testSlice(n, 8080)
	s.Name = n + rapid.SampledFrom([]string{"-1", "-2"}).Draw(rt, "slice")
	s.Ports = nil
	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		for i := range 2 {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Port: new(int32(8080 + i)), Protocol: &proto})
		}
	}
	seen := map[int]bool{}
	for range rapid.IntRange(0, 4).Draw(rt, "endpoints") {
		i := rapid.IntRange(1, 9).Draw(rt, "address")
		if seen[i] {
			continue
		}
		seen[i] = true
		change := rapid.SampledFrom([]func(*discoveryv1.Endpoint){func(*discoveryv1.Endpoint) {}, unready, terminating, elsewhere}).Draw(rt, "state")
		s.Endpoints = append(s.Endpoints, ready(fmt.Sprintf("10.42.0.%d", i), change))
	}
	return s
}

// same reports how two tables differ.
func same(got, want *observed) error {
	for k, v := range want.elements {
		if has, ok := got.elements[k]; !ok || has != v {
			return fmt.Errorf("%s is %v (%t), not %v", k, k.valueText(has), ok, k.valueText(v))
		}
	}
	for k := range got.elements {
		if _, ok := want.elements[k]; !ok {
			return fmt.Errorf("%s is too much", k)
		}
	}
	if !maps.Equal(got.rules, want.rules) {
		return fmt.Errorf("chains %v, not %v", got.rules, want.rules)
	}
	return nil
}

// Whatever is told in whatever order, with a Sync here and there, leaves the table
// that a Router makes which is told the end only.
func TestChangesEqualRebuild(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}, map[netip.Addr]bool{}}
		r, _ := fakeRouter(t)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			w.step(rt, r)
			if rapid.Bool().Draw(rt, "sync") {
				if err := r.Sync(t.Context()); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if err := r.Sync(t.Context()); err != nil {
			rt.Fatal(err)
		}
		retire(rt, t, r)
		again, _ := fakeRouter(t)
		w.tell(again)
		if err := again.Sync(t.Context()); err != nil {
			rt.Fatal(err)
		}
		compare(rt, r, again)
		if held := len(r.numbers.groups.holder) + len(r.numbers.members.holder); held != len(again.numbers.groups.holder)+len(again.numbers.members.holder) {
			rt.Errorf("%d numbers are held", held)
		}
		if len(r.wanted.others) != len(again.wanted.others) || len(r.users) != len(again.users) || !maps.Equal(r.dropped, again.dropped) {
			rt.Errorf("something is remembered of what is gone")
		}
	})
}

// retire lets chains that are no longer used go.
func retire(rt *rapid.T, t *testing.T, r *Router) {
	r.seen = 0
	r.kernel.(interface{ set(uint32) }).set(0)
	if err := r.check(t.Context()); err != nil {
		rt.Fatal(err)
	}
}

func (f *fakeReader) set(gen uint32) { f.gen = gen }

func compare(rt *rapid.T, r, again *Router) {
	got, err := r.kernel.observe()
	if err != nil {
		rt.Fatal(err)
	}
	want, err := again.kernel.observe()
	if err != nil {
		rt.Fatal(err)
	}
	if err := same(got, want); err != nil {
		rt.Error(err)
	}
}
