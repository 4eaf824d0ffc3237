package endpointslice

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func service(change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "svc", Labels: map[string]string{"team": "shop"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.7", Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("web")}}},
	}
	for _, c := range change {
		c(svc)
	}
	return svc
}

// pod number n runs, is ready and has the port web at 8080.
func pod(n int, change ...func(*corev1.Pod)) *corev1.Pod {
	name := fmt.Sprintf("p%d", n)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}}
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.42.%d.%d", n/250, n%250+1)
	isReady(p, true)
	for _, c := range change {
		c(p)
	}
	return p
}

func isReady(p *corev1.Pod, yes bool) {
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

func unready(p *corev1.Pod)  { isReady(p, false) }
func stopping(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
func ended(p *corev1.Pod)    { p.Status.Phase = corev1.PodSucceeded }
func homeless(p *corev1.Pod) { p.Status.PodIP = "" }

// shown is an endpoint for people: address, and what it is.
func shown(e discoveryv1.Endpoint) string {
	out := strings.Join(e.Addresses, "+")
	for _, c := range []struct {
		is   *bool
		name string
	}{{e.Conditions.Ready, "ready"}, {e.Conditions.Serving, "serving"}, {e.Conditions.Terminating, "terminating"}} {
		if c.is != nil && *c.is {
			out += " " + c.name
		}
	}
	if e.Hostname != nil {
		out += " as " + *e.Hostname
	}
	return out
}

// slicesIn are the slices that a plan leaves, one a line: ports, then endpoints.
func slicesIn(steps []step) string {
	var out []string
	for _, s := range steps {
		if slice, ok := s.object.(*discoveryv1.EndpointSlice); ok && s.verb != remove {
			line := portsKey(slice.Ports) + ":"
			for i, e := range slice.Endpoints {
				if line += " "; i > 0 {
					line += "| "
				}
				line += shown(e)
			}
			out = append(out, line)
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// endpointsIn are the Endpoints that a plan leaves.
func endpointsIn(steps []step) string {
	for _, s := range steps {
		e, ok := s.object.(*corev1.Endpoints)
		if !ok || s.verb == remove {
			continue
		}
		var out []string
		for _, sub := range e.Subsets {
			line := ""
			for _, p := range sub.Ports {
				line += fmt.Sprintf("%s/%d", p.Name, p.Port)
			}
			for _, a := range sub.Addresses {
				line += " " + a.IP + a.Hostname
			}
			for _, a := range sub.NotReadyAddresses {
				line += " (" + a.IP + ")"
			}
			out = append(out, line)
		}
		return strings.Join(out, ", ")
	}
	return "none"
}

// TestWhoAnswers: who is an endpoint and in which state. The rules are those of
// https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions.
func TestWhoAnswers(t *testing.T) {
	publish := func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }
	headless := func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
	named := func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "db-0", "web" }
	port := func(number int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = number }
	}
	always := corev1.ContainerRestartPolicyAlways
	for name, tt := range map[string]struct {
		svc       *corev1.Service
		pods      []*corev1.Pod
		slices    string
		endpoints string
	}{
		"nobody":                    {service(), nil, "", ""},
		"ready":                     {service(), []*corev1.Pod{pod(1)}, "http/TCP/8080/: 10.42.0.2 ready serving", "http/8080 10.42.0.2"},
		"not ready":                 {service(), []*corev1.Pod{pod(1, unready)}, "http/TCP/8080/: 10.42.0.2", "http/8080 (10.42.0.2)"},
		"terminating and serving":   {service(), []*corev1.Pod{pod(1, stopping)}, "http/TCP/8080/: 10.42.0.2 serving terminating", ""},
		"terminating, not serving":  {service(), []*corev1.Pod{pod(1, stopping, unready)}, "http/TCP/8080/: 10.42.0.2 terminating", ""},
		"ended":                     {service(), []*corev1.Pod{pod(1, ended)}, "", ""},
		"no address yet":            {service(), []*corev1.Pod{pod(1, homeless)}, "", ""},
		"address of another family": {service(), []*corev1.Pod{pod(1, func(p *corev1.Pod) { p.Status.PodIP = "fd00::1" })}, "", ""},
		"published":                 {service(publish), []*corev1.Pod{pod(1, unready)}, "http/TCP/8080/: 10.42.0.2 ready", "http/8080 10.42.0.2"},
		"published while it stops":  {service(publish), []*corev1.Pod{pod(1, stopping)}, "http/TCP/8080/: 10.42.0.2 ready serving terminating", "http/8080 10.42.0.2"},
		"two versions of a port":    {service(), []*corev1.Pod{pod(1), pod(2, port(9090))}, "http/TCP/8080/: 10.42.0.2 ready serving\nhttp/TCP/9090/: 10.42.0.3 ready serving", "http/8080 10.42.0.2, http/9090 10.42.0.3"},
		"no such port":              {service(), []*corev1.Pod{pod(1, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })}, ": 10.42.0.2 ready serving", ""},
		"of another protocol":       {service(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }), []*corev1.Pod{pod(1)}, ": 10.42.0.2 ready serving", ""},
		"a number":                  {service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(7) }), []*corev1.Pod{pod(1)}, "http/TCP/7/: 10.42.0.2 ready serving", "http/7 10.42.0.2"},
		"the port itself":           {service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.IntOrString{} }), []*corev1.Pod{pod(1)}, "http/TCP/80/: 10.42.0.2 ready serving", "http/80 10.42.0.2"},
		"of a sidecar": {service(), []*corev1.Pod{pod(1, func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
			p.Spec.InitContainers[0].RestartPolicy = &always
		})}, "http/TCP/8080/: 10.42.0.2 ready serving", "http/8080 10.42.0.2"},
		"of an init container": {service(), []*corev1.Pod{pod(1, func(p *corev1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil })}, ": 10.42.0.2 ready serving", ""},
		"protocol of the app":  {service(func(s *corev1.Service) { h2c := "kubernetes.io/h2c"; s.Spec.Ports[0].AppProtocol = &h2c }), []*corev1.Pod{pod(1)}, "http/TCP/8080/kubernetes.io/h2c: 10.42.0.2 ready serving", "http/8080 10.42.0.2"},
		"headless, named":      {service(headless), []*corev1.Pod{pod(1, named)}, "http/TCP/8080/: 10.42.0.2 ready serving as db-0", "http/8080 10.42.0.2db-0"},
		"headless, no ports":   {service(headless, func(s *corev1.Service) { s.Spec.Ports = nil }), []*corev1.Pod{pod(1), pod(2, unready)}, ": 10.42.0.2 ready serving | 10.42.0.3", " 10.42.0.2 (10.42.0.3)"},
		"named below another":  {service(headless), []*corev1.Pod{pod(1, named, func(p *corev1.Pod) { p.Spec.Subdomain = "other" })}, "http/TCP/8080/: 10.42.0.2 ready serving", "http/8080 10.42.0.2"},
		"external name":        {service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), []*corev1.Pod{pod(1)}, "", "none"},
		"being deleted":        {service(func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }), []*corev1.Pod{pod(1)}, "", "none"},
		"gone":                 {nil, nil, "", "none"},
		"no selector":          {service(func(s *corev1.Service) { s.Spec.Selector = nil }), nil, "", "none"},
	} {
		steps := plan(observed{namespace: "default", name: "web", service: tt.svc, pods: tt.pods})
		if got := slicesIn(steps); got != tt.slices {
			t.Errorf("%s: slices\n%s\nwant\n%s", name, got, tt.slices)
		}
		if got := endpointsIn(steps); got != tt.endpoints {
			t.Errorf("%s: Endpoints %q, want %q", name, got, tt.endpoints)
		}
	}
}

