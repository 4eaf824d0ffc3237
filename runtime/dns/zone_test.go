package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ptr[T any](v T) *T { return &v }

func clusterIP(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, Ports: ports},
	}
}

func external(namespace, name, to string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: to},
	}
}

func named(name string, number int32, proto corev1.Protocol) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: proto}
}

func endpointSlice(namespace, name, service string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: ports, Endpoints: endpoints,
	}
}

func ready(addr, host string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{addr}}
	if host != "" {
		e.Hostname = &host
	}
	return e
}

func unready(addr, host string) discoveryv1.Endpoint {
	e := ready(addr, host)
	e.Conditions.Ready = ptr(false)
	return e
}

// shop is a cluster with one of each kind of Service.
func shop(n *names) {
	n.SetService(clusterIP("shop", "web", "10.43.0.7", named("http", 80, "TCP"), named("dns", 53, "UDP")))
	n.SetSlice(endpointSlice("shop", "web-1", "web", []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr[int32](8080)}}, ready("10.42.0.2", ""), ready("10.42.0.3", "named")))
	n.SetService(clusterIP("shop", "plain", "10.43.0.8", corev1.ServicePort{Port: 90}))

	ports := []discoveryv1.EndpointPort{{Name: ptr("sql"), Port: ptr[int32](5432), Protocol: ptr(corev1.ProtocolTCP)}}
	n.SetService(clusterIP("shop", "db", "None", named("sql", 5432, "TCP")))
	n.SetSlice(endpointSlice("shop", "db-1", "db", ports, ready("10.42.0.10", "db-0"), ready("10.42.0.11", "db-1"), unready("10.42.0.12", "db-2")))
	n.SetSlice(endpointSlice("shop", "db-2", "db", ports, ready("10.42.1.10", ""), ready("10.42.0.10", "db-0")))
	n.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-6", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		Ports:      ports, Endpoints: []discoveryv1.Endpoint{ready("fd00::10", "db-0")},
	})

	early := clusterIP("shop", "early", "None")
	early.Spec.PublishNotReadyAddresses = true
	n.SetService(early)
	n.SetSlice(endpointSlice("shop", "early-1", "early", nil, unready("10.42.0.20", "early-0")))

	n.SetService(clusterIP("shop", "empty", "None", named("x", 1, "TCP")))
	n.SetSlice(endpointSlice("shop", "empty-1", "empty", nil, unready("10.42.0.30", "")))
	n.SetService(clusterIP("shop", "pending", ""))
	n.SetService(external("shop", "out", "www.example.org"))
	n.SetService(external("shop", "in", "web.shop.svc.cluster.local"))
	n.SetService(external("shop", "inner", "in.shop.svc.cluster.local"))
	n.SetService(external("shop", "circle", "round.shop.svc.cluster.local"))
	n.SetService(external("shop", "round", "circle.shop.svc.cluster.local"))
	n.SetSlice(endpointSlice("orphans", "o-1", "nobody", nil, ready("10.42.0.99", "x")))
}

func testZone() *zone {
	z := &zone{
		domain: "cluster.local.", self: netip.MustParseAddr("169.254.7.9"),
		pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
		own:  []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.43.0.0/16")},
	}
	shop(&z.names)
	return z
}

