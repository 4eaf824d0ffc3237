package route

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// A Service cannot take what is sent to another Service, or to a pod, by calling
// its address one of its own from outside: not with endpoints, nor without.
func TestNobodyTakesAnothersAddress(t *testing.T) {
	thief := testService("aa", "10.43.0.8", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"10.43.0.7", "10.43.0.1", "10.42.0.5", "192.0.2.9"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.43.0.7"}, {IP: "192.0.2.10"}}
	})
	for _, endpoints := range [][]*discoveryv1.EndpointSlice{nil, {testSlice("aa", 8080, ready("10.42.0.6"))}} {
		has := map[string]bool{}
		in := input{
			name: name{"default", "aa"}, service: thief, slices: endpoints, node: "here",
			taken: [2]netip.Prefix{clusterIPs, netip.MustParsePrefix("10.42.0.0/24")},
		}
		for _, e := range plan(in, newNumbers(numberBits)).entries {
			if e.key.set == inner || e.key.set == outer || e.key.set == refused {
				has[addrOf(e.key.a).String()] = true
			}
		}
		if got, want := slices.Sorted(maps.Keys(has)), []string{"10.43.0.8", "192.0.2.10", "192.0.2.9"}; !slices.Equal(got, want) {
			t.Errorf("with %d slices it has %q, want %q", len(endpoints), got, want)
		}
	}
}

// A flow to an endpoint that its Service no longer has is stale, also while the
// endpoint answers for another Service: else clients would stay with what the first
// Service was taken away from.
func TestFlowsAreOfAService(t *testing.T) {
	w, ids := newWanted(), newNumbers(numberBits)
	ips := map[string]string{"web": "10.43.0.7", "blue": "10.43.0.8"}
	now := map[string]outcome{}
	set := func(service string, endpoints ...string) {
		var eps []discoveryv1.Endpoint
		for _, ip := range endpoints {
			eps = append(eps, ready(ip))
		}
		s, slice := testService(service, ips[service], protocolTo(corev1.ProtocolUDP), nodePort(30000+int32(len(service)))), testSlice(service, 8080, eps...)
		slice.Ports[0].Protocol = new(corev1.ProtocolUDP)
		out := plan(input{name: name{"default", service}, service: s, slices: []*discoveryv1.EndpointSlice{slice}, node: "here"}, ids)
		w.serve(now[service].serving, out.serving)
		now[service] = out
	}
	flow := func(asked string, port uint16, answers string) *netlink.ConntrackFlow {
		f := &netlink.ConntrackFlow{}
		f.Forward.Protocol, f.Forward.DstIP, f.Forward.DstPort = udp, net.ParseIP(asked), port
		f.Reverse.SrcIP, f.Reverse.SrcPort = net.ParseIP(answers), 8080
		return f
	}
	set("web", "10.42.0.1", "10.42.0.2")
	set("blue", "10.42.0.1")
	var f flows
	f.note(&change{}, w, false)
	set("web", "10.42.0.2")
	f.note(&change{}, w, false)
	for _, c := range []struct {
		asked   string
		port    uint16
		answers string
		stale   bool
	}{
		{"10.43.0.7", 80, "10.42.0.1", true},
		{"192.0.2.1", 30003, "10.42.0.1", true}, // the node port
		{"127.0.0.1", 30003, "10.42.0.1", true},
		{"10.43.0.7", 80, "10.42.0.2", false},
		{"10.43.0.8", 80, "10.42.0.1", false},
		{"192.0.2.1", 30004, "10.42.0.1", false},
		{"10.43.0.7", 81, "10.42.0.1", false},
	} {
		if got := f.MatchConntrackFlow(flow(c.asked, c.port, c.answers)); got != c.stale {
			t.Errorf("from %s:%d to %s: stale is %v", c.asked, c.port, c.answers, got)
		}
	}
	// What an earlier process led to is stale when nobody leads there.
	left := &change{remove: []entry{{key{members, 1, 0, 0}, value{word(netip.MustParseAddr("10.42.0.9")), 8080}}, {key{members, 2, 0, 0}, value{word(netip.MustParseAddr("10.42.0.1")), 8080}}}}
	f.note(left, w, true)
	if !f.MatchConntrackFlow(flow("10.43.0.8", 80, "10.42.0.9")) || f.MatchConntrackFlow(flow("10.43.0.8", 80, "10.42.0.1")) {
		t.Error("after a restart")
	}
	// It has it again before the flows are deleted.
	set("web", "10.42.0.1")
	f.note(&change{}, w, false)
	if f.MatchConntrackFlow(flow("10.43.0.7", 80, "10.42.0.1")) || !f.MatchConntrackFlow(flow("10.43.0.7", 80, "10.42.0.2")) {
		t.Error("after a change back")
	}
}
