package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// columns are the names of what kubectl get prints of a resource, and its first
// row.
func (f *fixture) columns(path string) (names []string, row []any) {
	f.t.Helper()
	body, err := f.admin.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(context.Background())
	must(f.t, err)
	var table metav1.Table
	must(f.t, json.Unmarshal(body, &table))
	for _, c := range table.ColumnDefinitions {
		if c.Priority == 0 {
			names = append(names, c.Name)
		}
	}
	if len(table.Rows) > 0 {
		row = table.Rows[0].Cells
	}
	return names, row
}

func TestServicesAreServed(t *testing.T) {
	f := start(t, 0, nil)
	ctx := context.Background()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	_, err := f.admin.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{})
	must(t, err)
	_, err = f.admin.CoreV1().Endpoints("default").Create(ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.42.0.9"}}, Ports: []corev1.EndpointPort{{Port: 8080}}}},
	}, metav1.CreateOptions{})
	must(t, err)
	ready, port, name := true, int32(8080), ""
	_, err = f.admin.DiscoveryV1().EndpointSlices("default").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}, metav1.CreateOptions{})
	must(t, err)
	for path, want := range map[string][2]string{
		"/api/v1/namespaces/default/services":                               {"[Name Type Cluster-IP External-IP Port(s) Age]", "[web ClusterIP"},
		"/api/v1/namespaces/default/endpoints":                              {"[Name Endpoints Age]", "[web 10.42.0.9:8080"},
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices":       {"[Name AddressType Ports Endpoints Age]", "[web-1 IPv4 8080 10.42.0.9"},
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1": {"[Name AddressType Ports Endpoints Age]", "[web-1 IPv4 8080 10.42.0.9"},
	} {
		names, row := f.columns(path)
		if got := fmt.Sprint(names); got != want[0] {
			t.Errorf("%s has the columns %s, want %s", path, got, want[0])
		}
		if got := fmt.Sprint(row); len(got) < len(want[1]) || got[:len(want[1])] != want[1] {
			t.Errorf("%s is %s, want %s…", path, got, want[1])
		}
	}
	resources, err := f.admin.Discovery().ServerResourcesForGroupVersion("v1")
	must(t, err)
	for _, r := range resources.APIResources {
		if r.Name == "services" && (fmt.Sprint(r.ShortNames) != "[svc]" || fmt.Sprint(r.Categories) != "[all]") {
			t.Errorf("services are %v %v", r.ShortNames, r.Categories)
		}
	}
}

func webService(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
	}}
	change(svc)
	return svc
}

