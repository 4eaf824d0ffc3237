package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// The agent's listening sockets: the keeper has them a second time, so that what
// arrives while no agent runs waits in the kernel for the next one, instead of being
// refused. It neither reads them nor knows what they are.

// mostSockets can be held.
const mostSockets = 16

// Hold gives the keeper these sockets instead of those it holds. The caller's own
// stay open.
func (c *Client) Hold(ctx context.Context, sockets []*os.File) error {
	if len(sockets) > mostSockets {
		return fmt.Errorf("keeper: %d sockets to hold, at most %d can be", len(sockets), mostSockets)
	}
	_, err := c.converse(ctx, request{Op: opHold}, func(conn *net.UnixConn, r *bufio.Reader) error {
		if err := sendFiles(conn, sockets); err != nil {
			return err
		}
		var a reply
		if err := readMessage(r, &a); err != nil {
			return err
		}
		if a.Error != "" {
			return errors.New(a.Error)
		}
		return nil
	})
	return err
}

// Held returns the sockets that the keeper holds, the caller's own now as well;
// none when it holds none.
func (c *Client) Held(ctx context.Context) ([]*os.File, error) {
	var files []*os.File
	_, err := c.converse(ctx, request{Op: opHeld}, func(conn *net.UnixConn, _ *bufio.Reader) (err error) {
		// The byte says that nothing of ours reads ahead any more, which would lose them.
		if _, err := conn.Write([]byte{'\n'}); err != nil {
			return err
		}
		files, err = receiveFiles(conn)
		return err
	})
	return files, err
}

// passSockets is what follows the answer to hold and held.
func (s *server) passSockets(conn *net.UnixConn, r *bufio.Reader, op string) error {
	switch op {
	case opHold:
		if err := s.hold(conn); err != nil {
			return err
		}
		return writeMessage(conn, s.answer(request{Version: Protocol, Op: opHello}))
	case opHeld:
		return s.give(conn, r)
	}
	return nil
}

// hold is the keeper's side of Hold, after the first answer.
func (s *server) hold(conn *net.UnixConn) error {
	files, err := receiveFiles(conn)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.retired {
		s.mu.Unlock()
		return errors.Join(errRetired, closeAll(files)) // the next keeper is asked again
	}
	old := s.held
	s.held = files
	s.mu.Unlock()
	return closeAll(old)
}

// give is the keeper's side of Held, after the first answer.
func (s *server) give(conn *net.UnixConn, r *bufio.Reader) error {
	if _, err := r.ReadByte(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sendFiles(conn, s.held)
}

// inherit takes over what the keeper holds that is asked to retire. One of a
// version that holds nothing is fine.
func (s *server) inherit(ctx context.Context, old *Client) {
	files, err := old.Held(ctx)
	if err != nil {
		s.cfg.Log.Warn("sockets of the running keeper not taken over: questions to this node may be refused at the agent's next restart", "err", err)
		return
	}
	s.held = files
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// sendFiles sends one byte with the descriptors beside it.
func sendFiles(conn *net.UnixConn, files []*os.File) error {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return fmt.Errorf("send a socket: %w", err)
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return fmt.Errorf("send a socket: %w", err)
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte{'\n'}, rights, nil); err != nil {
		return fmt.Errorf("send sockets: %w", err)
	}
	return nil
}

// receiveFiles receives what sendFiles sent.
func receiveFiles(conn *net.UnixConn) ([]*os.File, error) {
	oob := make([]byte, syscall.CmsgSpace(4*mostSockets))
	n, size, flags, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, fmt.Errorf("receive sockets: %w", err)
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:size])
	if err != nil {
		return nil, fmt.Errorf("receive sockets: %w", err)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receive sockets: %w", err), closeAll(files))
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "held socket "+strconv.Itoa(len(files))))
		}
	}
	if n != 1 || flags&syscall.MSG_CTRUNC != 0 {
		return nil, errors.Join(errors.New("receive sockets: the message is cut short"), closeAll(files))
	}
	return files, nil
}
