package route

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func protocolTo(p corev1.Protocol) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].Protocol = p }
}

func nodePort(n int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, n }
}

func outsideLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func insideLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func (l *lab) set(s *corev1.Service, eps ...discoveryv1.Endpoint) {
	l.t.Helper()
	slice := testSlice(s.Name, 8080, eps...)
	slice.Ports[0].Protocol = &s.Spec.Ports[0].Protocol
	l.r.SetService(s)
	l.r.SetSlice(slice)
	l.sync()
}

func TestClusterIP(t *testing.T) {
	l := newLab(t)
	a, b, client := l.pod(), l.pod(), l.pod()
	a.serve("tcp", 8080)
	b.serve("tcp", 8080)
	l.set(testService("web", "10.43.0.10"), ready(a.ip), ready(b.ip), ready("10.42.0.99", unready))
	client.servers("10.43.0.10:80", a, b)
	if _, from := client.who("10.43.0.10:80"); from != client.ip {
		t.Errorf("a pod's address arrives as %s", from)
	}
	l.node().servers("10.43.0.10:80", a, b)
	a.servers("10.43.0.10:80", a, b) // itself too
	client.refused("tcp", "10.43.0.10:81")
	client.refused("tcp", "10.43.0.11:80")
	l.node().refused("tcp", "10.43.0.11:80")
	l.r.UnsetService("default", "web")
	l.sync()
	client.refused("tcp", "10.43.0.10:80")
}

func TestMultiPort(t *testing.T) {
	l := newLab(t)
	a, client := l.pod(), l.pod()
	a.serve("tcp", 8080)
	a.serve("udp", 8053)
	s, slice := testService("multi", "10.43.0.10"), testSlice("multi", 8080, ready(a.ip))
	s.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
		{Name: "sig", Protocol: corev1.ProtocolSCTP, Port: 2905},
	}
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
		{Name: new("dns"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(8053))},
		{Name: new("sig"), Protocol: new(corev1.ProtocolSCTP), Port: new(int32(2905))},
	}
	l.r.SetService(s)
	l.r.SetSlice(slice)
	l.sync()
	client.who("10.43.0.10:80")
	client.whoBy("udp", "10.43.0.10:53")
	client.refused("tcp", "10.43.0.10:53")
	ask := key{inner, word(addr("10.43.0.10")), sctp, 2905}
	if group, ok, err := l.r.kernel.lookup(ask); err != nil || !ok || group.a == 0 {
		t.Errorf("SCTP: %v %v %v", group, ok, err)
	}
}

// Node ports: from everywhere, with the source kept where the answer comes back
// through this node anyway.
func TestNodePort(t *testing.T) {
	l := newLab(t)
	a, client := l.pod(), l.pod()
	a.serve("tcp", 8080)
	l.remote.serve("tcp", 8080)
	far := ready(l.remote.ip, elsewhere)
	l.set(testService("web", "10.43.0.10", nodePort(30080)), ready(a.ip))
	if server, from := l.outside.who(nodeIP + ":30080"); server != a.ip || from != l.outside.ip {
		t.Errorf("outside: %s from %s", server, from)
	}
	client.servers(nodeIP+":30080", a)
	client.servers("10.42.0.1:30080", a)
	l.node().servers(nodeIP+":30080", a)
	l.node().servers("127.0.0.1:30080", a)

	l.set(testService("web", "10.43.0.10", nodePort(30080)), ready(a.ip), far)
	l.outside.servers(nodeIP+":30080", a, l.remote)
	l.node().servers(nodeIP+":30080", a, l.remote)
	for range 20 { // the answer of another machine could not come back to 127.0.0.1
		l.node().servers("127.0.0.1:30080", a)
	}

	l.set(testService("web", "10.43.0.10", nodePort(30080)), far)
	if server, from := l.outside.who(nodeIP + ":30080"); server != l.remote.ip || from != "198.51.100.1" {
		t.Errorf("outside to elsewhere: %s from %s, must be masqueraded", server, from)
	}
	l.node().refused("tcp", "127.0.0.1:30080")

	l.set(testService("web", "10.43.0.10", nodePort(30080)))
	l.outside.refused("tcp", nodeIP+":30080")
	client.refused("tcp", nodeIP+":30080")
}

func TestExternalTrafficPolicyLocal(t *testing.T) {
	l := newLab(t)
	a, client := l.pod(), l.pod()
	a.serve("tcp", 8080)
	l.remote.serve("tcp", 8080)
	far := ready(l.remote.ip, elsewhere)
	s := testService("web", "10.43.0.10", nodePort(30080), outsideLocal)
	l.set(s, ready(a.ip), far)
	for range 20 {
		if server, from := l.outside.who(nodeIP + ":30080"); server != a.ip || from != l.outside.ip {
			t.Fatalf("%s from %s", server, from)
		}
	}
	client.servers(nodeIP+":30080", a, l.remote) // a pod means the whole cluster
	client.servers("10.43.0.10:80", a, l.remote)
	l.set(s, far)
	l.outside.ignored(nodeIP + ":30080") // a balancer tries the other nodes
	client.servers(nodeIP+":30080", l.remote)
	l.set(s)
	l.outside.refused("tcp", nodeIP+":30080")
}

