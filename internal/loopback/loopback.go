// Package loopback gives tests addresses that are theirs until they end.
//
// A test that opens port 0, closes it and passes the number on has lost it: the
// kernel may give it to the next connection of whatever program, and then the
// server that the test starts there cannot listen, or a stranger answers where the
// test wants nobody.
package loopback

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
)

// Reserve returns an address, host and port, that nobody but who is told of it gets
// until the test ends. Connections to it are refused as long as nobody listens
// there; one may listen, stop, and listen again. So it is with the ports behind it,
// as many as there are to be in a row.
func Reserve(t testing.TB, ports int) string {
	t.Helper()
	for range 1000 {
		first, err := bound(t, 0)
		if err != nil {
			t.Fatal(err)
		}
		for next := first + 1; next < first+ports && err == nil; next++ {
			_, err = bound(t, next)
		}
		if err == nil {
			return netip.AddrPortFrom(host(), uint16(first)).String()
		}
		if !errors.Is(err, syscall.EADDRINUSE) && first+ports <= 1<<16 {
			t.Fatal(err)
		}
	}
	t.Fatalf("there are no %d free ports in a row", ports)
	return ""
}

func host() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// bound holds a port, any if it is 0, until the test ends.
//
// A socket that is bound has the port, and refuses as long as it does not listen.
// With SO_REUSEADDR on both, as Go sets it, another may be bound to the same port by
// its number, and listen; the kernel, asked for any port, passes it by.
func bound(t testing.TB, port int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: host().As4()}); err != nil {
		return 0, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	if in, ok := name.(*syscall.SockaddrInet4); ok {
		return in.Port, nil
	}
	return 0, errors.New("the address of a socket is not what it was bound to")
}
