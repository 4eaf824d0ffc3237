package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const socketName = "keeper.sock"

// maxSocketPath is what fits into a socket address of Linux.
const maxSocketPath = 107

// withSocket calls f with a path of the socket that is short enough: a long one
// goes through a descriptor of its directory.
func withSocket(dir string, f func(path string) error) error {
	path := filepath.Join(dir, socketName)
	if len(path) <= maxSocketPath {
		return f(path)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f("/proc/self/fd/"+strconv.Itoa(int(d.Fd()))+"/"+socketName), d.Close())
}

// listen makes the socket anew. The caller holds the lock, so one that is there
// belongs to nobody.
func listen(dir string) (*net.UnixListener, error) {
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	var l *net.UnixListener
	err := withSocket(dir, func(path string) error {
		var err error
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on keeper socket: %w", err)
	}
	// The next keeper removes the path: removing it at our end could hit its own.
	l.SetUnlinkOnClose(false)
	// The directory is 0700; this is for one that someone opened up.
	if err := os.Chmod(filepath.Join(dir, socketName), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect keeper socket: %w", err), l.Close())
	}
	return l, nil
}

func dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	var conn *net.UnixConn
	err := withSocket(dir, func(path string) error {
		any, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		conn = any.(*net.UnixConn)
		return nil
	})
	return conn, err
}

// absent reports whether an error of dial means that no keeper listens.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// gone reports whether a call failed because the keeper went away before or
// while it answered; every operation may be asked again.
func gone(err error) bool {
	return absent(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
