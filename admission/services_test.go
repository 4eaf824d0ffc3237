package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ranges(t *testing.T, cidr string) admission.Services {
	t.Helper()
	s, err := admission.NewServices(cidr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func nobody(api.Claim) string { return "" }

// made is a Service of a type, as the API prepares it: "80/TCP" or "80/TCP/30080"
// for each port.
func made(t *testing.T, name string, kind corev1.ServiceType, ports ...string) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Type: kind, Selector: map[string]string{"a": "b"}}}
	for _, p := range ports {
		var port corev1.ServicePort
		if _, err := fmt.Sscanf(strings.ReplaceAll(p, "/", " "), "%d %s %d", &port.Port, &port.Protocol, &port.NodePort); err != nil && strings.Count(p, "/") == 2 {
			t.Fatal(err)
		}
		port.Name = strings.ToLower(fmt.Sprintf("%s%d", port.Protocol, port.Port))
		svc.Spec.Ports = append(svc.Spec.Ports, port)
	}
	if errs := api.PrepareService(svc, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	return svc
}

func TestNewServices(t *testing.T) {
	for cidr, says := range map[string]string{"10.43.0.0/16": "", "10.43.7.9/16": "", "10.43.0.0": "no '/'", "fd00::/108": "must be of IPv4", "10.0.0.0/8": "12 to 28 bits", "10.0.0.0/29": "12 to 28 bits"} {
		_, err := admission.NewServices(cidr)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", cidr, err)
		}
	}
	if got := ranges(t, "10.43.7.9/16").Kubernetes().String(); got != "10.43.0.1" {
		t.Errorf("default/kubernetes is at %s", got)
	}
}

func TestAllocate(t *testing.T) {
	s := ranges(t, "10.43.0.0/16")
	for name, c := range map[string]struct {
		svc       *corev1.Service
		addresses int
		ports     int // that are different
	}{
		"cluster IP":     {made(t, "a", corev1.ServiceTypeClusterIP, "80/TCP"), 1, 0},
		"node port":      {made(t, "a", corev1.ServiceTypeNodePort, "80/TCP", "443/TCP"), 1, 2},
		"twins":          {made(t, "a", corev1.ServiceTypeNodePort, "53/UDP", "53/TCP"), 1, 1},
		"half a twin":    {made(t, "a", corev1.ServiceTypeNodePort, "53/UDP/30053", "53/TCP"), 1, 1},
		"twin is in use": {made(t, "a", corev1.ServiceTypeNodePort, "53/UDP/30053", "54/TCP/30053", "53/TCP"), 1, 2},
		"load balancer":  {made(t, "a", corev1.ServiceTypeLoadBalancer, "80/TCP"), 1, 1},
		"external name":  {made(t, "a", corev1.ServiceTypeExternalName), 0, 0},
	} {
		if err := s.Allocate(c.svc, nil, nobody); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		addresses, ports := 0, 0
		for _, claim := range api.Claims(c.svc) {
			if claim.Address != "" {
				addresses++
			} else if ports++; claim.NodePort < api.FirstNodePort || claim.NodePort > api.LastNodePort {
				t.Errorf("%s: node port %d", name, claim.NodePort)
			}
		}
		if addresses != c.addresses || ports != c.ports {
			t.Errorf("%s: %v", name, api.Claims(c.svc))
		}
	}
	headless := made(t, "a", corev1.ServiceTypeClusterIP, "80/TCP")
	headless.Spec.ClusterIP, headless.Spec.ClusterIPs = "None", []string{"None"}
	quiet := made(t, "a", corev1.ServiceTypeLoadBalancer, "80/TCP")
	no := false
	quiet.Spec.AllocateLoadBalancerNodePorts = &no
	quiet.Spec.ClusterIP, quiet.Spec.ClusterIPs = "10.43.0.9", []string{"10.43.0.9"}
	local := made(t, "a", corev1.ServiceTypeLoadBalancer, "80/TCP/30080")
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	for _, svc := range []*corev1.Service{headless, quiet, local} {
		if err := s.Allocate(svc, nil, nobody); err != nil {
			t.Error(err)
		}
	}
	if len(api.Claims(headless)) != 0 || len(api.Claims(quiet)) != 1 || local.Spec.HealthCheckNodePort == 0 || local.Spec.HealthCheckNodePort == 30080 {
		t.Errorf("%v, %v, %v", api.Claims(headless), api.Claims(quiet), api.Claims(local))
	}
	again := made(t, "a", corev1.ServiceTypeClusterIP, "80/TCP")
	if err := s.Allocate(again, nil, nobody); err != nil || again.Spec.ClusterIP == "" {
		t.Fatal(err)
	}
	same := made(t, "a", corev1.ServiceTypeClusterIP, "80/TCP")
	if err := s.Allocate(same, nil, nobody); err != nil || same.Spec.ClusterIP != again.Spec.ClusterIP {
		t.Errorf("made again it is at %s and was at %s", same.Spec.ClusterIP, again.Spec.ClusterIP)
	}
}

