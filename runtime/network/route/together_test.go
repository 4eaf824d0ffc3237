package route

import (
	"context"
	"log/slog"
	"testing"

	"headway.dev/headway/runtime/network"
)

// plugged is a pod that package network has connected.
func plugged(l *lab, n *network.Network, id string, ports ...network.Port) *machine {
	l.t.Helper()
	// The link of namespace goes, that of the network comes.
	m := l.namespace("tmp"+id, "", "ip addr", "ip link set eth0 down; ip link set eth0 name old0")
	ips, err := n.Add(l.t.Context(), network.Pod{ID: id, NetNS: m.path, Ports: ports})
	if err != nil {
		l.t.Fatal(err)
	}
	m.ip = ips[0].String()
	return m
}

// Services and host ports in one kernel, on the bridge that package network
// makes. Where both claim a port of the node, the pod's host port has it.
func TestServicesBesideHostPorts(t *testing.T) {
	needRoot(t)
	sh(t, "ip link set lo up")
	n, err := network.New(t.Context(), network.Config{
		Dir: t.TempDir(), Bridge: "hwroute1", PluginDirs: network.DefaultPluginDirs(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t}
	t.Cleanup(func() {
		if err := n.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l.outside = l.attach("out", nodeIP, "192.0.2.2")
	cfg := testConfig(t, "hwroute1-services")
	cfg.Bridge = "hwroute1"
	if l.r, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.r.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	a := plugged(l, n, "a", network.Port{HostPort: 28200, ContainerPort: 8080, Protocol: "tcp"})
	b, client := plugged(l, n, "b"), plugged(l, n, "c")
	a.serve("tcp", 8080)
	b.serve("tcp", 8080)
	l.set(testService("web", "10.43.0.10", nodePort(30080)), ready(b.ip))
	l.set(testService("taken", "10.43.0.11", nodePort(28200)), ready(b.ip))
	for at, want := range map[string]*machine{
		"10.43.0.10:80": b, nodeIP + ":30080": b, nodeIP + ":28200": a, "10.43.0.11:80": b,
	} {
		for _, m := range []*machine{client, a, b} {
			server, from := m.who(at)
			if server != want.ip {
				t.Errorf("%s asks %s: %s and not %s", m.ip, at, server, want.ip)
			}
			if m != want && from != m.ip {
				t.Errorf("%s asks %s and arrives as %s", m.ip, at, from)
			}
		}
		l.node().servers(at, want)
	}
	l.node().servers("127.0.0.1:30080", b)
	l.node().servers("127.0.0.1:28200", a)
	l.outside.servers(nodeIP+":30080", b)
	l.outside.servers(nodeIP+":28200", a)
}
