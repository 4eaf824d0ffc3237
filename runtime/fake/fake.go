package fake

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
)

// Program is what a container does.
type Program struct {
	Runs     time.Duration // how long until it ends by itself; 0 until it is stopped
	AtOnce   bool          // it ends as soon as it has started
	Code     int32         // its exit code when it ends by itself
	Reason   string        // OOMKilled, or "" for the usual one
	Output   string        // what it writes
	Stubborn bool          // it ignores the stop signal
	Cores    float64       // it uses so many CPUs, until SetLoad
	Memory   int64         // and so many bytes
}

// Reply is what a command in a container does.
type Reply struct {
	Code   int32
	Output string
	Takes  time.Duration
	Err    error // it cannot be run
	// Run does the rest instead, until ctx ends; nil: as the others say.
	Run func(ctx context.Context, req agent.ExecRequest) (code int32)
}

// Config scripts a Runtime; all of it is optional.
type Config struct {
	Now      func() time.Time
	Programs func(agent.ContainerSpec) Program                            // default: runs until it is stopped; asked one at a time, may not call the Runtime
	Delay    func(op string) time.Duration                                // before an operation has its effect
	Fail     func(op string, subject string) error                        // an operation that fails; its subject is a uid, id or image
	Lie      func([]agent.SandboxState) []agent.SandboxState              // what List says instead
	Missing  func(image string) bool                                      // images that have to be pulled
	User     string                                                       // of every image
	Kept     func(image string) bool                                      // images that are never removed; nil: none
	Disk     int64                                                        // bytes that there are for images
	Size     func(image string) int64                                     // of an image that was asked for; nil: none is listed
	Commands func(container agent.ContainerState, command []string) Reply // of Exec; default: nothing, with 0
	Ports    func(agent.DialRequest) (net.Conn, error)                    // of pods that run; default: nobody listens
}

// Runtime is the fake.
type Runtime struct {
	cfg Config

	mu        sync.Mutex
	sandboxes map[types.UID]*sandbox
	pulled    map[string]bool
	strangers []agent.ForeignContainer
	serial    int
	calls     map[string]int
	listeners map[*listener]bool
}

type sandbox struct {
	state      agent.SandboxState
	made       bool
	containers []*container
}

type container struct {
	state   agent.ContainerState
	program Program
	done    chan struct{} // closed when it is dead
	timer   *time.Timer
	load    load
	written int64 // bytes
}

// New returns an empty machine.
func New(cfg Config) *Runtime {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Runtime{cfg: cfg, sandboxes: map[types.UID]*sandbox{}, pulled: map[string]bool{}, calls: map[string]int{}, listeners: map[*listener]bool{}}
}

var _ agent.Runtime = (*Runtime)(nil)

// Calls says how often an operation was asked for: "StartContainer".
func (r *Runtime) Calls(op string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[op]
}