// TestWhatASliceSays: labels, owner, node, zone and whose the address is.
func TestWhatASliceSays(t *testing.T) {
	svc := service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	steps := plan(observed{service: svc, pods: []*corev1.Pod{pod(1)}, zones: map[string]string{"n1": "east"}})
	slice, legacy := steps[0].object.(*discoveryv1.EndpointSlice), steps[1].object.(*corev1.Endpoints)
	if got := fmt.Sprint(slice.Labels); got != "map[endpointslice.kubernetes.io/managed-by:endpointslice-controller.headway.dev kubernetes.io/service-name:web service.kubernetes.io/headless: team:shop]" {
		t.Errorf("labels %s", got)
	}
	if got := fmt.Sprint(legacy.Labels); got != "map[endpoints.kubernetes.io/managed-by:endpointslice-controller.headway.dev service.kubernetes.io/headless: team:shop]" {
		t.Errorf("labels of the Endpoints %s", got)
	}
	e := slice.Endpoints[0]
	if *e.NodeName != "n1" || *e.Zone != "east" || e.TargetRef.Kind != "Pod" || e.TargetRef.Name != "p1" || e.TargetRef.UID != "p1" || slice.AddressType != discoveryv1.AddressTypeIPv4 {
		t.Errorf("%+v", slice)
	}
	for _, obj := range []api.Object{slice, legacy} {
		if !metav1.IsControlledBy(obj, svc) || obj.GetNamespace() != "default" {
			t.Errorf("%T: %+v", obj, obj.GetOwnerReferences())
		}
		obj.SetName("web") // as apply does with a slice
		if errs := api.Validate(obj); len(errs) > 0 {
			t.Errorf("%T: %v", obj, errs)
		}
	}
}

