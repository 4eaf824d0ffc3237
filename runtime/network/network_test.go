package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"pgregory.net/rapid"
)

// needRoot skips a test that needs to make namespaces and links.
func needRoot(t testing.TB) {
	t.Helper()
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			if os.Getenv("CI") != "" {
				t.Fatalf("this test needs root and %s, and CI is set", program)
			}
			t.Skipf("this test needs root and %s", program)
		}
	}
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// testNetwork makes a network with a bridge and a subnet of the test's own.
func testNetwork(t testing.TB, bridge string) (*Network, Config) {
	t.Helper()
	needRoot(t)
	cfg := Config{
		Dir: t.TempDir(), Bridge: bridge, PluginDirs: DefaultPluginDirs(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	n, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n, cfg
}

func testNS(t testing.TB, name string) string {
	t.Helper()
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	return "/run/netns/" + name
}

func inside(t testing.TB, ns string, args ...string) string {
	t.Helper()
	return run(t, append([]string{"ip", "netns", "exec", filepath.Base(ns)}, args...)...)
}

func reserved(t testing.TB, cfg Config) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(cfg.Dir, "ipam", "*", "10.*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func bridgePorts(t testing.TB, bridge string) int {
	t.Helper()
	entries, err := os.ReadDir("/sys/class/net/" + bridge + "/brif")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestAddAndRemove(t *testing.T) {
	n, cfg := testNetwork(t, "hwtesta")
	a, b := testNS(t, "hwtesta1"), testNS(t, "hwtesta2")
	ipA, err := n.Add(t.Context(), Pod{ID: "a", NetNS: a})
	if err != nil {
		t.Fatal(err)
	}
	ipB, err := n.Add(t.Context(), Pod{ID: "b", NetNS: b})
	if err != nil {
		t.Fatal(err)
	}
	if ipA[0] == ipB[0] {
		t.Fatalf("both have %s", ipA[0])
	}
	routes := inside(t, a, "ip", "-4", "route")
	if !strings.Contains(routes, "default via") {
		t.Errorf("routes: %s", routes)
	}
	if out := inside(t, a, "ip", "-4", "addr", "show", "eth0"); !strings.Contains(out, ipA[0].String()+"/24") {
		t.Errorf("address: %s", out)
	}
	if len(reserved(t, cfg)) != 2 || bridgePorts(t, "hwtesta") != 2 {
		t.Errorf("reserved %v, %d ports", reserved(t, cfg), bridgePorts(t, "hwtesta"))
	}
	for range 2 { // and again
		if err := n.Remove(t.Context(), Pod{ID: "a", NetNS: a}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "ip", "netns", "del", "hwtesta2") // a pod whose namespace is gone
	if err := n.Remove(t.Context(), Pod{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	if len(reserved(t, cfg)) != 0 || bridgePorts(t, "hwtesta") != 0 {
		t.Errorf("reserved %v, %d ports", reserved(t, cfg), bridgePorts(t, "hwtesta"))
	}
}

// Killed after any step of Add: the address is reserved, the link made, or not.
func TestReconcileFreesWhatAKilledAddLeft(t *testing.T) {
	n, cfg := testNetwork(t, "hwtestc")
	ns := testNS(t, "hwtestc1")
	br := n.built.bridges["hwtestc"]
	ip, err := br.addresses.reserve("half", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := br.plug(call{command: "ADD", id: "half", netns: ns, ifname: "eth0"}, ip); err != nil {
		t.Fatal(err)
	}
	live := testNS(t, "hwtestc2")
	if _, err := n.Add(t.Context(), Pod{ID: "live", NetNS: live, Ports: []Port{{HostPort: 28111, ContainerPort: 1, Protocol: "tcp"}}}); err != nil {
		t.Fatal(err)
	}
	// The next life.
	n, err = New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Reconcile(t.Context(), map[string]bool{"live": true}); err != nil {
		t.Fatal(err)
	}
	if len(reserved(t, cfg)) != 1 || bridgePorts(t, "hwtestc") != 1 {
		t.Errorf("reserved %v, %d ports", reserved(t, cfg), bridgePorts(t, "hwtestc"))
	}
	if out := run(t, "nft", "list", "table", "ip", "headway-hwtestc"); !strings.Contains(out, "28111") {
		t.Errorf("the living pod's port is gone: %s", out)
	}
	if err := n.Reconcile(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(reserved(t, cfg)) != 0 || bridgePorts(t, "hwtestc") != 0 {
		t.Errorf("reserved %v, %d ports", reserved(t, cfg), bridgePorts(t, "hwtestc"))
	}
	if out := run(t, "nft", "list", "table", "ip", "headway-hwtestc"); strings.Contains(out, "28111") {
		t.Errorf("the port stays: %s", out)
	}
}

func TestHostPorts(t *testing.T) {
	n, _ := testNetwork(t, "hwtesth")
	port := []Port{{HostPort: 28112, ContainerPort: 80, Protocol: "tcp"}}
	a, b := testNS(t, "hwtesth1"), testNS(t, "hwtesth2")
	if _, err := n.Add(t.Context(), Pod{ID: "a", NetNS: a, Ports: port}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Add(t.Context(), Pod{ID: "b", NetNS: b, Ports: port}); err == nil || !strings.Contains(err.Error(), "28112/tcp is taken by pod a") {
		t.Errorf("taken port: %v", err)
	}
	if err := n.Remove(t.Context(), Pod{ID: "b", NetNS: b, Ports: port}); err != nil {
		t.Fatal(err)
	}
	// Somebody flushes the rules: the next change brings them all back.
	run(t, "nft", "delete", "table", "ip", "headway-hwtesth")
	udp := []Port{{HostPort: 28112, ContainerPort: 81, Protocol: "udp"}, {HostIP: netip.MustParseAddr("127.0.0.2"), HostPort: 28113, ContainerPort: 82, Protocol: "tcp"}}
	if _, err := n.Add(t.Context(), Pod{ID: "b", NetNS: b, Ports: udp}); err != nil {
		t.Fatal(err)
	}
	out := run(t, "nft", "list", "table", "ip", "headway-hwtesth")
	for _, want := range []string{"tcp . 28112 :", "udp . 28112 :", "127.0.0.2 . tcp . 28113 :"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	for id, ports := range map[string][]Port{"a": port, "b": udp} {
		if err := n.Remove(t.Context(), Pod{ID: id, Ports: ports}); err != nil {
			t.Fatal(err)
		}
	}
	if out := run(t, "nft", "list", "table", "ip", "headway-hwtesth"); strings.Contains(out, "elements") {
		t.Errorf("ports stay: %s", out)
	}
}

func TestDeletedBridgeComesBack(t *testing.T) {
	n, _ := testNetwork(t, "hwtestd")
	run(t, "ip", "link", "del", "hwtestd")
	ns := testNS(t, "hwtestd1")
	if _, err := n.Add(t.Context(), Pod{ID: "a", NetNS: ns}); err != nil {
		t.Fatal(err)
	}
	if bridgePorts(t, "hwtestd") != 1 {
		t.Error("not plugged in")
	}
	if err := n.Remove(t.Context(), Pod{ID: "a", NetNS: ns}); err != nil {
		t.Fatal(err)
	}
}

func TestTwoInstancesKeepApart(t *testing.T) {
	a, _ := testNetwork(t, "hwtesti")
	b, _ := testNetwork(t, "hwtestj")
	if x, y := a.built.bridges["hwtesti"].conf.subnet(), b.built.bridges["hwtestj"].conf.subnet(); x.Overlaps(y) {
		t.Errorf("%s and %s", x, y)
	}
}

// An operator may go over to the programs while pods run: they must not give an
// address that is taken, nor we one of theirs.
func TestProgramsAndBuiltinsShareReservations(t *testing.T) {
	n, cfg := testNetwork(t, "hwtestp")
	programs := &Network{
		cfg: n.cfg, list: n.list, built: n.built, busy: map[string]chan struct{}{},
		cni: libcni.NewCNIConfigWithCacheDir(cfg.PluginDirs, filepath.Join(cfg.Dir, "results"), nil),
	}
	if _, err := invoke.FindInPath("bridge", cfg.PluginDirs); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("this test needs the CNI plugins: %v", err)
	}
	given := map[netip.Addr]bool{}
	pods := map[string]*Network{}
	for i, who := range []*Network{n, programs, n, programs} {
		p := Pod{ID: fmt.Sprintf("pod-%d", i), NetNS: testNS(t, fmt.Sprintf("hwtestp%d", i))}
		ips, err := who.Add(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		given[ips[0]] = true
		pods[p.ID] = who
		if out := inside(t, p.NetNS, "ip", "-4", "addr"); !strings.Contains(out, ips[0].String()+"/24") {
			t.Errorf("address: %s", out)
		}
	}
	if len(given) != 4 {
		t.Errorf("four pods have %d addresses", len(given))
	}
	for i := range 4 {
		id := fmt.Sprintf("pod-%d", i)
		if err := pods[id].Remove(t.Context(), Pod{ID: id, NetNS: fmt.Sprintf("/run/netns/hwtestp%d", i)}); err != nil {
			t.Error(err)
		}
	}
	if len(reserved(t, cfg)) != 0 {
		t.Errorf("reserved: %v", reserved(t, cfg))
	}
}

func TestUnknownOptionsGoToThePrograms(t *testing.T) {
	for _, conf := range []string{
		`{"type":"bridge","bridge":"b","isGateway":true,"vlan":5,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
		`{"type":"bridge","bridge":"b","isGateway":true,"ipam":{"type":"dhcp"}}`,
		`{"type":"bridge","bridge":"b","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
		`{"type":"bridge","bridge":"b","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}]]}}`,
	} {
		if _, ok := decodeBridge([]byte(conf), "n"); ok {
			t.Errorf("built in: %s", conf)
		}
	}
	for _, conf := range []string{
		`{"type":"portmap","snat":false}`, `{"type":"portmap","backend":"nftables"}`,
		`{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":1,"protocol":"tcp; flush ruleset"}]}}`,
	} {
		if _, ok := decodePortmap([]byte(conf)); ok {
			t.Errorf("built in: %s", conf)
		}
	}
}

// No address is given twice while it is held, whatever the order, and every
// address of the subnet can be given.
func TestAddresses(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		subnet := netip.MustParsePrefix("10.9.0.0/29")
		open := func() *addresses {
			return &addresses{dir: filepath.Join(base, fmt.Sprint(n)), subnet: subnet, gateway: subnet.Addr().Next()}
		}
		a := open()
		held := map[string]netip.Addr{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(rt, "id")
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0: // a restart
				a = open()
			case 1:
				if err := a.release(id); err != nil {
					rt.Fatal(err)
				}
				delete(held, id)
			default:
				ip, err := a.reserve(id, "eth0")
				if err != nil {
					if len(held) < 5 {
						rt.Fatalf("%d held, but %v", len(held), err)
					}
					continue
				}
				if before, ok := held[id]; ok && before != ip {
					rt.Fatalf("%s had %s and got %s", id, before, ip)
				}
				for other, has := range held {
					if other != id && has == ip {
						rt.Fatalf("%s has %s already", other, ip)
					}
				}
				if !subnet.Contains(ip) || ip == a.gateway || ip == subnet.Addr() || ip == netip.MustParseAddr("10.9.0.7") {
					rt.Fatalf("%s is no host's address", ip)
				}
				held[id] = ip
			}
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	n, _ := testNetwork(b, "hwtestb")
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		p := Pod{ID: fmt.Sprintf("pod-%d", i), NetNS: testNS(b, fmt.Sprintf("hwtestb%d", i))}
		b.StartTimer()
		if _, err := n.Add(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := n.Remove(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		run(b, "ip", "netns", "del", filepath.Base(p.NetNS))
		b.StartTimer()
	}
}

func BenchmarkRemove(b *testing.B) {
	n, _ := testNetwork(b, "hwtestr")
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		p := Pod{ID: fmt.Sprintf("pod-%d", i), NetNS: testNS(b, fmt.Sprintf("hwtestr%d", i))}
		if _, err := n.Add(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := n.Remove(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
}
