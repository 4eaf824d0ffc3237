package loadbalancer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func service(name string, port int32, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(noon)}}
	svc.Spec.Type, svc.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: port}}
	for _, c := range change {
		c(svc)
	}
	return svc
}

func node(name, address string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(n)
	}
	return n
}

func at(svc *corev1.Service) string {
	var out []string
	for _, i := range svc.Status.LoadBalancer.Ingress {
		out = append(out, i.IP)
	}
	if c := meta.FindStatusCondition(svc.Status.Conditions, corev1.LoadBalancerPortsError); c != nil {
		out = append(out, c.Message)
	}
	return strings.Join(out, " ")
}

func TestPlan(t *testing.T) {
	lost := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	excluded := func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} }
	outside := func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.9"})
	}
	has := func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
	}
	younger := func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(noon.Add(time.Second)) }
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	a, b := node("a", "10.0.0.1"), node("b", "10.0.0.2")
	const taken = "port 80/TCP of the nodes is that of Service default/x: give this one another port, or the type ClusterIP"
	for name, tt := range map[string]struct {
		svc   *corev1.Service
		other *corev1.Service
		nodes []*corev1.Node
		at    map[string]bool
		want  string
	}{
		"both":                  {svc: service("web", 80), nodes: []*corev1.Node{b, a}, want: "10.0.0.1 10.0.0.2"},
		"none":                  {svc: service("web", 80, has)},
		"one is lost":           {svc: service("web", 80, has), nodes: []*corev1.Node{a, node("b", "10.0.0.2", lost)}, want: "10.0.0.1"},
		"one is excluded":       {svc: service("web", 80), nodes: []*corev1.Node{node("a", "10.0.0.1", excluded), b}, want: "10.0.0.2"},
		"outer address":         {svc: service("web", 80), nodes: []*corev1.Node{node("a", "10.0.0.1", outside)}, want: "192.0.2.9"},
		"where endpoints are":   {svc: service("web", 80), nodes: []*corev1.Node{a, b}, at: map[string]bool{"b": true}, want: "10.0.0.2"},
		"no endpoints":          {svc: service("web", 80), nodes: []*corev1.Node{a, b}, at: map[string]bool{}},
		"a chosen one":          {svc: service("web", 80, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.2" }), nodes: []*corev1.Node{a, b}, want: "10.0.0.2"},
		"a chosen one of none":  {svc: service("web", 80, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.3" }), nodes: []*corev1.Node{a, b}},
		"another port":          {svc: service("web", 80), other: service("x", 81, has), nodes: []*corev1.Node{a}, want: "10.0.0.1"},
		"another protocol":      {svc: service("web", 80), other: service("x", 80, has, udp), nodes: []*corev1.Node{a}, want: "10.0.0.1"},
		"taken":                 {svc: service("web", 80), other: service("x", 80, has, younger), nodes: []*corev1.Node{a}, want: taken},
		"on another node":       {svc: service("web", 80, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.2" }), other: service("x", 80, has, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.1" }), nodes: []*corev1.Node{a, b}, want: "10.0.0.2"},
		"on every node":         {svc: service("web", 80, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.2" }), other: service("x", 80, has), nodes: []*corev1.Node{a, b}, want: taken},
		"kept from an older":    {svc: service("web", 80, has, younger), other: service("x", 80), nodes: []*corev1.Node{a}, want: "10.0.0.1"},
		"the older gets it":     {svc: service("web", 80, younger), other: service("x", 80), nodes: []*corev1.Node{a}, want: taken},
		"the first by its name": {svc: service("web", 80), other: service("x", 80), nodes: []*corev1.Node{a}, want: "10.0.0.1"},
	} {
		o := observed{service: tt.svc, others: []*corev1.Service{tt.svc}, nodes: tt.nodes, at: tt.at}
		if tt.other != nil {
			o.others = append(o.others, tt.other)
		}
		d := plan(o, noon)
		out := tt.svc
		if d.service != nil {
			out = d.service
		}
		if got := at(out); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		o.service = out
		if again := plan(o, noon.Add(time.Hour)); again.service != nil {
			t.Errorf("%s: the next plan writes %+v", name, again.service.Status)
		}
	}
}

// TestNoPortTwice: whatever comes and goes, and however late the controller sees it,
// no port of the nodes is two Services', and in the end each has one that can.
func TestNoPortTwice(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		st := storetest.Open(t)
		loop := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return noon }})
		st.OnEvents(loop.Handle)
		write := func(verb store.Verb, obj api.Object) {
			if verb == store.Create {
				store.Stamp(obj, noon)
			}
			if _, err := st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
				rt.Fatal(err)
			}
		}
		live := func() (out []*corev1.Service) {
			page, err := st.ListAt(ctx, api.Services(), "", 0, 0, "")
			if err != nil {
				rt.Fatal(err)
			}
			for _, obj := range page.Objects {
				out = append(out, obj.(*corev1.Service))
			}
			return out
		}
		check := func(end bool) {
			holders, waits := map[string]string{}, map[string]bool{}
			for _, svc := range live() {
				key := fmt.Sprint(svc.Spec.Ports[0].Port)
				if len(svc.Status.LoadBalancer.Ingress) == 0 {
					waits[key] = true
					continue
				}
				if by := holders[key]; by != "" {
					rt.Fatalf("both %s and %s have port %s", by, svc.Name, key)
				}
				holders[key] = svc.Name
			}
			for key := range waits {
				if end && holders[key] == "" {
					rt.Fatalf("nobody has port %s", key)
				}
			}
		}
		write(store.Create, node("a", "10.0.0.1"))
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"create", "create", "delete", "loop", "loop", "store", "store"}).Draw(rt, "what") {
			case "create":
				name := rapid.StringMatching("[p-t]").Draw(rt, "name")
				if _, _, err := st.GetAt(ctx, store.Key{GroupResource: api.Services(), Namespace: "default", Name: name}, 0); err != nil {
					write(store.Create, service(name, rapid.Int32Range(80, 81).Draw(rt, "port")))
				}
			case "delete":
				if all := live(); len(all) > 0 {
					write(store.Delete, rapid.SampledFrom(all).Draw(rt, "service").DeepCopy())
				}
			case "loop":
				loop.Step(ctx)
			case "store":
				if _, err := st.Step(ctx); err != nil {
					rt.Fatal(err)
				}
			}
			check(false)
		}
		for n := 0; ; n++ {
			more, err := st.Step(ctx)
			if err != nil {
				rt.Fatal(err)
			}
			if !loop.Step(ctx) && !more {
				break
			}
			if n > 10_000 {
				rt.Fatal("does not settle")
			}
		}
		check(true)
	})
}

func TestLocalFollowsItsEndpoints(t *testing.T) {
	ctx := context.Background()
	st := storetest.Open(t)
	loop := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return noon }})
	st.OnEvents(loop.Handle)
	do := func(obj api.Object) {
		t.Helper()
		store.Stamp(obj, noon)
		if _, err := st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
		for {
			more, err := st.Step(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if !loop.Step(ctx) && !more {
				return
			}
		}
	}
	do(node("a", "10.0.0.1"))
	do(node("b", "10.0.0.2"))
	svc := service("web", 80, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	do(svc)
	now := func() string { return at(st.Get(store.KeyOf(svc)).(*corev1.Service)) }
	if now() != "" {
		t.Errorf("without endpoints it is at %s", now())
	}
	no, name := false, "b"
	other := "a"
	do(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.2"}, NodeName: &name}, {Addresses: []string{"10.42.0.3"}, NodeName: &other, Conditions: discoveryv1.EndpointConditions{Ready: &no}}}})
	if now() != "10.0.0.2" {
		t.Errorf("it is at %s", now())
	}
}
