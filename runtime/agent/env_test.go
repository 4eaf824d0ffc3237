package agent

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// The documented rules of $(VAR) in a container's command, args and env.
func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "a", "B": "$(A)", "EMPTY": "", "a b": "space"}
	lookup := func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
	for in, want := range map[string]string{
		"":                    "",
		"plain":               "plain",
		"$(A)":                "a",
		"x$(A)y$(A)z":         "xayaz",
		"$(B)":                "$(A)", // a value is not expanded again
		"$(EMPTY)":            "",
		"$(NONE)":             "$(NONE)",
		"$$(A)":               "$(A)",
		"$$$(A)":              "$a",
		"$$$$(A)":             "$$(A)",
		"$":                   "$",
		"$$":                  "$",
		"a$":                  "a$",
		"$A":                  "$A",
		"$(A":                 "$(A",
		"$(A $(A)":            "$(A $(A)",
		"$()":                 "$()",
		"$(a b)":              "space",
		"$(A)$":               "a$",
		"\n$(A)\t":            "\na\t",
		"$é(A)":               "$é(A)",
		"$(NONE)$(A)$(NONE)$": "$(NONE)a$(NONE)$",
	} {
		if got, err := expand(in, lookup, len(want)); got != want || err != nil {
			t.Errorf("%q became %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestExpandWithoutDollarIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "$") }).Draw(t, "s")
		escaped := strings.ReplaceAll(s, "x", "$$")
		none := func(string) (string, bool) { return "", false }
		if got, err := expand(s, none, len(s)); got != s || err != nil {
			t.Fatalf("%q became %q", s, got)
		}
		if got, err := expand(escaped, none, len(s)); got != strings.ReplaceAll(s, "x", "$") || err != nil {
			t.Fatalf("%q became %q", escaped, got)
		}
	})
}

// A few variables, each ten times the one before it, would take gigabytes, and the agent
// with them.
func TestVariablesThatGrow(t *testing.T) {
	pod := &corev1.Pod{}
	grown := []corev1.EnvVar{{Name: "A0", Value: strings.Repeat("x", 1000)}}
	for i := range 8 {
		grown = append(grown, corev1.EnvVar{Name: fmt.Sprintf("A%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(A%d)", i), 10)})
	}
	if _, err := environment(surroundings{pod: pod}, &corev1.Container{Env: grown}); err == nil || err.Error() != errTooMuch.Error() {
		t.Errorf("error %v", err)
	}
	vars, err := environment(surroundings{pod: pod}, &corev1.Container{Env: grown[:4]})
	if err != nil || len(vars["A3"]) != 1000_000 {
		t.Errorf("%d bytes, %v", len(vars["A3"]), err)
	}
	for what, c := range map[string]*corev1.Container{
		"command": {Command: []string{strings.Repeat("$(A3)", 10)}}, "args": {Command: []string{"$(A3)"}, Args: []string{"$(A3)$(A3)$(A3)", "$(A3)$(A3)$(A3)"}},
	} {
		if _, _, err := command(c, vars); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if cmd, args, err := command(&corev1.Container{Command: []string{"$(A3)"}, Args: []string{"$(A3)$(A3)"}}, vars); err != nil || len(cmd[0]) != 1000_000 || len(args[0]) != 2000_000 {
		t.Errorf("%v", err)
	}
	if _, err := expandAll("$(A3)", vars); err == nil || !strings.Contains(err.Error(), "subPathExpr") {
		t.Errorf("a path of a million bytes: error %v", err)
	}
}