// TestOldSlicesGo: what was made for a selector goes with it, what others made stays.
func TestOldSlicesGo(t *testing.T) {
	first := plan(observed{service: service(), pods: []*corev1.Pod{pod(1)}})
	made, legacy := first[0].object.(*discoveryv1.EndpointSlice), first[1].object.(*corev1.Endpoints)
	made.Name = "web-abcde"
	by := legacy.DeepCopy()
	delete(by.Labels, managedEndpoints)
	declared := legacy.DeepCopy()
	api.SetProvenance(declared, api.Provenance{Source: "main", Commit: "c", Path: "e.yaml", Line: 1, Hash: "h"})
	for name, tt := range map[string]struct {
		svc       *corev1.Service
		endpoints *corev1.Endpoints
		pods      []*corev1.Pod
		steps     string
	}{
		"nothing changed":         {service(), legacy, []*corev1.Pod{pod(1)}, ""},
		"gone":                    {nil, legacy, nil, "delete Endpoints, delete slice"},
		"without a selector":      {service(func(s *corev1.Service) { s.Spec.Selector = nil }), legacy, nil, "delete Endpoints, delete slice"},
		"Endpoints of others":     {nil, by, nil, "delete slice"},
		"Endpoints of others too": {service(), by, []*corev1.Pod{pod(1)}, "update Endpoints"}, // as Kubernetes takes over what has the name
		"Endpoints of git":        {service(), declared, []*corev1.Pod{pod(1), pod(2)}, "update slice"},
		"nobody answers":          {service(), legacy, nil, "update Endpoints, delete slice"},
		"other labels":            {service(func(s *corev1.Service) { s.Labels = nil }), legacy, []*corev1.Pod{pod(1)}, "update slice, update Endpoints"},
	} {
		steps := plan(observed{service: tt.svc, pods: tt.pods, endpoints: tt.endpoints, slices: []*discoveryv1.EndpointSlice{made}})
		var got []string
		for _, s := range steps {
			what := "slice"
			if _, ok := s.object.(*corev1.Endpoints); ok {
				what = "Endpoints"
			}
			got = append(got, string(s.verb)+" "+what)
		}
		if strings.Join(got, ", ") != tt.steps {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), tt.steps)
		}
	}
}

// TestMirroring: slices of the Endpoints that somebody gave:
// https://kubernetes.io/docs/concepts/services-networking/service/#endpointslice-mirroring
func TestMirroring(t *testing.T) {
	given := func(change ...func(*corev1.Endpoints)) *corev1.Endpoints {
		e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Subsets: []corev1.EndpointSubset{{
			Addresses:         []corev1.EndpointAddress{{IP: "192.0.2.1", Hostname: "a"}, {IP: "fd00::1"}, {IP: "192.0.2.1", Hostname: "a"}},
			NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.2"}},
			Ports:             []corev1.EndpointPort{{Name: "http", Port: 80}},
		}, {Addresses: []corev1.EndpointAddress{{IP: "192.0.2.3"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 81}}}}}
		for _, c := range change {
			c(e)
		}
		return e
	}
	many := func(e *corev1.Endpoints) {
		for i := range 1500 {
			e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("192.1.%d.%d", i/250, i%250+1)})
		}
	}
	svc := service(func(s *corev1.Service) { s.Spec.Selector = nil })
	const all = "http/TCP/80/: 192.0.2.1 ready serving as a | 192.0.2.2\nhttp/TCP/81/: 192.0.2.3 ready serving"
	for name, tt := range map[string]struct {
		endpoints *corev1.Endpoints
		want      string
	}{
		"given":           {given(), all},
		"told to skip":    {given(func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} }), ""},
		"a lock":          {given(func(e *corev1.Endpoints) { e.Annotations = map[string]string{election: "{}"} }), ""},
		"being deleted":   {given(func(e *corev1.Endpoints) { e.DeletionTimestamp = &metav1.Time{} }), ""},
		"a label besides": {given(func(e *corev1.Endpoints) { e.Labels = map[string]string{"a": "b"} }), all},
	} {
		steps := plan(observed{service: svc, endpoints: tt.endpoints})
		if got := slicesIn(steps); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
		if endpointsIn(steps) != "none" {
			t.Errorf("%s: the given Endpoints are written", name)
		}
	}
	endpoints := 0
	for _, s := range plan(observed{service: svc, endpoints: given(many)}) {
		endpoints += len(s.object.(*discoveryv1.EndpointSlice).Endpoints)
	}
	if endpoints > mostAddresses || endpoints < mostAddresses-10 {
		t.Errorf("%d endpoints of 1500 addresses", endpoints)
	}
}

