package agent

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// What use is counted over when somebody asks once: an older reading tells of what is
// long past, and a younger one of a moment.
const (
	sampleLives = 2 * time.Minute
	sampleFresh = 5 * time.Second
	sampleWait  = shortest + 100*time.Millisecond
)

// sample is a reading of all that runs on the machine.
type sample struct {
	reading sync.Mutex // held while somebody measures
	last    reading
}

// reading is what everything had used at a moment; zero: nothing was read.
type reading struct {
	at   time.Time
	busy time.Duration // of the machine; negative: nobody knows
	pods map[string]Usage
	list []Usage
}

// readFigures answers what the node and all of its pods use now. Where nobody has asked
// for a while, it measures twice. Between two questions nothing is measured.
func (a *Agent) readFigures(ctx context.Context, w io.Writer) error {
	m, err := a.Figures(ctx)
	if err != nil {
		return err
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode what pods use: %w", err)
	}
	_, err = w.Write(raw)
	return err
}

// Figures measures what the node and all of its pods use.
func (a *Agent) Figures(ctx context.Context) (*session.Figures, error) {
	a.sample.reading.Lock()
	defer a.sample.reading.Unlock()
	before := a.sample.last
	now, err := a.readAll(ctx)
	if err != nil {
		return nil, err
	}
	if age := now.at.Sub(before.at); age < shortest || age > sampleLives {
		before = now
		timer := time.NewTimer(sampleWait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		}
		if now, err = a.readAll(ctx); err != nil {
			return nil, err
		}
		a.sample.last = now
	} else if age >= sampleFresh {
		a.sample.last = now
	}
	out := figures(before.pods, now.list, now.at)
	out.WindowNanos = int64(now.at.Sub(before.at))
	out.Node = a.nodeFigures(before, now)
	return out, nil
}

// readAll reads what everything has used up to now.
func (a *Agent) readAll(ctx context.Context) (reading, error) {
	var uids []types.UID
	for _, pod := range a.lively() {
		uids = append(uids, pod.UID)
	}
	r := reading{busy: -1, pods: map[string]Usage{}}
	var err error
	if r.list, err = a.cfg.Runtime.Usage(ctx, uids...); err != nil {
		return reading{}, fmt.Errorf("measure what pods use: %w", err)
	}
	for _, u := range r.list {
		r.pods[u.ID] = u
	}
	if a.cfg.Busy != nil {
		if r.busy, err = a.cfg.Busy(); err != nil {
			return reading{}, err
		}
	}
	r.at = a.cfg.Now()
	return r, nil
}

// nodeFigures is what the machine uses by two readings; nil where nobody knows.
func (a *Agent) nodeFigures(before, now reading) *session.ContainerFigures {
	window := now.at.Sub(before.at)
	if before.busy < 0 || now.busy < before.busy || window < shortest || a.cfg.Host == nil {
		return nil
	}
	host, err := a.cfg.Host()
	if err != nil {
		a.log.Warn("what the machine uses cannot be told", "error", err)
		return nil
	}
	memory := host[MemoryAvailable]
	return &session.ContainerFigures{Cpu: int64(float64(now.busy-before.busy) / window.Seconds()), Memory: memory.All - memory.Free}
}
