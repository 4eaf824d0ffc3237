package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

const (
	header          = 12   // bytes of a message without a question
	largestQuestion = 4096 // padded ones stay below it
)

// serve answers until ctx ends or a socket fails, and closes them.
func (s *Server) serve(ctx context.Context, in sockets) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range max(2, runtime.NumCPU()) {
		wg.Go(func() { cancel(s.packets(ctx, in.udp, &wg)) })
	}
	wg.Go(func() { cancel(s.streams(ctx, in.tcp, &wg)) })
	s.up.Store(true)
	<-ctx.Done()
	s.up.Store(false)
	err := errors.Join(in.udp.Close(), in.tcp.Close())
	wg.Wait()
	return errors.Join(context.Cause(ctx), err)
}

// packets answers what comes by UDP. Names of the cluster are answered here and
// now; what has to wait for a resolver waits elsewhere.
func (s *Server) packets(ctx context.Context, conn *net.UDPConn, wg *sync.WaitGroup) error {
	buf := make([]byte, largestQuestion)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return fmt.Errorf("receive a question: %w", err)
		}
		who := from.Addr().Unmap()
		if s.stranger(who) {
			s.metrics.drop(dropStranger)
			continue
		}
		o := s.handle(buf[:n], false)
		if o.later == nil {
			s.send(ctx, conn, o.out, from)
			continue
		}
		if !s.waiting.take(who) {
			s.metrics.drop(dropBusy) // it asks again
			continue
		}
		wg.Go(func() {
			defer s.waiting.give(who)
			s.send(ctx, conn, o.later(ctx), from)
		})
	}
}

// send sends an answer; one that gets lost is asked for again.
func (s *Server) send(ctx context.Context, conn *net.UDPConn, out []byte, to netip.AddrPort) {
	if out == nil {
		return
	}
	if _, err := conn.WriteToUDPAddrPort(out, to); err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("answer not sent", "to", to, "error", err)
	}
}

// streams answers what comes by TCP.
func (s *Server) streams(ctx context.Context, listener *net.TCPListener, wg *sync.WaitGroup) error {
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		who := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		switch {
		case s.stranger(who):
			s.metrics.drop(dropStranger)
		case !s.connections.take(who):
			s.metrics.drop(dropBusy)
		default:
			wg.Go(func() {
				defer s.connections.give(who)
				s.stream(ctx, conn)
			})
			continue
		}
		s.hangUp(conn)
	}
}

// stream answers the questions of one connection, one after another.
func (s *Server) stream(ctx context.Context, conn *net.TCPConn) {
	defer s.hangUp(conn)
	stop := context.AfterFunc(ctx, func() { s.hangUp(conn) })
	defer stop()
	for {
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return // closed: we end
		}
		packet, err := readFramed(conn)
		if err != nil {
			return // it has gone, or says nothing
		}
		o := s.handle(packet, true)
		if o.later != nil {
			o.out = o.later(ctx)
		}
		if o.out == nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(o.out)), uint16(len(o.out)))
		if _, err := conn.Write(append(framed, o.out...)); err != nil {
			return // it has gone
		}
	}
}

// readFramed reads a message with its length before it.
func readFramed(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n < header || n > largestQuestion {
		return nil, fmt.Errorf("a question of %d bytes", n)
	}
	packet := make([]byte, n)
	_, err := io.ReadFull(r, packet)
	return packet, err
}

// hangUp closes a connection, perhaps once more.
func (s *Server) hangUp(conn net.Conn) {
	if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		s.cfg.Log.Debug("connection not closed", "error", err)
	}
}
