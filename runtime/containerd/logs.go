package containerd

import (
	"context"
	"fmt"
	"io"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/keeper"
)

// Logs is agent.Runtime's.
func (r *Runtime) Logs(ctx context.Context, req agent.LogRequest, w io.Writer) error {
	c, err := r.logOf(req)
	if err != nil {
		return err
	}
	if isClosed(c.dead) {
		// Its last lines may be on the way to the log still.
		if err := r.clean(ctx, c.state.ID); err != nil {
			r.cfg.Log.Warn("log may lack its end", "container", c.state.ID, "err", err)
		}
	}
	err = keeper.Read(ctx, c.state.LogPath, keeper.ReadOptions{
		Follow: req.Follow && !isClosed(c.dead), Over: c.over, Timestamps: req.Timestamps, Tail: req.TailLines, Limit: req.LimitBytes, Since: req.Since,
	}, w)
	if err != nil {
		return fmt.Errorf("log of container %s: %w", req.Container, err)
	}
	return nil
}

// logOf finds the attempt whose log is asked for.
func (r *Runtime) logOf(req agent.LogRequest) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxes[req.UID]
	if sb == nil {
		return nil, fmt.Errorf("pod %s is not on this node", req.UID)
	}
	var newest, before, exact *container
	for _, c := range sb.containers {
		if c.state.Name != req.Container {
			continue
		}
		if c.state.Attempt == req.Attempt {
			exact = c
		}
		switch {
		case newest == nil || c.state.Attempt > newest.state.Attempt:
			newest, before = c, newest
		case before == nil || c.state.Attempt > before.state.Attempt:
			before = c
		}
	}
	switch {
	case req.Previous && before != nil:
		return before, nil
	case req.Previous:
		return nil, fmt.Errorf("previous terminated container %q of pod %s not found", req.Container, req.UID)
	case req.Attempt >= 0 && exact != nil:
		return exact, nil
	case req.Attempt < 0 && newest != nil:
		return newest, nil
	}
	return nil, fmt.Errorf("container %q of pod %s has no log", req.Container, req.UID)
}
