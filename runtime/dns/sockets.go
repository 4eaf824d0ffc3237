package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// Keeper has our sockets a second time, beyond our end, so that questions that come
// while no agent runs wait for the next one instead of being refused, which glibc
// takes for an answer. The node's keeper is one.
type Keeper interface {
	// Hold keeps these sockets instead of those it has.
	Hold(ctx context.Context, sockets []*os.File) error
	// Held returns those it has, the caller's own now as well.
	Held(ctx context.Context) ([]*os.File, error)
}

// sockets is where questions come in.
type sockets struct {
	udp *net.UDPConn
	tcp *net.TCPListener
}

func open(ctx context.Context, at netip.AddrPort) (sockets, error) {
	var lc net.ListenConfig
	packets, err := lc.ListenPacket(ctx, "udp", at.String())
	if err != nil {
		return sockets{}, fmt.Errorf("listen for DNS: %w", err)
	}
	udp := packets.(*net.UDPConn)
	// What waits while this process is busy; the kernel gives as much of it as it may.
	if err := udp.SetReadBuffer(1 << 20); err != nil {
		return sockets{}, errors.Join(fmt.Errorf("size the queue for DNS: %w", err), udp.Close())
	}
	// With port 0 (tests) both get the same.
	at = netip.AddrPortFrom(at.Addr(), uint16(udp.LocalAddr().(*net.UDPAddr).Port))
	streams, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return sockets{}, errors.Join(fmt.Errorf("listen for DNS: %w", err), udp.Close())
	}
	return sockets{udp, streams.(*net.TCPListener)}, nil
}

// obtain returns the sockets that an earlier process left with the keeper, else new
// ones, which the keeper then has, too. Without the keeper we answer all the same.
func (s *Server) obtain(ctx context.Context) (sockets, error) {
	if s.cfg.Keeper == nil {
		return open(ctx, s.cfg.Address)
	}
	in, ok, err := s.inherited(ctx)
	if err != nil {
		s.cfg.Log.Warn("sockets of an earlier agent not taken over", "error", err)
	}
	if ok {
		return in, nil
	}
	in, err = open(ctx, s.cfg.Address)
	if err != nil {
		return sockets{}, err
	}
	if err := s.leave(ctx, in); err != nil {
		s.cfg.Log.Warn("sockets not left with the keeper: questions are refused while the agent restarts", "error", err)
	}
	return in, nil
}

// inherited are the sockets that the keeper has, if they are those we need. Others
// it is told to let go of, since they may be in the way of ours.
func (s *Server) inherited(ctx context.Context) (in sockets, ok bool, err error) {
	files, err := s.cfg.Keeper.Held(ctx)
	if err != nil || len(files) == 0 {
		return sockets{}, false, err
	}
	var errs []error
	for _, f := range files {
		if in.udp == nil {
			if conn, err := net.FilePacketConn(f); err == nil {
				in.udp, _ = conn.(*net.UDPConn)
				errs = append(errs, f.Close())
				continue
			}
		}
		if listener, err := net.FileListener(f); err == nil && in.tcp == nil {
			in.tcp, _ = listener.(*net.TCPListener)
		}
		errs = append(errs, f.Close())
	}
	if in.udp != nil && in.tcp != nil && s.ours(in.udp.LocalAddr()) && s.ours(in.tcp.Addr()) {
		return in, true, errors.Join(errs...)
	}
	if in.udp != nil {
		errs = append(errs, in.udp.Close())
	}
	if in.tcp != nil {
		errs = append(errs, in.tcp.Close())
	}
	return sockets{}, false, errors.Join(append(errs, s.cfg.Keeper.Hold(ctx, nil))...)
}

func (s *Server) ours(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at == s.cfg.Address
}

// leave gives the keeper the sockets.
func (s *Server) leave(ctx context.Context, in sockets) error {
	udp, err := in.udp.File()
	if err != nil {
		return fmt.Errorf("copy a socket: %w", err)
	}
	defer udp.Close()
	tcp, err := in.tcp.File()
	if err != nil {
		return fmt.Errorf("copy a socket: %w", err)
	}
	defer tcp.Close()
	return s.cfg.Keeper.Hold(ctx, []*os.File{udp, tcp})
}
