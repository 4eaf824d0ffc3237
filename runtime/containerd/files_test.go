package containerd

import (
	"strings"
	"testing"
)

func TestNamesOfAPod(t *testing.T) {
	yes, override := true, "own.name"
	for _, c := range []struct {
		hostname, subdomain string
		fqdn                *bool
		override            *string
		node, hosts         string
	}{
		{node: "pod", hosts: "10.42.0.9\tpod\n"},
		{hostname: "h", node: "h", hosts: "10.42.0.9\th\n"},
		{subdomain: "s", node: "pod", hosts: "10.42.0.9\tpod.s.default.svc.cluster.local\tpod\n"},
		{hostname: "h", subdomain: "s", node: "h", hosts: "10.42.0.9\th.s.default.svc.cluster.local\th\n"},
		{hostname: "h", subdomain: "s", fqdn: &yes, node: "h.s.default.svc.cluster.local", hosts: "10.42.0.9\th.s.default.svc.cluster.local\th\n"},
		{hostname: "h", fqdn: &yes, node: "h", hosts: "10.42.0.9\th\n"},
		{hostname: "h", subdomain: "s", override: &override, node: "own.name", hosts: "10.42.0.9\town.name\n"},
	} {
		pod := testPod()
		pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN, pod.Spec.HostnameOverride = c.hostname, c.subdomain, c.fqdn, c.override
		if got, err := nodename(pod, "cluster.local"); err != nil || got != c.node {
			t.Errorf("%+v: host name %q, %v", c, got, err)
		}
		if got := hosts(pod, "cluster.local", []string{"10.42.0.9"}); !strings.HasSuffix(got, "\n"+c.hosts) || !strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n") {
			t.Errorf("%+v: hosts\n%s", c, got)
		}
	}
	pod := testPod()
	pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = strings.Repeat("s", 40), &yes
	if _, err := nodename(pod, "cluster.local"); err == nil || !strings.Contains(err.Error(), "has 70 characters and a host name at most 64: shorten hostname, subdomain or namespace") {
		t.Errorf("a host name that is too long: %v", err)
	}
}
