package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/resolv"
)

// need skips a test without what it takes, or fails it where nothing may be missing.
func endpointsAt(addrs []string) (out []discoveryv1.Endpoint) {
	for _, addr := range addrs {
		out = append(out, ready(addr, ""))
	}
	return out
}

func need(t *testing.T, root bool, programs ...string) {
	t.Helper()
	missing := ""
	if root && os.Getuid() != 0 {
		missing = "root"
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing = program
		}
	}
	switch {
	case missing == "":
	case os.Getenv("CI") != "":
		t.Fatalf("this test needs %s, and CI is set", missing)
	default:
		t.Skipf("this test needs %s", missing)
	}
}

// loopback is one of three addresses of the machine that no other process uses.
func loopback(n byte) netip.Addr {
	n24 := uint32(os.Getpid())<<2 | uint32(n) // a pid has at most 22 bits
	return netip.AddrFrom4([4]byte{127, byte(n24 >> 16), byte(n24 >> 8), byte(n24)})
}

// startServer answers on real sockets, asking an upstream of the test's.
func startServer(t testing.TB, at netip.AddrPort) (*Server, netip.AddrPort) {
	t.Helper()
	s, err := New(Config{
		Domain: "cluster.local", Address: at,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Services: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
	})
	if err != nil {
		t.Fatal(err)
	}
	shop(s.names)
	s.Synced()
	s.forward.use([]netip.AddrPort{startUpstream(t)})
	sockets := opened(t, at)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, sockets) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s, sockets.udp.LocalAddr().(*net.UDPAddr).AddrPort()
}

