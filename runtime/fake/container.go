package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// StartContainer implements agent.Runtime.
func (r *Runtime) StartContainer(ctx context.Context, spec agent.ContainerSpec) (agent.ContainerState, error) {
	uid := spec.Pod.UID
	if err := r.do(ctx, "StartContainer", string(uid)+"/"+spec.Container.Name); err != nil {
		return agent.ContainerState{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	program := Program{}
	if r.cfg.Programs != nil {
		program = r.cfg.Programs(spec)
	}
	s := r.sandboxes[uid]
	if s == nil || !s.state.Ready {
		return agent.ContainerState{}, errors.New("the pod has no sandbox")
	}
	for _, c := range s.containers {
		if c.state.Name == spec.Container.Name && c.state.Attempt == spec.Attempt {
			return c.state, nil
		}
	}
	r.serial++
	now := r.cfg.Now()
	c := &container{program: program, done: make(chan struct{}), load: load{since: now, cores: program.Cores, memory: program.Memory}, state: agent.ContainerState{
		ID: fmt.Sprintf("%s-%s-%d-%d", uid, spec.Container.Name, spec.Attempt, r.serial), Name: spec.Container.Name, Attempt: spec.Attempt, Made: s.state.Made,
		SpecHash: spec.Hash, Phase: agent.Running, Image: spec.Container.Image, ImageID: spec.Image.Digest,
		PID: uint32(r.serial), CreatedAt: now, StartedAt: now,
	}}
	s.containers = append(s.containers, c)
	switch {
	case program.AtOnce:
		r.end(uid, c, program.Code, 0, program.Reason)
	case program.Runs > 0:
		c.timer = time.AfterFunc(program.Runs, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.end(uid, c, program.Code, 0, program.Reason)
		})
	}
	r.tell(uid)
	return c.state, nil
}

// end makes a container dead.
func (r *Runtime) end(uid types.UID, c *container, code, signal int32, reason string) {
	if c.state.Phase == agent.Exited {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.state.Phase, c.state.ExitCode, c.state.Signal, c.state.PID = agent.Exited, code, signal, 0
	c.state.FinishedAt, c.state.Reason = r.cfg.Now(), reason
	if reason == "" {
		c.state.Reason = "Completed"
		if code != 0 {
			c.state.Reason = "Error"
		}
	}
	close(c.done)
	r.tell(uid)
}

// Crash makes the newest attempt of a running container die.
func (r *Runtime) Crash(uid types.UID, name string, code int32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[uid]; s != nil {
		for _, c := range slices.Backward(s.containers) {
			if c.state.Name == name && c.state.Phase == agent.Running {
				r.end(uid, c, code, 0, "")
				return nil
			}
		}
	}
	return fmt.Errorf("container %s of pod %s does not run", name, uid)
}

// Reboot is what a machine finds after its power came back: everything dead.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, s := range r.sandboxes {
		s.state.Ready, s.state.IPs = false, nil
		for _, c := range s.containers {
			r.end(uid, c, 255, 0, "Unknown")
		}
	}
	r.tell("")
}

func (r *Runtime) find(id string) (types.UID, *sandbox, *container) {
	for uid, s := range r.sandboxes {
		for _, c := range s.containers {
			if c.state.ID == id {
				return uid, s, c
			}
		}
	}
	return "", nil, nil
}

// StopContainer implements agent.Runtime.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if err := r.do(ctx, "StopContainer", id); err != nil {
		return err
	}
	r.mu.Lock()
	uid, _, c := r.find(id)
	if c == nil {
		r.mu.Unlock()
		return nil
	}
	if grace > 0 {
		c.state.Signalled = true
	}
	if !c.program.Stubborn {
		r.end(uid, c, c.program.Code, 15, "")
	}
	r.mu.Unlock()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(uid, c, 137, 9, "")
	return nil
}

// RemoveContainer implements agent.Runtime.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	if err := r.do(ctx, "RemoveContainer", id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, s, c := r.find(id)
	if c == nil {
		return nil
	}
	if c.state.Phase == agent.Running {
		return fmt.Errorf("container %s runs", id)
	}
	s.containers = slices.DeleteFunc(s.containers, func(x *container) bool { return x == c })
	r.tell(uid)
	return nil
}

