package dns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
)

func TestAddressStays(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state", "dns")
	one, err := Address(file, "headway-1")
	if err != nil || !one.IsLinkLocalUnicast() || reserved(one) {
		t.Fatalf("%v, %v", one, err)
	}
	if again, err := Address(file, "another name"); err != nil || again != one {
		t.Errorf("%v, %v, was %v", again, err, one)
	}
	other, err := Address(filepath.Join(dir, "other"), "headway-2")
	if err != nil || other == one {
		t.Errorf("%v, %v", other, err)
	}
	if err := os.WriteFile(file, []byte("10.0.0.1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Address(file, "headway-1"); err == nil || !strings.Contains(err.Error(), "no IPv4 address of 169.254.0.0/16") {
		t.Errorf("another's address: %v", err)
	}
}

func TestAddressIsFree(t *testing.T) {
	taken := map[netip.Addr]bool{}
	for range 50 {
		addr, err := choose("headway", taken)
		if err != nil || taken[addr] || reserved(addr) || !addr.IsLinkLocalUnicast() {
			t.Fatalf("%v, %v", addr, err)
		}
		taken[addr] = true
	}
	for i := range 1 << 16 {
		taken[netip.AddrFrom4([4]byte{169, 254, byte(i >> 8), byte(i)})] = true
	}
	if _, err := choose("headway", taken); err == nil {
		t.Error("none is free: no error")
	}
}

// lines is a log that a test waits for.
type lines struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	added chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
	return l.buf.Write(p)
}

func (l *lines) wait(text string) {
	for {
		l.mu.Lock()
		got := l.buf.String()
		l.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		<-l.added
	}
}

// The interface with its address, in a network of the test's own: made, put back
// when it is taken away, for two instances beside each other; an address that is
// taken is said and tried again; nothing is left after RemoveInterface.
func TestInterface(t *testing.T) {
	const inside = "HEADWAY_DNS_NETNS"
	if os.Getenv(inside) == "" {
		need(t, true, "unshare", "ip")
		cmd := exec.Command("unshare", "-n", os.Args[0], "-test.run=^TestInterface$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestInterface")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var addrs []netip.Addr
	log := &lines{added: make(chan struct{}, 1)}
	blocker, err := net.ListenPacket("udp4", "0.0.0.0:53")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		addr, err := Address(filepath.Join(t.TempDir(), "dns"), fmt.Sprint("instance-", i))
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, addr)
		// The node's file names both, so each would ask the other.
		if err := os.WriteFile(conf, fmt.Appendf(nil, "nameserver %s\nnameserver %s\n", addrs[0], addr), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{
			Domain: "cluster.local", Address: netip.AddrPortFrom(addr, 0), Interface: fmt.Sprint("hwd", i), ResolvConf: conf,
			Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.period = time.Millisecond
		shop(s.names)
		s.Synced()
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, addr := range addrs {
		log.wait("listen udp " + addr.String() + ":53: bind: address already in use: a DNS server on this machine listens on every address; let it listen on its own ones only")
	}
	if err := blocker.Close(); err != nil {
		t.Fatal(err)
	}
	ask := func(addr netip.Addr) {
		t.Helper()
		for {
			// Each try is answered or refused at once: there is nothing in between.
			r, _, err := new(dns.Client).Exchange(questionFor("web.shop.svc.cluster.local.", dns.TypeA), netip.AddrPortFrom(addr, 53).String())
			if err == nil {
				if len(r.Answer) != 1 {
					t.Error(r)
				}
				return
			}
		}
	}
	for _, addr := range addrs {
		ask(addr)
	}
	// Anyone may take it away; it comes back, and answers as before.
	if err := RemoveInterface("hwd0"); err != nil {
		t.Fatal(err)
	}
	ask(addrs[0])
	// One of them finds out; then the other is asked by nobody any more.
	log.wait("a resolver of the node asks this cluster's DNS, which would ask it: it is left out")
	link, err := netlink.LinkByName("hwd1")
	if err != nil {
		t.Fatal(err)
	}
	stale := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(169, 254, 250, 250), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(link, stale); err != nil {
		t.Fatal(err)
	}
	for i, addr := range addrs {
		if err := EnsureInterface(fmt.Sprint("hwd", i), addr); err != nil {
			t.Fatal(err)
		}
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil || len(have) != 1 || have[0].IP.String() != addrs[1].String() {
		t.Errorf("%v, %v", have, err)
	}
	cancel()
	running.Wait()
	for _, name := range []string{"hwd0", "hwd1", "hwd0"} {
		if err := RemoveInterface(name); err != nil {
			t.Error(err)
		}
	}
	left, err := netlink.LinkList()
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := EnsureInterface("lo", addrs[0]); err == nil || !strings.Contains(err.Error(), "exists and is no dummy") {
		t.Errorf("an interface of somebody else: %v", err)
	}
}
