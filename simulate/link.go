package simulate

import (
	"context"
	"errors"
	"time"

	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/nodes"
)

const (
	redialFirst = 100 * time.Millisecond
	redialMost  = 10 * time.Second
	greeting    = 20 * time.Second
)

// link is one session between a node and a server: two queues in the place of a
// stream. Either side may be gone without the other knowing.
type link struct {
	w    *World
	node *node
	s    *server

	seat     *nodes.Attended // the server's side; nil while it begins
	ctx      context.Context
	end      context.CancelFunc
	writing  bool // a write of the server's side is under way
	news     bool // the server's side may have something to send, or to renew
	write    bool // it may have something to write
	up       []*session.Up
	down     []*session.Down
	welcomed bool // the agent has had the server's first message

	serverGone, agentGone bool
}

// dial has a node's agent open a session with a server.
func (n *node) dial(s *server) {
	w := n.w
	hello, err := n.agent.Hello()
	if err != nil {
		w.fail("an agent says hello", "%s: %v", n.name, err)
		return
	}
	l := &link{w: w, node: n, s: s, news: true}
	l.ctx, l.end = context.WithCancel(s.life)
	n.link, n.dialled = l, time.Now()
	s.links = append(s.links, l)
	w.actor = actor{s, "session-" + n.name}
	w.start(func() {
		seat, err := s.nodes.Attend(l.ctx, n.name, hello)
		if err != nil {
			l.drop("it could not begin: " + err.Error())
			return
		}
		l.seat = seat
		w.trace.add(s.name, "session of %s begins", n.name)
	})
}

// drop ends both sides.
func (l *link) drop(why string) {
	l.dropServer(why)
	l.dropAgent(why)
}

// dropServer ends the server's side.
func (l *link) dropServer(why string) {
	if l.serverGone {
		return
	}
	l.serverGone = true
	if l.seat != nil {
		l.seat.End(errors.New(why))
	}
	l.end()
	for i, o := range l.s.links {
		if o == l {
			l.s.links = append(l.s.links[:i:i], l.s.links[i+1:]...)
			break
		}
	}
}

// dropAgent ends the agent's side; it dials again after a while.
func (l *link) dropAgent(why string) {
	if l.agentGone {
		return
	}
	l.agentGone = true
	n := l.node
	if n.link != l {
		return
	}
	l.w.trace.add(n.name, "session ends: %s", why)
	n.link = nil
	if l.welcomed {
		n.redial = redialFirst
	}
	n.redial = min(max(2*n.redial, redialFirst), redialMost)
	n.dialAt = time.Now().Add(l.w.between(n.redial/2, n.redial))
	if l.w.opts.Plant == PlantR9 { // "no server, so nothing is assigned"
		n.agent.Begin()
		n.receive(&session.Down{Message: &session.Down_Synced{Synced: &session.Synced{}}})
	}
}

// serverReady adds what the server's side can do.
func (l *link) serverReady(now time.Time, out []choice) []choice {
	who := actor{l.s, "session-" + l.node.name}
	if l.seat == nil {
		return out
	}
	add := func(do func() error) {
		out = append(out, choice{who, func() {
			if err := do(); err != nil {
				l.dropServer(err.Error())
			}
		}})
	}
	if err := l.seat.Err(); err != nil {
		return append(out, choice{who, func() { l.dropServer(err.Error()) }})
	}
	if len(l.up) > 0 && !l.node.cut {
		add(func() error {
			m := l.up[0]
			l.up = l.up[1:]
			l.news, l.write = true, true
			return l.seat.Receive(m)
		})
	}
	if l.news {
		add(func() error {
			l.news = false
			if _, err := l.seat.Renew(); err != nil {
				return err
			}
			messages, err := l.seat.Send()
			if !l.agentGone {
				l.down = append(l.down, messages...)
			}
			return err
		})
	}
	if l.write && !l.writing {
		add(func() error {
			l.write, l.writing = false, true
			l.w.start(func() {
				wrote, err := l.seat.Write()
				l.writing = false
				l.write, l.news = l.write || wrote, true
				if err != nil {
					l.dropServer(err.Error())
				}
			})
			return nil
		})
	}
	return out
}
