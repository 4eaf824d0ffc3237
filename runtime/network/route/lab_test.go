package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
)

// lab is a node (the namespace that the tests run in) with pods behind a bridge, a
// machine outside and a machine elsewhere that has endpoints.
type lab struct {
	t       testing.TB
	outside *machine // 192.0.2.2, in front of the node's 192.0.2.1
	remote  *machine // 198.51.100.2, behind the node's 198.51.100.1
	r       *Router
	pods    int
}

// machine is a network namespace.
type machine struct {
	lab  *lab
	ns   netns.NsHandle // -1: the node
	path string
	ip   string
}

const nodeIP = "192.0.2.1"

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

func sh(t testing.TB, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

func newLab(t testing.TB) *lab {
	t.Helper()
	needRoot(t)
	sh(t, `ip link set lo up
ip link add hwroute0 type bridge && ip addr add 10.42.0.1/24 dev hwroute0 && ip link set hwroute0 up
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.hwroute0.route_localnet=1
ip link set hwroute0 type bridge nf_call_iptables 1`)
	l := &lab{t: t}
	t.Cleanup(func() { sh(t, "ip link del hwroute0") })
	l.outside = l.attach("out", "192.0.2.1", "192.0.2.2")
	l.remote = l.attach("rem", "198.51.100.1", "198.51.100.2")
	sh(t, "ip route add 203.0.113.0/24 via 192.0.2.2") // as a default route would
	l.r = l.router("hwroute")
	return l
}

func (l *lab) router(table string) *Router {
	l.t.Helper()
	r, err := New(testConfig(l.t, table))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := r.Destroy(context.Background()); err != nil {
			l.t.Error(err)
		}
	})
	return r
}

// namespace makes one with a link into it, and the commands inside run.
func (l *lab) namespace(link, ip, host, inside string) *machine {
	l.t.Helper()
	name := fmt.Sprintf("hwroute-%d-%s", os.Getpid(), link)
	sh(l.t, fmt.Sprintf("ip netns add %s && ip link add %s type veth peer name eth0 netns %[1]s", name, link))
	l.t.Cleanup(func() { sh(l.t, fmt.Sprintf("ip netns del %s; ip link del %s 2>/dev/null || true", name, link)) })
	sh(l.t, host+"\nip link set "+link+" up")
	sh(l.t, fmt.Sprintf("ip netns exec %s sh -ec 'ip link set lo up; ip link set eth0 up; %s'", name, inside))
	ns, err := netns.GetFromName(name)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { ns.Close() })
	return &machine{lab: l, ns: ns, path: "/run/netns/" + name, ip: ip}
}

func (l *lab) attach(link, host, ip string) *machine {
	return l.namespace(link, ip, fmt.Sprintf("ip addr add %s/24 dev %s", host, link),
		fmt.Sprintf("ip addr add %s/24 dev eth0; ip route add default via %s", ip, host))
}

func (l *lab) pod() *machine {
	l.t.Helper()
	l.pods++
	link, ip := fmt.Sprint("pod", l.pods), fmt.Sprintf("10.42.0.%d", 1+l.pods)
	return l.namespace(link, ip, "ip link set "+link+" master hwroute0; ip link set "+link+" type bridge_slave hairpin on",
		fmt.Sprintf("ip addr add %s/24 dev eth0; ip route add default via 10.42.0.1", ip))
}

func (l *lab) node() *machine { return &machine{lab: l, ns: -1, ip: nodeIP} }

// do runs f in the namespace: sockets that it makes belong there.
func (m *machine) do(f func()) {
	if m.ns == -1 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		panic(err)
	}
	defer home.Close()
	if err := netns.Set(m.ns); err != nil {
		panic(err)
	}
	defer func() {
		if err := netns.Set(home); err != nil {
			panic(err)
		}
	}()
	f()
}

// serve answers on a port with this machine's address and the asker's.
func (m *machine) serve(network string, port int) {
	m.lab.t.Helper()
	var err error
	m.do(func() { err = m.listen(network, fmt.Sprintf("%s:%d", m.ip, port)) })
	if err != nil {
		m.lab.t.Fatal(err)
	}
}

