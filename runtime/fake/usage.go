package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// load is how much a container uses from a moment on.
type load struct {
	since  time.Time
	before time.Duration // CPU time used until then
	cores  float64
	memory int64
}

func (l load) cpu(now time.Time) time.Duration {
	return l.before + time.Duration(l.cores*float64(now.Sub(l.since)))
}

// Usage implements agent.Runtime.
func (r *Runtime) Usage(ctx context.Context, uids ...types.UID) ([]agent.Usage, error) {
	if err := r.do(ctx, "Usage", fmt.Sprint(uids)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []agent.Usage
	now := r.cfg.Now()
	for _, uid := range uids {
		s := r.sandboxes[uid]
		if s == nil {
			continue
		}
		for _, c := range s.containers {
			if c.state.Phase == agent.Running {
				out = append(out, agent.Usage{Pod: uid, Container: c.state.Name, ID: c.state.ID, Time: now, CPU: c.load.cpu(now), Memory: c.load.memory})
			}
		}
	}
	return out, nil
}

// SetLoad makes the running attempt of a container use other amounts from now on.
func (r *Runtime) SetLoad(uid types.UID, name string, cores float64, memory int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[uid]; s != nil {
		for _, c := range slices.Backward(s.containers) {
			if c.state.Name == name && c.state.Phase == agent.Running {
				now := r.cfg.Now()
				c.load = load{since: now, before: c.load.cpu(now), cores: cores, memory: memory}
				return nil
			}
		}
	}
	return fmt.Errorf("container %s of pod %s does not run", name, uid)
}

// Written implements agent.Runtime.
func (r *Runtime) Written(ctx context.Context, uids ...types.UID) ([]agent.Written, error) {
	if err := r.do(ctx, "Written", fmt.Sprint(uids)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []agent.Written
	for i, uid := range uids {
		s := r.sandboxes[uid]
		if s == nil || slices.Contains(uids[:i], uid) {
			continue
		}
		seen := map[string]int{}
		for _, c := range s.containers {
			at, known := seen[c.state.Name]
			if !known {
				at = len(out)
				seen[c.state.Name] = at
				out = append(out, agent.Written{Pod: uid, Container: c.state.Name})
			}
			out[at].Bytes += c.written + int64(len(c.program.Output))
			out[at].Inodes++
		}
	}
	return out, nil
}

// SetWritten makes the running attempt of a container have written so much.
func (r *Runtime) SetWritten(uid types.UID, name string, bytes int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[uid]; s != nil {
		for _, c := range slices.Backward(s.containers) {
			if c.state.Name == name && c.state.Phase == agent.Running {
				c.written = bytes
				return nil
			}
		}
	}
	return fmt.Errorf("container %s of pod %s does not run", name, uid)
}
