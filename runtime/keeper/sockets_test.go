package keeper

import (
	"net"
	"os"
	"testing"
)

// A socket that its maker has closed takes connections on while the keeper holds it,
// and the next one who asks for it gets them; also after a takeover.
func TestSocketsAreHeld(t *testing.T) {
	dir := t.TempDir()
	k := start(t, dir)
	if files, err := k.Held(t.Context()); err != nil || len(files) != 0 {
		t.Fatalf("%v, %v", files, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is held instead of the first
		if err := k.Hold(t.Context(), []*os.File{file}); err != nil {
			t.Fatal(err)
		}
	}
	address := listener.Addr().String()
	for _, c := range []interface{ Close() error }{file, listener} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	waits, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("the socket is not held: %v", err)
	}
	defer waits.Close()
	other, err := Start(t.Context(), anotherBuild(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // asking does not take them away
		files, err := other.Held(t.Context())
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		again, err := net.FileListener(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if again.Addr().String() != address {
			t.Errorf("%s is held, not %s", again.Addr(), address)
		}
		if err := closeAll(files); err != nil {
			t.Fatal(err)
		}
		listener = again
		t.Cleanup(func() { _ = again.Close() })
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if conn.RemoteAddr().String() != waits.LocalAddr().String() {
		t.Errorf("%s is connected, not %s", conn.RemoteAddr(), waits.LocalAddr())
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Hold(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if files, err := other.Held(t.Context()); err != nil || len(files) != 0 {
		t.Errorf("let go: %v, %v", files, err)
	}
	if err := other.Hold(t.Context(), make([]*os.File, mostSockets+1)); err == nil {
		t.Error("more than can be held: no error")
	}
}