// TestAllocateFillsTheRange: the upper part first, then the lower one, every member
// once, and an error that says what to do at the end.
func TestAllocateFillsTheRange(t *testing.T) {
	s := ranges(t, "10.9.0.0/27") // 32: a band of 16, without the first and the last
	taken := map[api.Claim]string{}
	for i := range 29 { // 30, without that of default/kubernetes
		svc := made(t, fmt.Sprint("s", i), corev1.ServiceTypeClusterIP, "80/TCP")
		if err := s.Allocate(svc, nil, func(c api.Claim) string { return taken[c] }); err != nil {
			t.Fatal(err)
		}
		c := api.Claims(svc)[0]
		if taken[c] != "" {
			t.Fatalf("%s twice", c)
		}
		taken[c] = svc.Name
		var last int
		if _, err := fmt.Sscanf(c.Address, "10.9.0.%d", &last); err != nil || last < 2 || last > 30 || (last > 16) != (i < 14) {
			t.Errorf("number %d is %s: %v", i, c, err)
		}
	}
	err := s.Allocate(made(t, "more", corev1.ServiceTypeClusterIP, "80/TCP"), nil, func(c api.Claim) string { return taken[c] })
	if err == nil || !strings.Contains(err.Error(), "no cluster IP of 10.9.0.0/27 is free: delete") {
		t.Errorf("%v", err)
	}
	err = s.Allocate(made(t, "more", corev1.ServiceTypeNodePort, "80/TCP"), nil, func(c api.Claim) string {
		if c.NodePort != 0 {
			return "somebody"
		}
		return ""
	})
	if err == nil || !strings.Contains(err.Error(), "no node port of 30000-32767 is free: delete") {
		t.Errorf("%v", err)
	}
}

func TestAllocateRefuses(t *testing.T) {
	s := ranges(t, "10.43.0.0/16")
	at := func(address string) *corev1.Service {
		svc := made(t, "a", corev1.ServiceTypeClusterIP, "80/TCP")
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = address, []string{address}
		return svc
	}
	outside := func(addresses ...string) *corev1.Service {
		svc := made(t, "a", corev1.ServiceTypeClusterIP, "80/TCP")
		svc.Spec.ExternalIPs = addresses
		return svc
	}
	taken := func(c api.Claim) string {
		if c == (api.Claim{Address: "10.43.0.7"}) || c == (api.Claim{NodePort: 30080}) {
			return "Service shop/db"
		}
		return ""
	}
	for _, c := range []struct {
		svc, live *corev1.Service
		says      string
	}{
		{svc: at("10.43.0.8")},
		{svc: at("10.43.0.7"), says: `spec.clusterIP: Invalid value: "10.43.0.7": provided IP is already allocated: Service shop/db has it`},
		{svc: at("10.43.0.7"), live: at("10.43.0.7")},
		{svc: at("10.44.0.7"), says: `provided IP is not in the valid range. The range of valid IPs is 10.43.0.0/16`},
		{svc: at("10.44.0.7"), live: at("10.44.0.7")}, // of an earlier range
		{svc: at("10.43.255.255"), says: `not in the valid range`},
		{svc: at("10.43.0.0"), says: `not in the valid range`},
		{svc: at("10.43.0.1"), says: `provided IP is that of the Service default/kubernetes`},
		{svc: at("nonsense"), says: `must be a valid IP address`},
		{svc: outside("192.0.2.1", "2001:db8::1")},
		{svc: outside("192.0.2.1", "10.43.0.7"), says: `spec.externalIPs[1]: Invalid value: "10.43.0.7": is in the range of the cluster IPs, 10.43.0.0/16: a Service can have such an address as its clusterIP only`},
		{svc: outside("::ffff:10.43.0.200"), says: `in the range of the cluster IPs`},
		{svc: outside("10.43.0.7"), live: outside("10.43.0.7")}, // of an earlier version, which the nodes do not follow
		{svc: made(t, "a", corev1.ServiceTypeNodePort, "80/TCP/30081")},
		{svc: made(t, "a", corev1.ServiceTypeNodePort, "80/TCP/30080"), says: `spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service shop/db has it`},
		{svc: made(t, "a", corev1.ServiceTypeNodePort, "80/UDP/30080"), says: `already allocated`}, // as in Kubernetes, whatever the protocol
		{svc: made(t, "a", corev1.ServiceTypeNodePort, "80/TCP/8080"), says: `The range of valid ports is 30000-32767`},
	} {
		err := s.Allocate(c.svc, c.live, taken)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", api.Claims(c.svc), err, c.says)
		}
	}
	first := at("10.43.0.1")
	first.Name = "kubernetes"
	if err := s.Allocate(first, nil, taken); err != nil {
		t.Error(err)
	}
}
