package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"headway.dev/headway/runtime/agent"
)

// Dial is agent.Runtime's.
func (r *Runtime) Dial(ctx context.Context, req agent.DialRequest) (net.Conn, error) {
	record, ready, _ := r.recorded(req.UID)
	if !ready {
		return nil, fmt.Errorf("connect to pod %s: it does not run", req.UID)
	}
	own := !slices.Contains(record.Shared, "net")
	var conn net.Conn
	var err error
	switch {
	case own && req.Inside:
		err = inNetwork(r.pod(req.UID).ns("net"), func() error {
			conn, err = dialLoopback(ctx, req.Port)
			return err
		})
	case !own: // it listens on the node
		conn, err = dialLoopback(ctx, req.Port)
	case len(record.IPs) == 0:
		err = errors.New("it has no address")
	default:
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(record.IPs[0], strconv.Itoa(int(req.Port))))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to pod %s/%s: %w", record.Namespace, record.Name, err)
	}
	return conn, nil
}

// dialLoopback tries IPv4 first, as Kubernetes does, and tells of that.
func dialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err == nil {
		return conn, nil
	}
	if conn, other := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(int(port)))); other == nil {
		return conn, nil
	}
	return nil, err
}

// inNetwork runs f in a network namespace. A socket stays in the one that it was made
// in; Go makes those of an address that needs no look-up on the thread that asks.
func inNetwork(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open its network: %w", err)
	}
	defer ns.Close()
	return onOwnThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter its network: %w", err)
		}
		return f()
	})
}