// Exec implements agent.Runtime.
func (r *Runtime) Exec(ctx context.Context, req agent.ExecRequest) (int32, error) {
	if err := r.do(ctx, "Exec", req.ID); err != nil {
		return 0, err
	}
	r.mu.Lock()
	_, _, c := r.find(req.ID)
	if c == nil || c.state.Phase != agent.Running {
		r.mu.Unlock()
		return 0, fmt.Errorf("container %s does not run", req.ID)
	}
	state := c.state
	r.mu.Unlock()
	reply := Reply{}
	if r.cfg.Commands != nil {
		reply = r.cfg.Commands(state, req.Command)
	}
	if reply.Err != nil {
		return 0, reply.Err
	}
	if reply.Run != nil {
		return runs(ctx, c, req, reply.Run)
	}
	if req.Stdout != nil {
		if _, err := io.WriteString(req.Stdout, reply.Output); err != nil {
			return 0, err
		}
	}
	if reply.Takes <= 0 {
		return reply.Code, nil
	}
	over := time.NewTimer(reply.Takes)
	defer over.Stop()
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	select {
	case <-over.C:
		return reply.Code, nil
	case <-ctx.Done():
		return 0, agent.ErrKilled
	case <-c.done:
		return 137, nil
	}
}

// Attach implements agent.Runtime: nothing is printed after the start.
func (r *Runtime) Attach(ctx context.Context, req agent.AttachRequest) error {
	if err := r.do(ctx, "Attach", req.ID); err != nil {
		return err
	}
	r.mu.Lock()
	_, _, c := r.find(req.ID)
	running := c != nil && c.state.Phase == agent.Running
	r.mu.Unlock()
	if !running {
		return fmt.Errorf("container %s does not run", req.ID)
	}
	if req.Attached != nil {
		req.Attached()
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runs has a script be the command.
func runs(ctx context.Context, c *container, req agent.ExecRequest, run func(context.Context, agent.ExecRequest) int32) (int32, error) {
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	if stdin := req.Stdin; stdin != nil { // the script's input ends when it is killed
		in, out := io.Pipe()
		go func() {
			_, err := io.Copy(out, stdin)
			out.CloseWithError(err)
		}()
		context.AfterFunc(until, func() { in.CloseWithError(io.ErrClosedPipe) })
		req.Stdin = in
	}
	ended := make(chan int32, 1)
	go func() { ended <- run(until, req) }()
	select {
	case code := <-ended:
		return code, nil
	case <-ctx.Done():
		<-ended
		return 0, agent.ErrKilled
	case <-c.done:
		cancel()
		<-ended
		return 137, nil
	}
}

// Dial implements agent.Runtime.
func (r *Runtime) Dial(ctx context.Context, req agent.DialRequest) (net.Conn, error) {
	if err := r.do(ctx, "Dial", string(req.UID)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := r.sandboxes[req.UID]
	ready := s != nil && s.state.Ready
	r.mu.Unlock()
	switch {
	case !ready:
		return nil, fmt.Errorf("connect to pod %s: it does not run", req.UID)
	case r.cfg.Ports == nil:
		return nil, fmt.Errorf("connect to port %d: %w", req.Port, syscall.ECONNREFUSED)
	}
	return r.cfg.Ports(req)
}

// Logs implements agent.Runtime.
func (r *Runtime) Logs(ctx context.Context, req agent.LogRequest, w io.Writer) error {
	if err := r.do(ctx, "Logs", string(req.UID)); err != nil {
		return err
	}
	c := r.logged(req)
	if c == nil {
		return fmt.Errorf("container %q has no log", req.Container)
	}
	out := c.program.Output
	if req.TailLines >= 0 {
		lines := strings.SplitAfter(out, "\n")
		if n := len(lines); lines[n-1] == "" {
			lines = lines[:n-1]
		}
		out = strings.Join(lines[max(0, len(lines)-int(req.TailLines)):], "")
	}
	if req.LimitBytes > 0 && int64(len(out)) > req.LimitBytes {
		out = out[:req.LimitBytes]
	}
	if _, err := io.WriteString(w, out); err != nil {
		return err
	}
	if !req.Follow {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// logged finds the attempt whose log is asked for.
func (r *Runtime) logged(req agent.LogRequest) *container {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.UID]
	if s == nil {
		return nil
	}
	var list []*container
	for _, c := range s.containers {
		if c.state.Name == req.Container && (req.Attempt < 0 || req.Attempt == c.state.Attempt) {
			list = append(list, c)
		}
	}
	if req.Previous && len(list) > 0 {
		list = list[:len(list)-1]
	}
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}
