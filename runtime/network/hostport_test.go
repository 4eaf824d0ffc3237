package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
)

// within runs f in a namespace: sockets that it makes belong there.
func within(t testing.TB, ns string, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	there, err := netns.GetFromName(filepath.Base(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	err = f()
	if err := netns.Set(home); err != nil {
		panic(err) // the thread cannot be used any more
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tellAsker serves a port in a namespace, with the address of whoever asks.
func tellAsker(t testing.TB, ns string, port int) {
	t.Helper()
	within(t, ns, func() error {
		l, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
					_, _ = io.WriteString(c, host)
					c.Close()
				}
			}
		}()
		return nil
	})
}

func askWho(at string) (string, error) {
	c, err := net.DialTimeout("tcp4", at, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	out, err := io.ReadAll(c)
	return string(out), err
}

// A pod with the host port 53 does not take what is asked at the node's link-local
// address for the cluster's names; nor can it name that address.
func TestHostPortsAreNotLinkLocal(t *testing.T) {
	n, _ := testNetwork(t, "hwtestl")
	a, b := testNS(t, "hwtestl1"), testNS(t, "hwtestl2")
	const names = "169.254.199.7"
	run(t, "ip", "link", "add", "hwtestl9", "type", "bridge")
	t.Cleanup(func() { run(t, "ip", "link", "delete", "hwtestl9") })
	run(t, "ip", "address", "add", names+"/32", "dev", "hwtestl9")
	run(t, "ip", "link", "set", "hwtestl9", "up")
	l, err := net.Listen("tcp4", names+":28116")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			_, _ = io.WriteString(c, "the node")
			c.Close()
		}
	}()
	if _, err := n.Add(t.Context(), Pod{ID: "a", NetNS: a, Ports: []Port{{HostPort: 28116, ContainerPort: 80, Protocol: "tcp"}}}); err != nil {
		t.Fatal(err)
	}
	tellAsker(t, a, 80)
	ask := func() error {
		got, err := askWho(names + ":28116")
		if err == nil && got != "the node" {
			err = fmt.Errorf("the pod answered at %s", names)
		}
		return err
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	if _, err := n.Add(t.Context(), Pod{ID: "b", NetNS: b}); err != nil {
		t.Fatal(err)
	}
	within(t, b, ask)
	named := Pod{ID: "c", NetNS: testNS(t, "hwtestl3"), Ports: []Port{{HostPort: 53, ContainerPort: 80, Protocol: "tcp", HostIP: netip.MustParseAddr(names)}}}
	if _, err := n.Add(t.Context(), named); err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("a host port at %s: %v", names, err)
	}
}

// A host port answers the node itself, a neighbour (whose address arrives) and
// its own pod, and again after somebody flushed the rules.
func TestHostPortFromEverywhere(t *testing.T) {
	n, _ := testNetwork(t, "hwtestk")
	a, b := testNS(t, "hwtestk1"), testNS(t, "hwtestk2")
	ipA, err := n.Add(t.Context(), Pod{ID: "a", NetNS: a, Ports: []Port{{HostPort: 28115, ContainerPort: 80, Protocol: "tcp"}}})
	if err != nil {
		t.Fatal(err)
	}
	ipB, err := n.Add(t.Context(), Pod{ID: "b", NetNS: b})
	if err != nil {
		t.Fatal(err)
	}
	tellAsker(t, a, 80)
	gateway := n.built.bridges["hwtestk"].conf.gateway()
	ask := func(at string, want netip.Addr) func() error {
		return func() error {
			got, err := askWho(at)
			if err == nil && got != want.String() {
				err = fmt.Errorf("asked at %s, the pod sees %s and not %s", at, got, want)
			}
			return err
		}
	}
	everywhere := func() {
		t.Helper()
		at := gateway.String() + ":28115"
		for _, err := range []error{ask("127.0.0.1:28115", gateway)(), ask(at, gateway)()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		within(t, a, ask(at, gateway))
		within(t, b, ask(at, ipB[0]))
	}
	everywhere()
	if out := run(t, "ip", "-d", "link", "show", "hwtestk"); !strings.Contains(out, "nf_call_iptables 1") {
		t.Errorf("answers between pods are not tracked: %s", out)
	}
	if err := n.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{
		"delete table ip headway-hwtestk", "flush chain ip headway-hwtestk hostports", "flush map ip headway-hwtestk ports",
	} {
		run(t, "nft", damage)
		if err := n.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		everywhere()
	}
	before := run(t, "nft", "list", "table", "ip", "headway-hwtestk")
	handle := run(t, "nft", "-a", "list", "table", "ip", "headway-hwtestk")
	if err := n.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := run(t, "nft", "-a", "list", "table", "ip", "headway-hwtestk"); after != handle {
		t.Errorf("made again without a reason:\n%s\n%s", before, after)
	}
	if !strings.Contains(before, ipA[0].String()) {
		t.Error("the pod's address is not in the table")
	}
}

// Where answers between two pods cannot be tracked, a neighbour gets the node's
// address, so that they come back by the node.
func TestUntrackedBridge(t *testing.T) {
	n, _ := testNetwork(t, "hwtestu")
	a, b := testNS(t, "hwtestu1"), testNS(t, "hwtestu2")
	if _, err := n.Add(t.Context(), Pod{ID: "a", NetNS: a, Ports: []Port{{HostPort: 28116, ContainerPort: 80, Protocol: "tcp"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Add(t.Context(), Pod{ID: "b", NetNS: b}); err != nil {
		t.Fatal(err)
	}
	run(t, "ip", "link", "set", "hwtestu", "type", "bridge", "nf_call_iptables", "0")
	conf := n.built.bridges["hwtestu"].conf
	if err := n.built.ports.prepare(t.Context(), conf, false); err != nil {
		t.Fatal(err)
	}
	tellAsker(t, a, 80)
	within(t, b, func() error {
		got, err := askWho(conf.gateway().String() + ":28116")
		if err == nil && got != conf.gateway().String() {
			err = fmt.Errorf("the pod sees %s", got)
		}
		return err
	})
}
