package nodes

import (
	"context"
	"errors"
	"time"

	"headway.dev/headway/runtime/session"
)

// Attended is a session that one caller steps (D9): what the goroutines of a stream
// do, one piece at a time, with no wire between. The caller has made sure who the
// node is.
type Attended struct {
	a      *attendance
	ctx    context.Context
	view   *view // nil: the welcome has not been sent
	out    outgoing
	lapses time.Time
}

// outgoing is a stream into a list.
type outgoing struct{ messages []*session.Down }

func (o *outgoing) Send(m *session.Down) error {
	o.messages = append(o.messages, m)
	return nil
}

func (o *outgoing) Recv() (*session.Up, error) {
	return nil, errors.New("a stepped session is given its messages")
}

// Attend begins a session with a node that said hello. It lasts until it is ended,
// ctx ends, or Err says why.
func (n *Nodes) Attend(ctx context.Context, node string, hello *session.Up) (*Attended, error) {
	ctx, end := context.WithCancelCause(ctx)
	s := &Attended{ctx: ctx, lapses: time.Now().Add(n.cfg.TTL)}
	s.a = n.attendance(node, &s.out, end)
	facts, err := s.a.check(hello.GetHello())
	if err == nil {
		err = s.a.begin(ctx, facts)
	}
	if err != nil {
		end(err)
		return nil, err
	}
	return s, nil
}

// Err is why the session is over; nil while it is not.
func (s *Attended) Err() error {
	if s.ctx.Err() == nil && !time.Now().Before(s.lapses) {
		s.a.end(errLapsed)
	}
	return context.Cause(s.ctx)
}

// End ends the session.
func (s *Attended) End(cause error) {
	s.a.end(cause)
	s.a.n.leave(s.a)
}

// Receive takes in one message of the agent.
func (s *Attended) Receive(m *session.Up) error {
	if m.GetRenew() != nil {
		s.lapses = time.Now().Add(s.a.n.cfg.TTL)
	}
	return s.a.accept(m)
}

// Renew does one renewal that the agent asked for, and says whether there was one.
func (s *Attended) Renew() (bool, error) {
	select {
	case m := <-s.a.renew:
		return true, s.a.renewOnce(s.ctx, m)
	default:
		return false, nil
	}
}

// Write writes one batch of what the agent sent, and says whether there was any. No
// other Write may be under way.
func (s *Attended) Write() (bool, error) { return s.a.writeNext(s.ctx) }

// Send gives what is to be sent to the agent now.
func (s *Attended) Send() ([]*session.Down, error) {
	var err error
	if s.view == nil {
		s.view, err = s.a.sendFull()
	} else {
		_, err = s.a.sendNext(s.view)
	}
	out := s.out.messages
	s.out.messages = nil
	return out, err
}