func envPod() (*corev1.Pod, surroundings) {
	yes := true
	key := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	res := func(name, divisor string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: name, Divisor: resource.MustParse(divisor)}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"a.b/c": "note"}},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa", Containers: []corev1.Container{{
			Name: "main",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("100Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1500m"), "ephemeral-storage": resource.MustParse("3Mi"), "hugepages-2Mi": resource.MustParse("4Mi")},
			},
			EnvFrom: []corev1.EnvFromSource{
				{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: &yes}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
			},
			Env: []corev1.EnvVar{
				{Name: "PLAIN", Value: "v"}, {Name: "LATE", Value: "$(AFTER)"}, {Name: "AFTER", Value: "$(PLAIN)-$(P_k)"},
				{Name: "token", Value: "overridden"},
				{Name: "CM", ValueFrom: key("cm", "k", nil)}, {Name: "OPT1", ValueFrom: key("cm", "none", &yes)}, {Name: "OPT2", ValueFrom: key("none", "k", &yes)},
				{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "NS", ValueFrom: field("metadata.namespace")}, {Name: "UID", ValueFrom: field("metadata.uid")},
				{Name: "LABEL", ValueFrom: field("metadata.labels['app']")}, {Name: "NOTE", ValueFrom: field("metadata.annotations['a.b/c']")},
				{Name: "NODE", ValueFrom: field("spec.nodeName")}, {Name: "SA", ValueFrom: field("spec.serviceAccountName")},
				{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "IPS", ValueFrom: field("status.podIPs")}, {Name: "HOST", ValueFrom: field("status.hostIP")},
				{Name: "CPU", ValueFrom: res("limits.cpu", "1")}, {Name: "CPUM", ValueFrom: res("requests.cpu", "1m")},
				{Name: "MEM", ValueFrom: res("requests.memory", "1Mi")}, {Name: "MEMLIMIT", ValueFrom: res("limits.memory", "1Gi")},
				{Name: "DISK", ValueFrom: res("limits.ephemeral-storage", "1Mi")}, {Name: "PAGES", ValueFrom: res("limits.hugepages-2Mi", "1Mi")},
			},
		}}},
	}
	things := newThings()
	things.configMaps["ns/cm"] = &corev1.ConfigMap{Data: map[string]string{"k": "cmv"}}
	things.secrets["ns/s"] = &corev1.Secret{Data: map[string][]byte{"token": []byte("hunter2")}}
	return pod, surroundings{pod: pod, podIPs: []string{"10.1.0.2", "fd00::2"}, hostIPs: []string{"10.0.0.9"},
		allocatable: corev1.ResourceList{"memory": resource.MustParse("8Gi")}, objects: things}
}

func TestEnvironment(t *testing.T) {
	pod, s := envPod()
	got, err := environment(s, &pod.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"P_k": "cmv", "token": "overridden", "PLAIN": "v", "LATE": "$(AFTER)", "AFTER": "v-cmv", "CM": "cmv",
		"NAME": "web", "NS": "ns", "UID": "u", "LABEL": "x", "NOTE": "note", "NODE": "n1", "SA": "sa",
		"IP": "10.1.0.2", "IPS": "10.1.0.2,fd00::2", "HOST": "10.0.0.9", "CPU": "2", "CPUM": "250", "MEM": "100", "MEMLIMIT": "8", "DISK": "3", "PAGES": "4",
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s should not be set", k)
		}
	}
	c := &corev1.Container{Command: []string{"run", "$(PLAIN)"}, Args: []string{"$$(PLAIN)", "$(NAME).$(NONE)"}}
	cmd, args, err := command(c, got)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(cmd, " ") != "run v" || strings.Join(args, " ") != "$(PLAIN) web.$(NONE)" {
		t.Error(cmd, args)
	}
}

func TestEnvironmentErrors(t *testing.T) {
	for _, c := range []struct {
		from *corev1.EnvVarSource
		want string
	}{
		{&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "k"}}, `secret "none" not found`},
		{&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}, `couldn't find key k in secret ns/s`},
		{&corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Key: "x"}}, `couldn't find key x in configmap ns/cm`},
		{&corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.secret"}}, "field path"},
		{&corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "other", Resource: "limits.cpu"}}, "not found"},
		{&corev1.EnvVarSource{}, "names no source"},
	} {
		pod, s := envPod()
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: c.from}}
		_, err := environment(s, &pod.Spec.Containers[0])
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("R14: %v", err)
		}
	}
}

