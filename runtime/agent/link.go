package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"headway.dev/headway/runtime/session"
)

// Conn is a connection to a server; *grpc.ClientConn is one.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

const (
	redialFirst = 50 * time.Millisecond
	redialMost  = 10 * time.Second
	greeting    = 20 * time.Second // from dial to welcome
	// Margin is what the agent takes off the TTL that it was granted: the clocks
	// of two machines may run apart by a thousandth, and a renewal is on the way
	// for a while.
	Margin = 2 * time.Second
)

// connect holds a session, and opens the next one when it ends.
func (a *Agent) connect(ctx context.Context) {
	b, told := backoff{}, false
	for ctx.Err() == nil {
		welcomed, err := a.attend(ctx)
		if ctx.Err() != nil {
			return
		}
		if welcomed {
			b, told = backoff{}, false
		}
		if !told || welcomed {
			a.log.Warn("no session with a server; pods run on, trying again", "error", err)
			told = true
		}
		b = b.next(time.Time{}, redialFirst, redialMost)
		timer := time.NewTimer(b.Delay/2 + rand.N(b.Delay/2+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// attend holds one session until it breaks.
func (a *Agent) attend(ctx context.Context) (welcomed bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	slow := time.AfterFunc(greeting, func() { end(errors.New("the server did not answer in time")) })
	defer slow.Stop()
	conn, err := a.cfg.Dial(ctx)
	if err != nil {
		return false, fmt.Errorf("connect to a server: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := session.NewNodeClient(conn)
	stream, err := client.Session(ctx, grpc.MaxCallRecvMsgSize(session.MaxMessage))
	if err != nil {
		return false, fmt.Errorf("open a session: %w", err)
	}
	asked := a.cfg.Boot()
	hello, err := a.Hello()
	if err != nil {
		return false, err
	}
	if err := stream.Send(hello); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv has the cause
		return false, fmt.Errorf("greet the server: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return false, broken(ctx, fmt.Errorf("wait for the server's welcome: %w", err))
	}
	welcome := first.GetWelcome()
	if welcome == nil {
		return false, errors.New("the server did not begin with a welcome")
	}
	if v := welcome.Version; v != session.Version && v != session.Version+1 {
		return false, fmt.Errorf("the server speaks version %d of the protocol, this agent %d", v, session.Version)
	}
	if !slow.Stop() {
		return false, context.Cause(ctx)
	}
	a.log.Info("session with a server", "epoch", welcome.Epoch)
	ttl := time.Duration(welcome.TtlNanos)
	a.mu.Lock()
	a.renewed(asked, ttl)
	a.mu.Unlock()
	a.Begin()

	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil) // before the wait
	s := &link{agent: a, client: client, stream: stream, end: end, wg: &wg, answers: make(chan time.Duration, 1), logs: make(chan struct{}, session.MaxStreams)}
	wg.Go(func() { end(s.listen(ctx)) })
	return true, broken(ctx, s.speak(ctx, ttl))
}

// broken prefers why a session was ended over what that looked like.
func broken(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Hello is the first message of a session.
func (a *Agent) Hello() (*session.Up, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	raw, err := a.node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the node: %w", err)
	}
	a.out.node = nil
	return &session.Up{Message: &session.Up_Hello{Hello: &session.Hello{Version: session.Version, Node: raw, Instance: a.instance}}}, nil
}

// renewed moves the end of the agent's right: the TTL counts from when it was
// asked for, on a clock that runs while the machine sleeps (D4). Agent.mu is held.
func (a *Agent) renewed(asked, ttl time.Duration) {
	a.right = max(a.right, asked+ttl-Margin)
}

// Right is the boot time until which the node's lease is surely held; zero
// before the first session.
func (a *Agent) Right() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.right
}

// link is one session that was welcomed.
type link struct {
	agent   *Agent
	client  session.NodeClient
	stream  grpc.BidiStreamingClient[session.Up, session.Down]
	end     context.CancelCauseFunc
	wg      *sync.WaitGroup
	answers chan time.Duration // the TTL of each renewal that was answered
	logs    chan struct{}      // one token per log that is being sent
}

// listen takes in what the server sends.
func (s *link) listen(ctx context.Context) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("session ended: %w", err)
		}
		switch what := m.Message.(type) {
		case *session.Down_Renewed:
			if err := s.agent.Receive(m); err != nil {
				return err
			}
			select {
			case s.answers <- time.Duration(what.Renewed.TtlNanos):
			default:
			}
		case *session.Down_Open:
			s.open(ctx, what.Open)
		default:
			if err := s.agent.Receive(m); err != nil {
				return err
			}
		}
	}
}

// speak sends what the outbox holds, and renews the node's lease four times per
// TTL. A renewal that is not answered in half a TTL ends the session.
func (s *link) speak(ctx context.Context, ttl time.Duration) error {
	renew := time.NewTimer(ttl / 4)
	defer renew.Stop()
	lazy := time.NewTimer(time.Hour)
	defer lazy.Stop()
	unanswered := 0
	for {
		wake, err := s.empty()
		if err != nil {
			return err
		}
		if !wake.IsZero() {
			lazy.Reset(max(wake.Sub(s.agent.cfg.Now()), 0))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.agent.send:
		case <-lazy.C:
		case ttl = <-s.answers:
			unanswered = 0
		case <-renew.C:
			if unanswered >= 2 {
				return errors.New("the server does not answer renewals")
			}
			unanswered++
			sent := int64(s.agent.cfg.Boot())
			if err := s.stream.Send(&session.Up{Message: &session.Up_Renew{Renew: &session.Renew{Sent: sent}}}); err != nil {
				return fmt.Errorf("renew the node's lease: %w", err)
			}
			renew.Reset(ttl / 4)
		}
	}
}

// empty sends everything that the outbox gives now.
func (s *link) empty() (wake time.Time, err error) {
	for {
		m, wake, err := s.agent.Take()
		if err != nil {
			return wake, err
		}
		if m == nil {
			return wake, nil
		}
		if err := s.stream.Send(m); err != nil {
			return wake, fmt.Errorf("send to the server: %w", err)
		}
	}
}