func TestInternalTrafficPolicyLocal(t *testing.T) {
	l := newLab(t)
	a, client := l.pod(), l.pod()
	a.serve("tcp", 8080)
	s := testService("web", "10.43.0.10", insideLocal)
	l.set(s, ready(a.ip), ready(l.remote.ip, elsewhere))
	for range 20 {
		client.servers("10.43.0.10:80", a)
	}
	l.set(s, ready(l.remote.ip, elsewhere))
	client.refused("tcp", "10.43.0.10:80")
}

func TestExternalAndLoadBalancerAddresses(t *testing.T) {
	l := newLab(t)
	a, client := l.pod(), l.pod()
	a.serve("tcp", 8080)
	s := testService("web", "10.43.0.10", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"203.0.113.7"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: nodeIP}, {IP: "203.0.113.8"}}
	})
	l.set(s, ready(a.ip))
	for _, at := range []string{"203.0.113.7:80", "203.0.113.8:80", nodeIP + ":80"} {
		for _, m := range []*machine{l.outside, client, l.node()} {
			if server, _ := m.who(at); server != a.ip {
				t.Errorf("%s: %s", at, server)
			}
		}
	}
	l.node().refused("tcp", "127.0.0.1:80") // the balancer's port is only where it says
	l.set(s)
	for _, at := range []string{"203.0.113.7:80", nodeIP + ":80"} {
		l.outside.refused("tcp", at)
		client.refused("tcp", at)
	}
}

func TestSessionAffinity(t *testing.T) {
	l := newLab(t)
	var pods []*machine
	var eps []discoveryv1.Endpoint
	for range 5 {
		p := l.pod()
		p.serve("tcp", 8080)
		pods, eps = append(pods, p), append(eps, ready(p.ip))
	}
	client := l.pod()
	s := testService("web", "10.43.0.10", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	l.set(s, eps...)
	first, _ := client.who("10.43.0.10:80")
	same := func(want string) {
		t.Helper()
		for range 20 {
			if server, _ := client.who("10.43.0.10:80"); server != want {
				t.Fatalf("%s after %s", server, want)
			}
		}
	}
	same(first)
	// Others come and go; another process takes over.
	l.set(s, append(eps[:5:5], ready("10.42.0.77"))...)
	same(first)
	l.set(s, eps...)
	l.r = l.router("hwroute")
	l.set(s, eps...)
	same(first)
	// Its own goes, and what is remembered of it does not count.
	rest := []discoveryv1.Endpoint{}
	for _, e := range eps {
		if e.Addresses[0] != first {
			rest = append(rest, e)
		}
	}
	l.set(s, rest...)
	second, _ := client.who("10.43.0.10:80")
	if second == first {
		t.Fatal("sticks to an endpoint that is gone")
	}
	same(second)
	_ = pods
}

// An endpoint that is terminating is the last resort, and Drop makes it so before
// its slice says it.
func TestTerminatingAndDrop(t *testing.T) {
	l := newLab(t)
	a, b, client := l.pod(), l.pod(), l.pod()
	a.serve("tcp", 8080)
	b.serve("tcp", 8080)
	s := testService("web", "10.43.0.10", nodePort(30080), outsideLocal)
	only := func(want *machine) {
		t.Helper()
		for range 20 {
			client.servers("10.43.0.10:80", want)
			l.outside.servers(nodeIP+":30080", want)
		}
	}
	l.set(s, ready(a.ip, terminating), ready(b.ip))
	only(b)
	l.set(s, ready(a.ip, terminating))
	only(a)
	l.set(s, ready(a.ip), ready(b.ip))
	l.r.Drop(addr(b.ip))
	l.sync()
	only(a)
	l.r.Admit(addr(b.ip))
	l.r.Drop(addr(a.ip))
	l.sync()
	only(b)
	l.set(s, ready(b.ip))
	l.set(s, ready(a.ip)) // the address is given to another pod
	only(a)
	l.set(s, ready(a.ip, terminating, func(e *discoveryv1.Endpoint) { e.Conditions.Serving = new(false) }))
	client.refused("tcp", "10.43.0.10:80")
}

// Two instances with the same range of cluster IPs: each one's pods get its own.
func TestTwoInstances(t *testing.T) {
	l := newLab(t)
	a, client := l.pod(), l.pod()
	a.serve("tcp", 8080)
	l.remote.serve("tcp", 8080)
	l.set(testService("web", "10.43.0.10"), ready(a.ip))
	cfg := testConfig(t, "hwroute-other")
	cfg.Bridge = "rem" // its pods are behind another interface
	other, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other.SetService(testService("web", "10.43.0.10"))
	other.SetSlice(testSlice("web", 8080, ready(l.remote.ip)))
	if err := other.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		client.servers("10.43.0.10:80", a)
		l.remote.servers("10.43.0.10:80", l.remote)
	}
	if err := other.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.servers("10.43.0.10:80", a)
	if l.observe(other) != nil {
		t.Error("a table is left")
	}
}

func TestHealthCheckNodePort(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	s := testService("web", "10.43.0.10", outsideLocal, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, 32000
	})
	status := func() string {
		return l.outside.get(fmt.Sprintf("http://%s:32000/healthz", nodeIP))
	}
	l.set(s, ready(a.ip))
	if got := status(); got != "200 default/web 1" {
		t.Error(got)
	}
	l.set(s, ready(l.remote.ip, elsewhere))
	if got := status(); got != "503 default/web 0" {
		t.Error(got)
	}
	l.r.UnsetService("default", "web")
	l.sync()
	l.outside.refused("tcp", nodeIP+":32000")
}