func TestCheckUser(t *testing.T) {
	yes, root, user := true, int64(0), int64(1000)
	for _, c := range []struct {
		image, want string
		security    corev1.SecurityContext
	}{
		{"", "will run as root", corev1.SecurityContext{RunAsNonRoot: &yes}},
		{"0", "will run as root", corev1.SecurityContext{RunAsNonRoot: &yes}},
		{"0:0", "will run as root", corev1.SecurityContext{RunAsNonRoot: &yes}},
		{"nobody", "non-numeric user (nobody)", corev1.SecurityContext{RunAsNonRoot: &yes}},
		{"1000:1000", "", corev1.SecurityContext{RunAsNonRoot: &yes}},
		{"", "", corev1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &user}},
		{"1000", "breaks non-root policy", corev1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &root}},
		{"", "", corev1.SecurityContext{}},
	} {
		err := checkUser(&corev1.Pod{}, &corev1.Container{Name: "c", SecurityContext: &c.security}, Image{User: c.image})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("user %q: %v, want %q", c.image, err, c.want)
		}
	}
}

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		if cpu != "" {
			out["cpu"] = resource.MustParse(cpu)
		}
		if memory != "" {
			out["memory"] = resource.MustParse(memory)
		}
		return out
	}
	for _, c := range []struct {
		requests, limits corev1.ResourceList
		want             corev1.PodQOSClass
	}{
		{nil, nil, corev1.PodQOSBestEffort},
		{list("1", "1Gi"), list("1", "1Gi"), corev1.PodQOSGuaranteed},
		{nil, list("1", "1Gi"), corev1.PodQOSGuaranteed},
		{list("1", ""), list("2", ""), corev1.PodQOSBurstable},
		{list("1", "1Gi"), nil, corev1.PodQOSBurstable},
		{nil, list("1", ""), corev1.PodQOSBurstable},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}}}}}
		if got := qosClass(pod); got != c.want {
			t.Errorf("%v / %v: %s, want %s", c.requests, c.limits, got, c.want)
		}
	}
}

func TestServiceLinks(t *testing.T) {
	f := newFlow()
	set := func(ns, name string, spec corev1.ServiceSpec) {
		f.setService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec})
	}
	set("default", "kubernetes", corev1.ServiceSpec{ClusterIP: "10.43.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}})
	set("ns", "my-db", corev1.ServiceSpec{ClusterIP: "10.43.0.7", Ports: []corev1.ServicePort{{Name: "sql-port", Port: 5432}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}})
	set("ns", "peers", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 1}}})
	set("ns", "away", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"})
	set("other", "web", corev1.ServiceSpec{ClusterIP: "10.43.0.8", Ports: []corev1.ServicePort{{Port: 80}}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	got := strings.Join(envList(f.links(pod)), " ")
	api := "KUBERNETES_PORT=tcp://10.43.0.1:443 KUBERNETES_PORT_443_TCP=tcp://10.43.0.1:443 KUBERNETES_PORT_443_TCP_ADDR=10.43.0.1 " +
		"KUBERNETES_PORT_443_TCP_PORT=443 KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_SERVICE_HOST=10.43.0.1 KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443"
	want := api + " MY_DB_PORT=tcp://10.43.0.7:5432 MY_DB_PORT_53_UDP=udp://10.43.0.7:53 MY_DB_PORT_53_UDP_ADDR=10.43.0.7 MY_DB_PORT_53_UDP_PORT=53 MY_DB_PORT_53_UDP_PROTO=udp " +
		"MY_DB_PORT_5432_TCP=tcp://10.43.0.7:5432 MY_DB_PORT_5432_TCP_ADDR=10.43.0.7 MY_DB_PORT_5432_TCP_PORT=5432 MY_DB_PORT_5432_TCP_PROTO=tcp " +
		"MY_DB_SERVICE_HOST=10.43.0.7 MY_DB_SERVICE_PORT=5432 MY_DB_SERVICE_PORT_DNS=53 MY_DB_SERVICE_PORT_SQL_PORT=5432"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	no := false
	pod.Spec.EnableServiceLinks = &no
	if got := strings.Join(envList(f.links(pod)), " "); got != api {
		t.Errorf("without links: %s", got)
	}
	vars, err := environment(surroundings{pod: pod, links: f.links(pod)}, &corev1.Container{Env: []corev1.EnvVar{
		{Name: "URL", Value: "https://$(KUBERNETES_SERVICE_HOST)"}, {Name: "KUBERNETES_PORT", Value: "mine"},
	}})
	if err != nil || vars["URL"] != "https://10.43.0.1" || vars["KUBERNETES_PORT"] != "mine" {
		t.Errorf("%v %v", vars, err)
	}
}