// TestServicesGetAddresses: what a client leaves out is given, kept over an update
// that leaves it out too, and taken back with the type that had a use for it.
func TestServicesGetAddresses(t *testing.T) {
	f := start(t, 0, nil)
	ctx := context.Background()
	api := f.admin.CoreV1().Services("default")
	dry, err := api.Create(ctx, webService(func(*corev1.Service) {}), metav1.CreateOptions{DryRun: []string{"All"}})
	must(t, err)
	made, err := api.Create(ctx, webService(func(*corev1.Service) {}), metav1.CreateOptions{})
	must(t, err)
	s := made.Spec
	if s.ClusterIP == "" || fmt.Sprint(s.ClusterIPs) != "["+s.ClusterIP+"]" || fmt.Sprint(s.IPFamilies) != "[IPv4]" || *s.IPFamilyPolicy != "SingleStack" || s.Ports[0].NodePort < 30000 || s.Ports[1].NodePort < 30000 || s.Ports[0].NodePort == s.Ports[1].NodePort {
		t.Errorf("got %+v", s)
	}
	if dry.Spec.ClusterIP != s.ClusterIP || dry.Spec.Ports[0].NodePort != s.Ports[0].NodePort {
		t.Errorf("the dry run said %+v", dry.Spec)
	}
	// A headless one without a selector is of both families, as in every cluster.
	headless, err := api.Create(ctx, webService(func(s *corev1.Service) {
		s.Name, s.Spec.Type, s.Spec.ClusterIP, s.Spec.Selector = "headless", corev1.ServiceTypeClusterIP, "None", nil
	}), metav1.CreateOptions{})
	must(t, err)
	if fmt.Sprint(headless.Spec.ClusterIPs, headless.Spec.IPFamilies, *headless.Spec.IPFamilyPolicy) != "[None] [IPv4 IPv6]RequireDualStack" {
		t.Errorf("headless got %+v", headless.Spec)
	}
	_, err = api.Create(ctx, webService(func(s *corev1.Service) {
		s.Name, s.Spec.Type, s.Spec.ExternalTrafficPolicy = "local", corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	}), metav1.CreateOptions{})
	must(t, err)
	headless.Labels = map[string]string{"a": "b"}
	_, err = api.Update(ctx, headless, metav1.UpdateOptions{})
	must(t, err)
	// The same manifest again, as kubectl replace sends it.
	again, err := api.Update(ctx, webService(func(*corev1.Service) {}), metav1.UpdateOptions{})
	must(t, err)
	if again.Spec.ClusterIP != s.ClusterIP || again.Spec.Ports[1].NodePort != s.Ports[1].NodePort || again.ResourceVersion != made.ResourceVersion {
		t.Errorf("now %+v", again.Spec)
	}
	less, err := api.Update(ctx, webService(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }), metav1.UpdateOptions{})
	must(t, err)
	if less.Spec.ClusterIP != s.ClusterIP || less.Spec.Ports[0].NodePort != 0 {
		t.Errorf("now %+v", less.Spec)
	}
	local, err := api.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`), metav1.PatchOptions{})
	must(t, err)
	if p := local.Spec.HealthCheckNodePort; p < 30000 || p == local.Spec.Ports[0].NodePort {
		t.Errorf("now %+v", local.Spec)
	}
	name, err := api.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"type":"ExternalName","externalName":"example.org"}}`), metav1.PatchOptions{})
	must(t, err)
	if name.Spec.ClusterIP != "" || name.Spec.ClusterIPs != nil || name.Spec.IPFamilies != nil || name.Spec.IPFamilyPolicy != nil {
		t.Errorf("now %+v", name.Spec)
	}
	back, err := api.Update(ctx, webService(func(*corev1.Service) {}), metav1.UpdateOptions{})
	must(t, err)
	if back.Spec.ClusterIP == "" || back.Spec.Ports[0].NodePort == 0 {
		t.Errorf("now %+v", back.Spec)
	}
}

func TestServicesAreRefused(t *testing.T) {
	f := start(t, 0, nil)
	ctx := context.Background()
	api := f.admin.CoreV1().Services("default")
	first, err := api.Create(ctx, webService(func(s *corev1.Service) { s.Name = "first"; s.Spec.Ports[0].NodePort = 30080 }), metav1.CreateOptions{})
	must(t, err)
	dual := corev1.IPFamilyPolicyRequireDualStack
	for says, change := range map[string]func(*corev1.Service){
		"spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service default/first has it": func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 },
		"spec.ports[1].nodePort: Invalid value: 80: provided port is not in the valid range":                             func(s *corev1.Service) { s.Spec.Ports[1].NodePort = 80 },
		"provided IP is already allocated: Service default/first has it":                                                 func(s *corev1.Service) { s.Spec.ClusterIP = first.Spec.ClusterIP },
		"provided IP is that of the Service default/kubernetes":                                                          func(s *corev1.Service) { s.Spec.ClusterIP = "10.43.0.1" },
		"must be a valid IP address": func(s *corev1.Service) { s.Spec.ClusterIP = "10.43.0.300" },
		"spec.loadBalancerClass: Forbidden": func(s *corev1.Service) {
			class := "x/y"
			s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class
		},
		"spec.ipFamilyPolicy: Forbidden: only SingleStack or PreferDualStack": func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &dual },
		"spec.ipFamilies[0]: Forbidden: only IPv4":                            func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
	} {
		for _, dry := range [][]string{nil, {"All"}} {
			_, err := api.Create(ctx, webService(change), metav1.CreateOptions{DryRun: dry})
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("dry run %v: %v, want %q", dry, err, says)
			}
		}
	}
	if _, err := api.Patch(ctx, "first", types.MergePatchType, []byte(`{"spec":{"clusterIP":"10.43.77.77","clusterIPs":["10.43.77.77"]}}`), metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "may not change once set") {
		t.Errorf("%v", err)
	}
	// Its status is written without a look at its addresses.
	first.Status.LoadBalancer.Ingress = nil
	if _, err := api.UpdateStatus(ctx, first, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	must(t, api.Delete(ctx, "first", metav1.DeleteOptions{}))
	_, err = api.Create(ctx, webService(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 }), metav1.CreateOptions{})
	must(t, err)
}
