package syncer

import (
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodePort(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  selector: {app: web}\n  type: NodePort\n  ports: [{port: 80, nodePort: %d}]\n", name, port)
}

func manyPorts(name string, ports int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  selector: {app: web}\n  type: NodePort\n  ports:\n", name)
	for i := range ports {
		fmt.Fprintf(&b, "  - {name: p%d, port: %d}\n", i, i+1)
	}
	return b.String()
}

func external(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  selector: {app: web}\n  ports: [{port: %d}]\n  externalIPs: [198.51.100.%d, 192.0.2.9]\n", name, port, name[0])
}

func balancer(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  selector: {app: web}\n  type: LoadBalancer\n  ports: [{port: %d}]\n", name, port)
}

func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	svc, ok := w.get("services", "default", name).(*corev1.Service)
	if !ok {
		w.t.Fatalf("no Service %s: %+v", name, w.status())
	}
	return svc
}

// applies pushes a commit and wants it applied.
func (w *world) applies(name, parent string, files map[string]string) {
	w.t.Helper()
	w.push(w.repo.add(name, parent, files))
	if st := w.status(); st.Applied != commitID(name) {
		w.t.Fatalf("%s is not applied: %+v", name, st)
	}
}

// TestServiceOfAManifest: what the cluster gives a Service is no drift, and stays
// until the manifest has no use for it.
func TestServiceOfAManifest(t *testing.T) {
	w := newWorld(t)
	files := func(lines string) map[string]string {
		return map[string]string{"web.yaml": app, "s.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n" + lines}
	}
	const ports = "  ports: [{name: a, port: 80}, {name: b, port: 81, nodePort: 0}]\n"
	w.applies("c1", "", files("  clusterIP: \"\"\n  type: NodePort\n"+ports))
	first := w.service("web")
	if first.Spec.ClusterIP == "" || first.Spec.Ports[0].NodePort == 0 || first.Spec.Ports[1].NodePort == 0 {
		t.Fatalf("it got %+v", first.Spec)
	}
	same := func(what string) {
		t.Helper()
		if s := w.service("web").Spec; s.ClusterIP != first.Spec.ClusterIP || s.Ports[0].NodePort != first.Spec.Ports[0].NodePort {
			t.Errorf("%s: it has %+v", what, s)
		}
	}
	// Every object is looked at: nothing is written.
	before := w.service("web").ResourceVersion
	w.now = w.now.Add(2 * w.s.resync)
	w.settle()
	if now := w.service("web").ResourceVersion; now != before {
		t.Errorf("written again: %s, %s", before, now)
	}
	// A node port that was chosen stays when the manifest names it, and when it no
	// longer does.
	named := fmt.Sprintf("  type: NodePort\n  ports: [{name: a, port: 80, nodePort: %d}, {name: b, port: 81}]\n", first.Spec.Ports[0].NodePort)
	w.applies("c2", "c1", files(named))
	same("named")
	w.applies("c3", "c2", files("  type: NodePort\n"+ports))
	same("no longer named")
	// Drift of what is declared is healed, of what is not it is none.
	w.change("services", "default", "web", func(o api.Object) {
		s := o.(*corev1.Service)
		s.Spec.Selector, s.Spec.Ports[0].NodePort = map[string]string{"app": "other"}, 31999
	})
	w.settle()
	if s := w.service("web").Spec; s.Selector["app"] != "web" || s.Ports[0].NodePort != 31999 {
		t.Errorf("healed to %+v", s)
	}
	// Another type has no node ports.
	w.applies("c4", "c3", files(ports))
	if s := w.service("web").Spec; s.Type != corev1.ServiceTypeClusterIP || s.Ports[0].NodePort != 0 || s.ClusterIP != first.Spec.ClusterIP {
		t.Errorf("now %+v", s)
	}
	w.applies("c5", "c4", files("  type: LoadBalancer\n  externalTrafficPolicy: Local\n"+ports))
	if s := w.service("web").Spec; s.Ports[0].NodePort == 0 || s.HealthCheckNodePort == 0 {
		t.Errorf("now %+v", s)
	}
	w.applies("c6", "c5", files("  type: ExternalName\n  externalName: example.org\n"))
	if s := w.service("web").Spec; s.ClusterIP != "" || s.ClusterIPs != nil || s.IPFamilies != nil || s.HealthCheckNodePort != 0 || len(s.Ports) != 0 || s.ExternalTrafficPolicy != "" {
		t.Errorf("now %+v", s)
	}
	w.applies("c7", "c6", files(ports))
	if s := w.service("web").Spec; s.ClusterIP == "" {
		t.Errorf("now %+v", s)
	}
}

