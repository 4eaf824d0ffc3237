package loopback_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"headway.dev/headway/internal/loopback"
)

func TestReserved(t *testing.T) {
	at := loopback.Reserve(t, 1)
	for range 2 {
		if _, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens: %v", err)
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := net.Listen("tcp", at); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("two listen: %v", err)
		}
		client, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		// The server's end closes first, and its address lingers.
		if err := errors.Join(server.Close(), client.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPortsInARow(t *testing.T) {
	first := netip.MustParseAddrPort(loopback.Reserve(t, 3))
	for i := range uint16(3) {
		l, err := net.Listen("tcp", netip.AddrPortFrom(first.Addr(), first.Port()+i).String())
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// TestNobodyElseGetsIt opens as many ports as the kernel gives, and connects from as
// many.
func TestNobodyElseGetsIt(t *testing.T) {
	at := loopback.Reserve(t, 1)
	var kept []net.Listener
	defer func() {
		for _, l := range kept {
			l.Close()
		}
	}()
	for range 500 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, l)
		if l.Addr().String() == at {
			t.Fatalf("%s was given a second time", at)
		}
	}
	if l, err := net.Listen("tcp", at); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
}
