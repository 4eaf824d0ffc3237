package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Client speaks to the keeper of a directory. It holds no connection, so it
// works on with the next keeper when one takes over. Safe for concurrent use.
type Client struct {
	dir    string
	binary string // starts another one; "" with Dial
}

// Dial returns a client of the keeper that runs in dir, or an error when none does.
func Dial(ctx context.Context, dir string) (*Client, error) {
	c := &Client{dir: dir}
	if _, err := c.Hello(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Identity is what a keeper says of itself.
type Identity struct {
	Version int
	Build   string
	PID     int
}

// Hello asks the keeper who it is.
func (c *Client) Hello(ctx context.Context) (Identity, error) {
	a, err := c.call(ctx, request{Op: opHello})
	return Identity{Version: a.Version, Build: a.Build, PID: a.PID}, err
}

// Open makes the container's FIFOs and begins to read them. When it returns, a
// container may be started on them, whatever becomes of the caller.
func (c *Client) Open(ctx context.Context, container Container) error {
	_, err := c.call(ctx, request{Op: opOpen, Container: &container})
	return err
}

// Close ends a container's output: what is left in the FIFOs goes to the log,
// the FIFOs go. A container that is not open is closed already.
func (c *Client) Close(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{Op: opClose, ID: id})
	return err
}

// List returns the ids of the open containers, sorted.
func (c *Client) List(ctx context.Context) ([]string, error) {
	a, err := c.call(ctx, request{Op: opList})
	return a.IDs, err
}

// handoverPatience is how long a call waits for the next keeper while one takes
// over or is restarted.
const handoverPatience = 5 * time.Second

// call sends one request and waits for its answer.
func (c *Client) call(ctx context.Context, req request) (reply, error) {
	return c.converse(ctx, req, func(*net.UnixConn, *bufio.Reader) error { return nil })
}

// converse is call with more to say after an answer that is no error; it begins
// anew with the next keeper.
func (c *Client) converse(ctx context.Context, req request, then func(*net.UnixConn, *bufio.Reader) error) (reply, error) {
	req.Version = Protocol
	deadline := time.Now().Add(handoverPatience)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		a, err := c.once(ctx, req, then)
		again := err != nil && gone(err) || a.Error == errRetired.Error()
		if !again || req.Op == opHello || time.Now().After(deadline) {
			if err == nil && a.Error != "" {
				err = errors.New(a.Error)
			}
			if err != nil {
				err = fmt.Errorf("keeper: %s: %w", req.Op, err)
			}
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, fmt.Errorf("keeper: %s: %w", req.Op, ctx.Err())
		case <-time.After(wait):
		}
	}
}

func (c *Client) once(ctx context.Context, req request, then func(*net.UnixConn, *bufio.Reader) error) (reply, error) {
	conn, err := dial(ctx, c.dir)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := writeMessage(conn, req); err != nil {
		return reply{}, err
	}
	var a reply
	size := 4 << 10
	if req.Op == opList {
		size = maxReply
	}
	r := bufio.NewReaderSize(conn, size)
	err = readMessage(r, &a)
	if err == nil && a.Error == "" {
		err = then(conn, r)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return reply{}, err
	}
	return a, nil
}

// Keep starts the keeper again whenever it ends, until ctx ends. A connection
// tells: nothing is polled. It is for a client that Start returned.
func (c *Client) Keep(ctx context.Context) error {
	for {
		err := c.watch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			continue // it went away after it had answered: look who answers now
		}
		if !gone(err) {
			return err
		}
		if c.binary == "" {
			return fmt.Errorf("keeper ended: %w", err)
		}
		if err := c.start(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// watch returns nil when a keeper that answered went away, an error when none
// answered.
func (c *Client) watch(ctx context.Context) error {
	conn, err := dial(ctx, c.dir)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := writeMessage(conn, request{Version: Protocol, Op: opWatch}); err != nil {
		return err
	}
	r := bufio.NewReaderSize(conn, 4<<10)
	var a reply
	if err := readMessage(r, &a); err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	_, err = r.ReadByte()
	if err != nil && !gone(err) && ctx.Err() == nil {
		return err
	}
	return nil
}

// Stop ends the keeper once it holds no output any more. No containers may be
// left: the output of those that are is lost.
func (c *Client) Stop(ctx context.Context) error {
	id, err := c.Hello(ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(id.PID, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("stop keeper: %w", err)
	}
	return nil
}