// startUpstream is a resolver that knows example.org, with a library's own server.
func startUpstream(t testing.TB) netip.AddrPort {
	t.Helper()
	mux := dns.NewServeMux()
	mux.HandleFunc(".", func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		q := m.Question[0]
		switch name := strings.ToLower(q.Name); {
		case name == "www.example.org." && q.Qtype == dns.TypeA:
			r.Answer = []dns.RR{rrOf(www)}
		case name == "www.example.org.":
			r.Ns = []dns.RR{rrOf("example.org. 60 IN SOA a. b. 1 2 3 4 60")}
		case name == "big.example.org." && q.Qtype == dns.TypeTXT:
			for i := range 200 {
				r.Answer = append(r.Answer, rrOf(fmt.Sprintf(`big.example.org. 60 IN TXT "record %d of many"`, i)))
			}
			if _, tcp := w.RemoteAddr().(*net.TCPAddr); !tcp {
				r.Truncate(512)
			}
		default:
			r.Rcode = dns.RcodeNameError
			r.Ns = []dns.RR{rrOf(". 60 IN SOA a. b. 1 2 3 4 60")}
		}
		if err := w.WriteMsg(r); err != nil {
			t.Error(err)
		}
	})
	sockets := opened(t, netip.MustParseAddrPort("127.0.0.1:0"))
	for _, server := range []*dns.Server{{PacketConn: sockets.udp, Handler: mux}, {Listener: sockets.tcp, Handler: mux}} {
		started, done := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { done <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := server.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	return sockets.udp.LocalAddr().(*net.UDPAddr).AddrPort()
}

// opened opens sockets at an address. Port 0 is one that is free for UDP; it may be
// somebody's for TCP, and then another does.
func opened(t testing.TB, at netip.AddrPort) sockets {
	t.Helper()
	in, err := open(t.Context(), at)
	for try := 0; at.Port() == 0 && errors.Is(err, syscall.EADDRINUSE) && try < 1000; try++ {
		in, err = open(t.Context(), at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestDig(t *testing.T) {
	need(t, false, "dig")
	s, at := startServer(t, netip.MustParseAddrPort("127.0.0.1:0"))
	s.SetService(clusterIP("shop", "big", "None"))
	for part := range 10 {
		var all []string
		for i := range 100 {
			all = append(all, fmt.Sprintf("10.42.%d.%d", 10+part, i))
		}
		s.SetSlice(endpointSlice("shop", fmt.Sprint("big-", part), "big", nil, endpointsAt(all)...))
	}
	for _, c := range []struct {
		args string
		want []string // what is in its output
	}{
		{"web.shop.svc.cluster.local", []string{"status: NOERROR", "flags: qr aa rd ra;", "web.shop.svc.cluster.local. 5 IN A 10.43.0.7", "EDNS: version: 0, flags:; udp: 1232"}},
		{"wEb.Shop.svc.cluster.LOCAL", []string{"wEb.Shop.svc.cluster.LOCAL. 5 IN A 10.43.0.7"}},
		{"AAAA web.shop.svc.cluster.local", []string{"status: NOERROR", "ANSWER: 0, AUTHORITY: 1", "SOA"}},
		{"absent.shop.svc.cluster.local", []string{"status: NXDOMAIN", "AUTHORITY: 1", "SOA"}},
		{"SRV _sql._tcp.db.shop.svc.cluster.local", []string{"ANSWER: 3", "SRV 0 1 5432 db-0.db.shop.svc.cluster.local."}},
		{"db-0.db.shop.svc.cluster.local", []string{"A 10.42.0.10"}},
		{"-x 10.43.0.7", []string{"PTR web.shop.svc.cluster.local."}},
		{"-x fd00::10", []string{"PTR db-0.db.shop.svc.cluster.local."}},
		{"TXT dns-version.cluster.local", []string{`"1.1.0"`}},
		{"out.shop.svc.cluster.local", []string{"CNAME www.example.org.", "A 192.0.2.80"}},
		{"www.example.org", []string{"A 192.0.2.80", "flags: qr rd ra;"}},
		{"www.example.org +noedns", []string{"A 192.0.2.80", "ADDITIONAL: 0"}},
		{"www.example.org +dnssec +cd", []string{"flags: do; udp: 1232", "flags: qr rd ra cd;"}},
		{"www.example.org +tcp", []string{"A 192.0.2.80", "(TCP)"}},
		{"www.example.org +tcp +keepopen web.shop.svc.cluster.local", []string{"A 192.0.2.80", "A 10.43.0.7"}},
		{"nothing.example.org", []string{"status: NXDOMAIN"}},
		{"big.shop.svc.cluster.local +ignore", []string{"flags: qr aa tc rd ra;"}},
		{"big.shop.svc.cluster.local", []string{"ANSWER: 1000", "Truncated, retrying in TCP mode"}},
		{"TXT big.example.org", []string{"ANSWER: 200"}},
		{"ANY web.shop.svc.cluster.local +notcp", []string{`HINFO "RFC8482" ""`}},
		{"AXFR cluster.local", []string{"Transfer failed"}},
		{"CH TXT version.bind", []string{"status: REFUSED"}},
		{"www.example.org +norecurse", []string{"status: REFUSED"}},
		{"www.example.org +edns=1 +noednsneg", []string{"status: BADVERS"}},
		{"+opcode=NOTIFY web.shop.svc.cluster.local", []string{"status: NOTIMP"}},
		{"web.shop.svc.cluster.local +cookie +nsid +subnet=192.0.2.0/24 +padding=128", []string{"A 10.43.0.7"}},
		{"www.example.org +header-only", []string{"status: FORMERR"}},
	} {
		args := append([]string{"@" + at.Addr().String(), "-p", fmt.Sprint(at.Port()), "+tries=1", "+timeout=30"}, strings.Fields(c.args)...)
		out, err := exec.Command("dig", args...).CombinedOutput()
		if err != nil {
			t.Errorf("dig %s: %v: %s", c.args, err, out)
		}
		flat := strings.Join(strings.Fields(string(out)), " ")
		for _, want := range c.want {
			if !strings.Contains(flat, want) {
				t.Errorf("dig %s: %q is not in\n%s", c.args, want, flat)
			}
		}
	}
}

// The C libraries that pods have, with the very file that a pod gets: glibc goes on
// in its search path as it likes, musl asks for A and AAAA at once and believes the
// first that says there is no such name.
func TestGlibcMuslAndGo(t *testing.T) {
	if names := os.Getenv("HEADWAY_RESOLVE"); names != "" {
		resolveWithGo(strings.Fields(names))
		return
	}
	need(t, true, "gcc", "musl-gcc", "unshare", "mount")
	server := loopback(1)
	startServer(t, netip.AddrPortFrom(server, 53))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	file, _ := resolv.For(pod, resolv.Cluster{Domain: "cluster.local", Server: server}, resolv.File{Searches: []string{"corp.example"}})
	dir := t.TempDir()
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte(file.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"web: 10.43.0.7",
		"web.shop: 10.43.0.7",
		"web.shop.svc: 10.43.0.7",
		"web.shop.svc.cluster.local: 10.43.0.7",
		"web.shop.svc.cluster.local.: 10.43.0.7",
		"WEB: 10.43.0.7",
		"db: 10.42.0.10 10.42.0.11 10.42.1.10 fd00::10",
		"db-0.db: 10.42.0.10 fd00::10",
		"db-1.db.shop.svc: 10.42.0.11",
		"out: 192.0.2.80",
		"in: 10.43.0.7",
		"www.example.org: 192.0.2.80",
		"www.example.org.: 192.0.2.80",
		"absent: none",
		"empty: none",
		"web.other: none",
	}
	var names []string
	for _, line := range want {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	clients := map[string][]string{"go": {os.Args[0], "-test.run=^TestGlibcMuslAndGo$"}}
	for name, build := range map[string][]string{"glibc": {"gcc"}, "musl": {"musl-gcc", "-static"}} {
		program := filepath.Join(dir, name)
		if out, err := exec.Command(build[0], append(build[1:], "-O1", "-Wall", "-Werror", "-o", program, "testdata/resolve.c")...).CombinedOutput(); err != nil {
			t.Fatalf("build for %s: %v: %s", name, err, out)
		}
		clients[name] = append([]string{program}, names...)
	}
	for name, command := range clients {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-m", "sh", "-c", `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`, conf}, command...)
			cmd := exec.Command("unshare", args...)
			cmd.Env = append(os.Environ(), "GODEBUG=netdns=go", "HEADWAY_RESOLVE="+strings.Join(names, " "))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			for i, line := range want {
				if i >= len(got) || got[i] != line {
					t.Fatalf("want %q, got\n%s", line, out)
				}
			}
		})
	}
}

// resolveWithGo prints what Go's own resolver finds, as testdata/resolve.c does.
func resolveWithGo(names []string) {
	for _, name := range names {
		addrs, err := (&net.Resolver{PreferGo: true}).LookupHost(context.Background(), name)
		if notFound, ok := err.(*net.DNSError); ok && notFound.IsNotFound {
			addrs = []string{"none"}
		} else if err != nil {
			addrs = []string{err.Error()}
		}
		slices.Sort(addrs)
		fmt.Printf("%s: %s\n", name, strings.Join(slices.Compact(addrs), " "))
	}
}