// TestEndpointsAreTruncated: at 1000 addresses, the ready ones first, and it is said:
// https://kubernetes.io/docs/concepts/services-networking/service/#over-capacity-endpoints
func TestEndpointsAreTruncated(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 1200 {
		p := pod(i)
		if i < 300 {
			unready(p)
		}
		pods = append(pods, p)
	}
	e := legacyOf(service(), pods)
	if s := e.Subsets[0]; len(e.Subsets) != 1 || len(s.Addresses) != 900 || len(s.NotReadyAddresses) != 100 || e.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
		t.Errorf("%d ready and %d others of 1200, %v", len(s.Addresses), len(s.NotReadyAddresses), e.Annotations)
	}
	less := legacySteps(e, legacyOf(service(), pods[:1000]))
	if out := less[0].object.(*corev1.Endpoints); len(less) != 1 || out.Annotations[corev1.EndpointsOverCapacity] != "" || len(out.Subsets[0].Addresses) != 700 {
		t.Errorf("%v", less)
	}
}

// TestFewestSlicesAreWritten: what is new goes where something is written anyhow, then
// into the fullest that has room; nothing moves for the sake of order:
// https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#distribution-of-endpointslices
func TestFewestSlicesAreWritten(t *testing.T) {
	for _, tt := range []struct {
		sizes   []int       // of the slices there are
		gone    map[int]int // endpoints that go, by slice
		fresh   int
		written string // sizes afterwards of those that are written; "+" are new
	}{
		{nil, nil, 0, ""},
		{nil, nil, 250, "100+ 100+ 50+"},
		{[]int{40, 90}, nil, 5, "95"},
		{[]int{40, 90}, nil, 15, "45 100"},
		{[]int{40, 90}, map[int]int{0: 1}, 5, "44"},
		{[]int{40, 90}, map[int]int{0: 1}, 61, "100"},
		{[]int{100, 100, 50}, map[int]int{1: 1}, 1, "100"},
		{[]int{100, 100, 50}, map[int]int{1: 1}, 0, "99"},
		{[]int{10, 10, 10}, map[int]int{1: 10}, 0, "0"},
		{[]int{10, 10, 10}, map[int]int{1: 10}, 100, "100"},
		{[]int{90, 90}, nil, 25, "100 100 5+"},
		{[]int{120}, nil, 0, "100 20+"}, // somebody else's work
	} {
		g := group{ports: portsOf(service(), pod(0))}
		var present []*discoveryv1.EndpointSlice
		n := 0
		for i, size := range tt.sizes {
			s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}, AddressType: discoveryv1.AddressTypeIPv4, Ports: g.ports}
			for j := range size {
				n++
				e := endpointOf(service(), pod(n), "")
				s.Endpoints = append(s.Endpoints, e)
				if j >= tt.gone[i] {
					g.endpoints = append(g.endpoints, e)
				}
			}
			present = append(present, s)
		}
		for range tt.fresh {
			n++
			g.endpoints = append(g.endpoints, endpointOf(service(), pod(n), ""))
		}
		var written []string
		for _, p := range place([]group{g}, present) {
			switch {
			case p.slice == nil:
				written = append(written, fmt.Sprintf("%d+", len(p.endpoints)))
			case !equality.Semantic.DeepEqual(p.endpoints, p.slice.Endpoints):
				written = append(written, fmt.Sprint(len(p.endpoints)))
			}
		}
		if got := strings.Join(written, " "); got != tt.written {
			t.Errorf("%v, without %v, and %d new: writes %q, want %q", tt.sizes, tt.gone, tt.fresh, got, tt.written)
		}
	}
}