// told is an answer in one line: the code, the data of the answer, and of the
// additional section after a bar.
func told(r reply) string {
	data := func(rrs []dns.RR) string {
		var out []string
		for _, rr := range rrs {
			out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	switch {
	case r.rcode != dns.RcodeSuccess:
		return dns.RcodeToString[r.rcode]
	case len(r.answer) == 0:
		return "NODATA"
	case len(r.extra) > 0:
		return data(r.answer) + " | " + data(r.extra)
	}
	return data(r.answer)
}

func TestAnswers(t *testing.T) {
	z := testZone()
	const svc = ".shop.svc.cluster.local."
	for _, c := range []struct{ name, rrtype, want string }{
		{"web" + svc, "A", "10.43.0.7"},
		{"web" + svc, "AAAA", "NODATA"},
		{"web" + svc, "TXT", "NODATA"},
		{"web" + svc, "SRV", `0 1 53 web.shop.svc.cluster.local., 0 1 80 web.shop.svc.cluster.local. | 10.43.0.7`},
		{"_http._tcp.web" + svc, "SRV", "0 1 80 web.shop.svc.cluster.local. | 10.43.0.7"},
		{"_dns._udp.web" + svc, "SRV", "0 1 53 web.shop.svc.cluster.local. | 10.43.0.7"},
		{"_http._udp.web" + svc, "SRV", "NXDOMAIN"},
		{"_http._tcp.web" + svc, "A", "NODATA"},
		{"_tcp.web" + svc, "SRV", "NODATA"},
		{"_sctp.web" + svc, "SRV", "NXDOMAIN"},
		{"__._tcp.web" + svc, "SRV", "NXDOMAIN"},
		{"_._tcp.web" + svc, "SRV", "NXDOMAIN"},
		{"http.tcp.web" + svc, "SRV", "NXDOMAIN"},
		{"_tcp.plain" + svc, "SRV", "NXDOMAIN"}, // unnamed ports have no record of their own
		{"plain" + svc, "SRV", "0 1 90 plain.shop.svc.cluster.local. | 10.43.0.8"},
		{"named.web" + svc, "A", "10.42.0.3"},
		{"10-42-0-2.web" + svc, "A", "10.42.0.2"},
		{"10-42-0-3.web" + svc, "A", "NXDOMAIN"}, // it has a hostname
		{"10-42-0-9.web" + svc, "A", "NXDOMAIN"},

		{"db" + svc, "A", "10.42.0.10, 10.42.0.11, 10.42.1.10"},
		{"db" + svc, "AAAA", "fd00::10"},
		{"db" + svc, "MX", "NODATA"},
		{"db-0.db" + svc, "A", "10.42.0.10"},
		{"db-0.db" + svc, "AAAA", "fd00::10"},
		{"db-1.db" + svc, "AAAA", "NODATA"},
		{"db-2.db" + svc, "A", "NXDOMAIN"}, // not ready
		{"10-42-1-10.db" + svc, "A", "10.42.1.10"},
		{"x.db-0.db" + svc, "A", "NXDOMAIN"},
		{"_sql._tcp.db" + svc, "SRV", "0 1 5432 10-42-1-10.db.shop.svc.cluster.local., 0 1 5432 db-0.db.shop.svc.cluster.local., 0 1 5432 db-1.db.shop.svc.cluster.local. | 10.42.0.10, 10.42.0.11, 10.42.1.10, fd00::10"},
		{"_tcp.db" + svc, "A", "NODATA"},
		{"a._sql._tcp.db" + svc, "SRV", "NXDOMAIN"},

		{"early" + svc, "A", "10.42.0.20"},
		{"early-0.early" + svc, "A", "10.42.0.20"},
		{"empty" + svc, "A", "NXDOMAIN"},
		{"_x._tcp.empty" + svc, "SRV", "NXDOMAIN"},
		{"pending" + svc, "A", "NODATA"},
		{"nobody.orphans.svc.cluster.local.", "A", "NXDOMAIN"},
		{"x.nobody.orphans.svc.cluster.local.", "A", "NXDOMAIN"},
		{"absent" + svc, "A", "NXDOMAIN"},
		{"out" + svc, "CNAME", "www.example.org."},
		{"x.out" + svc, "A", "NXDOMAIN"},

		{"cluster.local.", "A", "NODATA"},
		{"cluster.local.", "SOA", "ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"},
		{"cluster.local.", "NS", "ns.dns.cluster.local. | 169.254.7.9"},
		{"ns.dns.cluster.local.", "A", "169.254.7.9"},
		{"dns.cluster.local.", "A", "NODATA"},
		{"dns-version.cluster.local.", "TXT", `"1.1.0"`},
		{"dns-version.cluster.local.", "A", "NODATA"},
		{"svc.cluster.local.", "A", "NODATA"},
		{"pod.cluster.local.", "A", "NODATA"},
		{"shop.svc.cluster.local.", "A", "NODATA"},
		{"shop.pod.cluster.local.", "A", "NODATA"},
		{"orphans.svc.cluster.local.", "A", "NXDOMAIN"},
		{"nowhere.cluster.local.", "A", "NXDOMAIN"},
		{"web.shop.cluster.local.", "A", "NXDOMAIN"},
		{"10-42-3-4.shop.pod.cluster.local.", "A", "10.42.3.4"},
		{"10-42-3-4.shop.pod.cluster.local.", "AAAA", "NODATA"},
		{"192-0-2-1.shop.pod.cluster.local.", "A", "NXDOMAIN"}, // no pod's
		{"x.10-42-3-4.shop.pod.cluster.local.", "A", "NXDOMAIN"},
		{`web.shop\.svc.cluster.local.`, "A", "NXDOMAIN"},

		{"7.0.43.10.in-addr.arpa.", "PTR", "web.shop.svc.cluster.local."},
		{"7.0.43.10.in-addr.arpa.", "A", "NODATA"},
		{"10.0.42.10.in-addr.arpa.", "PTR", "db-0.db.shop.svc.cluster.local."},
		{"10.1.42.10.in-addr.arpa.", "PTR", "10-42-1-10.db.shop.svc.cluster.local."},
		{"2.0.42.10.in-addr.arpa.", "PTR", "10-42-0-2.web.shop.svc.cluster.local."},
		{"12.0.42.10.in-addr.arpa.", "PTR", "NXDOMAIN"}, // not ready
		{"20.0.42.10.in-addr.arpa.", "PTR", "early-0.early.shop.svc.cluster.local."},
		{"99.0.42.10.in-addr.arpa.", "PTR", "NXDOMAIN"}, // of no Service
		{"9.9.43.10.in-addr.arpa.", "PTR", "NXDOMAIN"},
		{"0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", "PTR", "db-0.db.shop.svc.cluster.local."},
		// Somebody else's.
		{"1.2.0.192.in-addr.arpa.", "PTR", "elsewhere"},
		{"43.10.in-addr.arpa.", "PTR", "elsewhere"},
		{"example.org.", "A", "elsewhere"},
		{"xcluster.local.", "A", "elsewhere"},
		{`x\.cluster.local.`, "A", "elsewhere"},
		{".", "NS", "elsewhere"},
	} {
		q := dns.Question{Name: c.name, Qtype: dns.StringToType[c.rrtype], Qclass: dns.ClassINET}
		r, ok := z.answer(q, dns.CanonicalName(c.name))
		got := "elsewhere"
		if ok {
			got = told(r)
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, c.rrtype, got, c.want)
		}
		for _, rr := range slices.Concat(r.answer, r.extra) {
			if rr.Header().Ttl != ttl {
				t.Errorf("%s %s: TTL %d", c.name, c.rrtype, rr.Header().Ttl)
			}
		}
	}
}

// A slice of a Service that other slices and Services also name.
func TestPointersPreferHostnames(t *testing.T) {
	var z zone
	z.domain = "cluster.local."
	z.SetService(clusterIP("a", "all", "10.43.0.1"))
	z.SetService(clusterIP("a", "peers", "None"))
	z.SetService(clusterIP("a", "loose", "None"))
	z.SetSlice(endpointSlice("a", "all-1", "all", nil, ready("10.42.0.1", "")))
	want := func(want ...string) {
		t.Helper()
		if got := z.namesOf(netip.MustParseAddr("10.42.0.1")); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	want("10-42-0-1.all.a.svc.cluster.local.")
	z.SetSlice(endpointSlice("a", "loose-1", "loose", nil, ready("10.42.0.1", "")))
	want("10-42-0-1.loose.a.svc.cluster.local.")
	z.SetSlice(endpointSlice("a", "peers-1", "peers", nil, ready("10.42.0.1", "p-0")))
	want("p-0.peers.a.svc.cluster.local.")
	z.UnsetService("a", "peers")
	want("10-42-0-1.loose.a.svc.cluster.local.")
	z.UnsetSlice("a", "loose-1")
	z.UnsetSlice("a", "all-1")
	want()
}