func (m *machine) listen(network, at string) error {
	if network == "udp" {
		c, err := net.ListenPacket("udp4", at)
		if err != nil {
			return err
		}
		m.lab.t.Cleanup(func() { c.Close() })
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := c.ReadFrom(buf)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					host, _, _ := net.SplitHostPort(from.String())
					_, _ = c.WriteTo([]byte(m.ip+" "+host), from)
				}
			}
		}()
		return nil
	}
	l, err := net.Listen("tcp4", at)
	if err != nil {
		return err
	}
	m.lab.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, m.ip+" "+host)
			c.Close()
		}
	}()
	return nil
}

// hangs is the error of a connection that nothing answers.
var hangs = os.ErrDeadlineExceeded

// patience is for what must not be answered; what is answered never waits for it.
const patience = 300 * time.Millisecond

// ask connects and returns who answered, and whom it saw asking.
func (m *machine) ask(network, at string, wait time.Duration) (server, client string, err error) {
	var c net.Conn
	m.do(func() {
		c, err = (&net.Dialer{Timeout: wait}).Dial(network+"4", at)
	})
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			err = hangs
		}
		return "", "", err
	}
	defer c.Close()
	return talk(c, network, wait)
}

func talk(c net.Conn, network string, wait time.Duration) (server, client string, err error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", "", err
	}
	buf := make([]byte, 100)
	if network == "udp" {
		if _, err := c.Write([]byte("?")); err != nil {
			return "", "", err
		}
	}
	n, err := c.Read(buf)
	if err != nil {
		return "", "", err
	}
	server, client, _ = strings.Cut(string(buf[:n]), " ")
	return server, client, nil
}

// who is ask where an answer must come. It has as long as the test has.
func (m *machine) who(at string) (server, client string) {
	m.lab.t.Helper()
	return m.whoBy("tcp", at)
}

func (m *machine) whoBy(network, at string) (server, client string) {
	m.lab.t.Helper()
	server, client, err := m.ask(network, at, time.Minute)
	if err != nil {
		m.lab.t.Fatalf("%s asks %s: %v", m.ip, at, err)
	}
	return server, client
}

// refused checks that an answer comes at once that there is nobody.
func (m *machine) refused(network, at string) {
	m.lab.t.Helper()
	if server, _, err := m.ask(network, at, time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
		m.lab.t.Errorf("%s asks %s %s: %s %v, want a refusal", m.ip, network, at, server, err)
	}
}

// ignored checks that no answer comes.
func (m *machine) ignored(at string) {
	m.lab.t.Helper()
	if server, _, err := m.ask("tcp", at, patience); !errors.Is(err, hangs) {
		m.lab.t.Errorf("%s asks %s: %s %v, want silence", m.ip, at, server, err)
	}
}

// servers asks until all the wanted have answered, and fails when another does.
func (m *machine) servers(at string, want ...*machine) {
	m.lab.t.Helper()
	missing := map[string]bool{}
	for _, w := range want {
		missing[w.ip] = true
	}
	for try := 0; len(missing) > 0; try++ {
		server, _ := m.who(at)
		known := false
		for _, w := range want {
			known = known || w.ip == server
		}
		if !known || try > 1000 {
			m.lab.t.Fatalf("%s answers at %s; not yet: %v", server, at, missing)
		}
		delete(missing, server)
	}
}

func (l *lab) sync() {
	l.t.Helper()
	if err := l.r.Sync(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) observe(r *Router) *observed {
	l.t.Helper()
	o, err := r.kernel.observe()
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// get asks a health check and returns what it says.
func (m *machine) get(url string) string {
	m.lab.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, at string) (c net.Conn, err error) {
			m.do(func() { c, err = (&net.Dialer{}).DialContext(ctx, network, at) })
			return c, err
		},
	}}
	resp, err := client.Get(url)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Service        struct{ Namespace, Name string }
		LocalEndpoints int
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		m.lab.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s/%s %d", resp.StatusCode, body.Service.Namespace, body.Service.Name, body.LocalEndpoints)
}

// dial opens a flow that stays.
func (m *machine) dial(network, at string) net.Conn {
	m.lab.t.Helper()
	var c net.Conn
	var err error
	m.do(func() { c, err = net.Dial(network+"4", at) })
	if err != nil {
		m.lab.t.Fatal(err)
	}
	m.lab.t.Cleanup(func() { c.Close() })
	return c
}