// do counts an operation, takes its time and fails if the script says so.
func (r *Runtime) do(ctx context.Context, op, subject string) error {
	r.mu.Lock()
	r.calls[op]++
	r.mu.Unlock()
	if r.cfg.Delay != nil {
		if d := r.cfg.Delay(op); d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.cfg.Fail != nil {
		return r.cfg.Fail(op, subject)
	}
	return nil
}

// List implements agent.Runtime.
func (r *Runtime) List(ctx context.Context, uids ...types.UID) ([]agent.SandboxState, error) {
	if err := r.do(ctx, "List", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []agent.SandboxState
	for uid, s := range r.sandboxes {
		if len(uids) == 0 || slices.Contains(uids, uid) {
			out = append(out, s.snapshot())
		}
	}
	slices.SortFunc(out, func(a, b agent.SandboxState) int { return strings.Compare(string(a.UID), string(b.UID)) })
	if r.cfg.Lie != nil {
		out = r.cfg.Lie(out)
	}
	return out, nil
}

// Foreign implements agent.Runtime.
func (r *Runtime) Foreign(ctx context.Context) ([]agent.ForeignContainer, error) {
	if err := r.do(ctx, "Foreign", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.strangers), nil
}

// SetForeign has somebody else make containers, and remove those that he made before.
func (r *Runtime) SetForeign(all ...agent.ForeignContainer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strangers = all
	r.tell("")
}

func (s *sandbox) snapshot() agent.SandboxState {
	out := s.state
	out.IPs = slices.Clone(s.state.IPs)
	for _, c := range s.containers {
		out.Containers = append(out.Containers, c.state)
	}
	slices.SortFunc(out.Containers, func(a, b agent.ContainerState) int {
		if n := strings.Compare(a.Name, b.Name); n != 0 {
			return n
		}
		return a.Attempt - b.Attempt
	})
	return out
}

// EnsureImage implements agent.Runtime.
func (r *Runtime) EnsureImage(ctx context.Context, req agent.ImageRequest) (agent.Image, error) {
	if err := r.do(ctx, "EnsureImage", req.Reference); err != nil {
		return agent.Image{}, err
	}
	if req.Reference == "" || strings.ToLower(req.Reference) != req.Reference {
		return agent.Image{}, &agent.ImageError{Reason: "InvalidImageName", Err: fmt.Errorf("couldn't parse image name %q", req.Reference)}
	}
	r.mu.Lock()
	here := r.pulled[req.Reference] || r.cfg.Missing == nil || !r.cfg.Missing(req.Reference)
	r.mu.Unlock()
	say := func(reason, message string) {
		if req.Progress != nil {
			req.Progress(reason, message)
		}
	}
	switch {
	case here && req.Policy != corev1.PullAlways:
		say("Pulled", fmt.Sprintf("Container image %q already present on machine", req.Reference))
	case req.Policy == corev1.PullNever:
		return agent.Image{}, &agent.ImageError{Reason: "ErrImageNeverPull", Err: fmt.Errorf("container image %q is not present with pull policy of Never", req.Reference)}
	default:
		say("Pulling", fmt.Sprintf("Pulling image %q", req.Reference))
		if err := r.do(ctx, "Pull", req.Reference); err != nil {
			return agent.Image{}, &agent.ImageError{Reason: "ErrImagePull", Err: err}
		}
		say("Pulled", fmt.Sprintf("Successfully pulled image %q", req.Reference))
	}
	r.mu.Lock()
	r.pulled[req.Reference] = true
	r.mu.Unlock()
	return agent.Image{Reference: req.Reference, ID: "sha256:" + req.Reference, Digest: req.Reference + "@sha256:fake", User: r.cfg.User}, nil
}

// Images implements agent.Runtime: what was asked for is there.
func (r *Runtime) Images(ctx context.Context) ([]agent.PresentImage, error) {
	if r.cfg.Size == nil {
		return nil, nil
	}
	if err := r.do(ctx, "Images", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []agent.PresentImage
	for name := range r.pulled {
		kept := r.cfg.Kept != nil && r.cfg.Kept(name)
		out = append(out, agent.PresentImage{ID: name, Names: []string{name, name + "@sha256:fake"}, Size: r.cfg.Size(name), Kept: kept})
	}
	slices.SortFunc(out, func(a, b agent.PresentImage) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return out, nil
}

// RemoveImage implements agent.Runtime.
func (r *Runtime) RemoveImage(ctx context.Context, id string) error {
	if err := r.do(ctx, "RemoveImage", id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pulled, id)
	return nil
}

// ImageDisk implements agent.Runtime: nothing but the images is on it.
func (r *Runtime) ImageDisk(ctx context.Context) (agent.DiskSpace, error) {
	if err := r.do(ctx, "ImageDisk", ""); err != nil {
		return agent.DiskSpace{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.cfg.Disk
	for name := range r.pulled {
		if r.cfg.Size != nil {
			left -= r.cfg.Size(name)
		}
	}
	return agent.DiskSpace{Capacity: r.cfg.Disk, Available: left}, nil
}

// EnsureSandbox implements agent.Runtime.
func (r *Runtime) EnsureSandbox(ctx context.Context, spec agent.SandboxSpec) (agent.SandboxState, error) {
	if err := r.do(ctx, "EnsureSandbox", string(spec.Pod.UID)); err != nil {
		return agent.SandboxState{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[spec.Pod.UID]
	if s == nil {
		s = &sandbox{state: agent.SandboxState{UID: spec.Pod.UID, Namespace: spec.Pod.Namespace, Name: spec.Pod.Name, CreatedAt: r.cfg.Now()}}
		r.sandboxes[spec.Pod.UID] = s
	}
	if !s.state.Ready {
		if s.made {
			s.state.Made++
		}
		s.made = true
		r.serial++
		s.state.Ready, s.state.IPs = true, []string{fmt.Sprintf("10.1.%d.%d", r.serial/250, r.serial%250+2)}
	}
	return s.snapshot(), nil
}

// StopSandbox implements agent.Runtime.
func (r *Runtime) StopSandbox(ctx context.Context, uid types.UID) error {
	if err := r.do(ctx, "StopSandbox", string(uid)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[uid]; s != nil {
		s.state.Ready, s.state.IPs = false, nil
	}
	return nil
}

// RemoveSandbox implements agent.Runtime.
func (r *Runtime) RemoveSandbox(ctx context.Context, uid types.UID) error {
	if err := r.do(ctx, "RemoveSandbox", string(uid)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[uid]; s != nil {
		for _, c := range s.containers {
			r.end(uid, c, 137, 9, "")
		}
		delete(r.sandboxes, uid)
		r.tell(uid)
	}
	return nil
}
