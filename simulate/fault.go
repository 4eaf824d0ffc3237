package simulate

import (
	"context"
	"maps"
	"time"
)

// How often what goes wrong while faults last, of the times that it could.
const (
	failures   = 0.004 // requests to the backend other than commits
	badCommits = 0.02
	repeats    = 0.03 // revisions that a watch delivers twice
	slowOps    = 0.08 // of a container engine
	badOps     = 0.02
	badJobs    = 0.25
	stubborn   = 0.1 // containers that ignore the stop signal
)

// smallStep is how far a wall clock may step under a process that runs. What waits in
// the product does so by the monotonic clock, which no step moves; the server's one
// clock here is both, so with a larger step the process starts anew.
const smallStep = 20 * time.Second

// chance is true with a probability, while faults last.
func (w *World) chance(p float64) bool { return w.chaos && w.rand.Float64() < p }

// fault notes that something goes wrong.
func (w *World) fault(who, format string, args ...any) {
	w.faults++
	w.trace.add(who, "FAULT "+format, args...)
}

// later mends something after a while.
func (w *World) later(least, most time.Duration, what string, do func()) {
	w.mend = append(w.mend, mend{time.Now().Add(w.between(least, most)), what, do})
}

// disturb has one thing go wrong, and decides when the next one does.
func (w *World) disturb() {
	w.nextFault = time.Now().Add(w.between(time.Second, 40*time.Second))
	s := w.servers[w.rand.IntN(len(w.servers))]
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	switch w.rand.IntN(15) {
	case 0, 1:
		w.killServer(s, time.Minute)
	case 2: // most often the one that leads
		name, _ := w.leader()
		for _, l := range w.servers {
			if l.name == name {
				w.killServer(l, 20*time.Second)
			}
		}
	case 3:
		w.fault("fault", "every server dies")
		for _, s := range w.servers {
			w.killServer(s, 2*time.Minute)
		}
	case 4, 5:
		if leader, _ := w.leader(); w.rand.IntN(2) == 0 {
			for _, l := range w.servers {
				if l.name == leader {
					s = l
				}
			}
		}
		d := w.between(5*time.Second, 50*time.Second)
		w.fault(s.name, "stands still for %v", d.Round(time.Millisecond))
		s.halted = time.Now().Add(d)
	case 6:
		if !s.conn.cut {
			w.fault(s.name, "is cut off from the store")
			s.conn.cut = true
			c := s.conn
			s.conn.breakWatches()
			w.later(time.Second, time.Minute, s.name+" reaches the store again", func() { c.cut = false })
		}
	case 7:
		w.fault(s.name, "its watch breaks")
		s.conn.breakWatches()
		if w.rand.IntN(2) == 0 {
			w.compact()
		}
	case 8:
		if l := n.link; l != nil {
			switch w.rand.IntN(3) {
			case 0:
				w.fault(n.name, "its session is cut")
				l.drop("cut")
			case 1:
				w.fault(n.name, "its session is cut, and the server does not know")
				l.dropAgent("cut")
			default:
				w.fault(n.name, "its session is cut, and the agent does not know yet")
				l.dropServer("cut")
			}
		}
	case 9:
		if !n.cut {
			w.fault(n.name, "loses its network")
			n.cut = true
			w.later(time.Second, 2*time.Minute, n.name+" has its network again", func() { n.cut = false })
		}
	case 10:
		if n.agent != nil {
			w.fault(n.name, "its agent dies")
			n.kill()
			n.startAt = time.Now().Add(w.between(100*time.Millisecond, time.Minute))
		}
	case 11:
		w.fault(n.name, "loses its power")
		n.kill()
		n.machine.reboot()
		n.startAt = time.Now().Add(w.between(5*time.Second, 3*time.Minute))
		if w.rand.IntN(3) == 0 {
			w.replaceMachine(n)
		}
	case 12:
		step := w.between(time.Second, 2*time.Hour)
		if w.rand.IntN(2) == 0 {
			step = -step
		}
		s.skew += step
		w.fault(s.name, "its clock steps by %v", step.Round(time.Second))
		if step.Abs() > smallStep && s.up {
			s.kill()
			s.boot()
		}
		for _, p := range s.parts {
			p.idle = time.Time{}
		}
	default:
		if runs := n.machine.sorted(); len(runs) > 0 {
			r := runs[w.rand.IntN(len(runs))]
			w.fault(n.name, "%s crashes", r.pod)
			n.machine.ends(r, 137)
		}
	}
}

func (w *World) killServer(s *server, most time.Duration) {
	if !s.up {
		return
	}
	w.fault(s.name, "dies")
	s.kill()
	w.later(time.Second, most, s.name+" starts", func() {
		if !s.up {
			s.boot()
		}
	})
}

// compact takes away history that watches may still have needed.
func (w *World) compact() {
	r := w.truth.Revision()
	if err := w.kv.Compact(context.Background(), r); err == nil {
		w.fault("fault", "history before revision %d is gone", r)
	}
}

// calm ends the faults, and pushes a commit that mends what people have done.
func (w *World) calm() {
	w.chaos = false
	w.trace.add("calm", "no more faults")
	for _, m := range w.mend {
		w.trace.add("mend", "%s", m.what)
		m.do()
	}
	w.mend = nil
	for _, s := range w.servers {
		s.halted = time.Time{}
		if s.skew.Abs() > smallStep {
			s.kill()
			s.boot()
		}
		s.skew = 0
		for _, p := range s.parts {
			p.idle = time.Time{}
		}
	}
	for _, n := range w.nodes {
		if n.agent == nil {
			n.startAt = time.Now()
		}
		for _, r := range n.machine.running {
			r.stubborn = false
		}
	}
	if w.opts.Quiet {
		return
	}
	u := w.user
	for u.pending != "" && w.failed == "" { // the last push of before
		u.next = time.Now()
		w.step()
	}
	u.commit(u.fix())
	fix := u.tree
	u.next = time.Now()
	for u.pending != "" && w.failed == "" {
		w.step()
		if time.Since(w.trace.began) > w.opts.Chaos+20*time.Minute {
			w.fail("converges", "a push does not succeed although nothing goes wrong any more")
		}
	}
	if w.failed == "" && !maps.Equal(u.files, fix) {
		w.fail("R13", "the commit that mends everything is refused")
	}
}