func TestServiceAddressesAreJudged(t *testing.T) {
	with := func(lines string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  selector: {app: web}\n" + lines + "  ports: [{port: 80}]\n"
	}
	byHand := func(w *world) {
		w.write(store.Create, &corev1.Service{ObjectMeta: metaOf("default", "hand", nil), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.43.0.9", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}}})
		w.settle()
	}
	one := map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30080)}
	for name, tt := range map[string]struct {
		judged
		says string
	}{
		"of nobody":                 {judged: judged{after: one}},
		"taken by hand":             {judged{after: one, edit: byHand}, "a.yaml:7:22: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service default/hand has it"},
		"IP taken by hand":          {judged{after: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.43.0.9\n")}, edit: byHand}, "a.yaml:6:3: spec.clusterIP: Invalid value: \"10.43.0.9\": provided IP is already allocated: Service default/hand has it"},
		"IP of no range":            {judged{after: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.96.0.10\n")}}, "a.yaml:6:3: spec.clusterIP: Invalid value: \"10.96.0.10\": provided IP is not in the valid range. The range of valid IPs is 10.43.0.0/16"},
		"reserved":                  {judged{after: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.43.0.1\n")}}, "is that of the Service default/kubernetes"},
		"kept":                      {judged: judged{before: one, after: map[string]string{"web.yaml": app, "a.yaml": edit(nodePort("a", 30080), "port: 80", "port: 81")}}},
		"the newcomer":              {judged{before: one, after: map[string]string{"web.yaml": app, "a.yaml": one["a.yaml"], "0.yaml": nodePort("new", 30080)}}, "0.yaml:7:22: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service default/a, declared in a.yaml:1, has it"},
		"handed on":                 {judged: judged{before: one, after: map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30081), "b.yaml": nodePort("b", 30080)}}},
		"of one that goes":          {judged: judged{before: one, after: map[string]string{"web.yaml": app, "b.yaml": nodePort("b", 30080)}}},
		"swapped":                   {judged: judged{before: map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30080), "b.yaml": nodePort("b", 30081)}, after: map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30081), "b.yaml": nodePort("b", 30080)}}},
		"immutable address":         {judged{before: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.43.0.9\n")}, after: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.43.0.8\n")}}, "may not change once set; to have it deleted and made again, say so in the last paragraph of the commit message: Replace: Service/default/a"},
		"replaced":                  {judged: judged{before: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.43.0.9\n")}, after: map[string]string{"web.yaml": app, "a.yaml": with("  clusterIP: 10.43.0.8\n")}, trailers: []string{"Replace: Service/default/a"}}},
		"another port of the nodes": {judged: judged{before: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 80)}, after: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 80), "b.yaml": balancer("b", 81)}}},
		"ports of nodes swapped":    {judged: judged{before: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 80), "b.yaml": balancer("b", 81)}, after: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 81), "b.yaml": balancer("b", 80)}}},
		"on different nodes":        {judged: judged{after: map[string]string{"web.yaml": app, "a.yaml": edit(balancer("a", 80), "type:", "loadBalancerIP: 192.0.2.1\n  type:"), "b.yaml": edit(balancer("b", 80), "type:", "loadBalancerIP: 192.0.2.2\n  type:")}}},
		"port of nodes of one gone": {judged: judged{before: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 80)}, after: map[string]string{"web.yaml": app, "b.yaml": balancer("b", 80)}}},
	} {
		lines := strings.Join(tt.verdict(t).Lines(), "\n")
		if (lines == "") != (tt.says == "") || !strings.Contains(lines, tt.says) || strings.Count(lines, "\n") > 0 {
			t.Errorf("%s: %q, want %q", name, lines, tt.says)
		}
	}
}

// TestServiceSwapIsApplied: in one commit two Services have each other's port, a third
// what the fourth leaves, and a hundred more come along.
func TestServiceSwapIsApplied(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30080), "b.yaml": nodePort("b", 30081), "z.yaml": nodePort("z", 30082)}
	w.applies("c1", "", files)
	next := map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30081), "b.yaml": nodePort("b", 30080), "c.yaml": nodePort("c", 30082)}
	for i := range 100 {
		next[fmt.Sprintf("m%d.yaml", i)] = nodePort(fmt.Sprintf("m%d", i), 30100+i)
	}
	w.applies("c2", "c1", next)
	for name, port := range map[string]int32{"a": 30081, "b": 30080, "c": 30082, "m99": 30199} {
		if s := w.service(name).Spec; s.Ports[0].NodePort != port || s.ClusterIP == "" {
			t.Errorf("%s has %+v", name, s)
		}
	}
}

func TestServiceOrderAndHealth(t *testing.T) {
	if !(phase(key("services", "default", "a")) < phase(key("deployments", "default", "a"))) {
		t.Error("workloads come before the Services that their pods ask for")
	}
	svc := &corev1.Service{ObjectMeta: metaOf("default", "a", nil)}
	for _, tt := range []struct {
		change func()
		state  State
		says   string
	}{
		{func() {}, Healthy, ""},
		{func() { svc.Spec.Type = corev1.ServiceTypeLoadBalancer }, Progressing, "waiting for a ready node"},
		{func() { svc.Spec.LoadBalancerIP = "192.0.2.9" }, Progressing, "waiting for a ready node with the address 192.0.2.9"},
		{func() { svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}} }, Healthy, "at 192.0.2.9"},
		{func() {
			svc.Status.Conditions = []metav1.Condition{{Type: corev1.LoadBalancerPortsError, Status: metav1.ConditionTrue, Message: "port 80/TCP of the nodes is that of Service default/x"}}
		}, Failed, "port 80/TCP of the nodes is that of Service default/x"},
	} {
		tt.change()
		if state, says := Health(svc, nil); state != tt.state || says != tt.says {
			t.Errorf("%s %q, want %s %q", state, says, tt.state, tt.says)
		}
	}
}
