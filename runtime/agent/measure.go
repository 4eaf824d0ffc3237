package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// Meter reads what containers use.
type Meter interface {
	// Usage reports on the running containers of these pods; what does not run is
	// missing. Nothing is read of any other pod.
	Usage(ctx context.Context, uids ...types.UID) ([]Usage, error)
	// Written reports what the containers of these pods have written on the disk, running
	// or dead, each once: their layers and logs. It reads them all, so it is asked for
	// few pods.
	Written(ctx context.Context, uids ...types.UID) ([]Written, error)
}

// Written is what all attempts of a container that are there have written. Without the
// name of one it is what any of the pod's have, into what they have in common.
type Written struct {
	Pod       types.UID
	Container string
	Room
}

// Usage is what one attempt of a container has used up to a moment.
type Usage struct {
	Pod       types.UID
	Container string // its name
	ID        string // of the engine: another one counts from nothing
	Time      time.Time
	CPU       time.Duration // since it was made
	Processes int64         // and threads, that it has now
	Memory    int64         // bytes in use, but for what files could be read again into; negative: the kernel does not say
}

// shortest is the least time that CPU use is told of: over less, one tick of the
// kernel's own accounting would look like a load.
const shortest = time.Second

// gauge is what the session has asked to be measured, and the last readings.
type gauge struct {
	wanted []types.UID
	period time.Duration
	fresh  bool      // some of wanted have not been read yet
	due    time.Time // of the next figures; zero: nothing has been read
	last   map[string]Usage
	wake   chan struct{}
}

func newGauge() gauge { return gauge{last: map[string]Usage{}, wake: make(chan struct{}, 1)} }

// ask replaces what is to be measured.
func (g *gauge) ask(m *session.Measure) {
	g.wanted, g.fresh = nil, true
	for _, uid := range m.GetUids() {
		g.wanted = append(g.wanted, types.UID(uid))
	}
	if g.period = time.Duration(m.GetPeriodNanos()); g.period < shortest {
		g.period = shortest
	}
	notify(g.wake)
}

// Measure reads what is due of what the session asks for, and says when to call it
// again: zero when nothing is asked. The first reading of a container says nothing by
// itself; from the second on the outbox gets its figures. One goroutine calls it, or
// who steps the agent.
func (a *Agent) Measure(ctx context.Context) (time.Time, error) {
	a.mu.Lock()
	g := &a.gauge
	uids, period, now := g.wanted, g.period, a.cfg.Now()
	whole := !now.Before(g.due)
	if len(uids) == 0 {
		g.fresh, g.due = false, time.Time{}
		clear(g.last)
	}
	if len(uids) == 0 || !whole && !g.fresh {
		defer a.mu.Unlock()
		return g.due, nil
	}
	g.fresh = false
	if whole {
		if g.due = g.due.Add(period); !g.due.After(now) {
			g.due = now.Add(period)
		}
	}
	due := g.due
	a.mu.Unlock()

	read, err := a.cfg.Runtime.Usage(ctx, uids...)
	if err != nil {
		return due, fmt.Errorf("measure what pods use: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !whole { // the others go on from their last
		for _, u := range read {
			if _, known := g.last[u.ID]; !known {
				g.last[u.ID] = u
			}
		}
		return due, nil
	}
	if len(g.last) > 0 && len(g.wanted) > 0 {
		a.out.figures = figures(g.last, read, a.cfg.Now())
		notify(a.send)
	}
	clear(g.last)
	for _, u := range read {
		g.last[u.ID] = u
	}
	return due, nil
}

// figures is what containers use by two readings. A pod of which a running container
// has no two is left out: its sum would be less than it uses.
func figures(before map[string]Usage, now []Usage, at time.Time) *session.Figures {
	now = slices.SortedFunc(slices.Values(now), func(x, y Usage) int {
		return cmp.Or(strings.Compare(string(x.Pod), string(y.Pod)), strings.Compare(x.Container, y.Container))
	})
	out := &session.Figures{TimeNanos: at.UnixNano()}
	for len(now) > 0 {
		end := slices.IndexFunc(now, func(u Usage) bool { return u.Pod != now[0].Pod })
		if end < 0 {
			end = len(now)
		}
		if p := podFigures(before, now[:end]); p != nil {
			out.Pods = append(out.Pods, p)
		}
		now = now[end:]
	}
	return out
}

func podFigures(before map[string]Usage, now []Usage) *session.PodFigures {
	p := &session.PodFigures{Uid: string(now[0].Pod)}
	for _, u := range now {
		was, known := before[u.ID]
		window := u.Time.Sub(was.Time)
		if !known || window < shortest || u.CPU < was.CPU {
			return nil
		}
		if p.WindowNanos == 0 || int64(window) < p.WindowNanos {
			p.WindowNanos = int64(window)
		}
		p.Containers = append(p.Containers, &session.ContainerFigures{
			Name: u.Container, Cpu: int64(float64(u.CPU-was.CPU) / window.Seconds()), Memory: u.Memory,
		})
	}
	return p
}

// measure calls Measure until ctx ends.
func (a *Agent) measure(ctx context.Context) {
	told := false
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, err := a.Measure(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !told {
			a.log.Error("autoscalers get no figures of this node's pods; trying again", "error", err)
		}
		told = err != nil
		sleep := time.Hour
		if !next.IsZero() {
			sleep = max(next.Sub(a.cfg.Now()), 0)
		}
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-a.gauge.wake:
		case <-timer.C:
		}
	}
}
