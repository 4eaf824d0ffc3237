package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/image"
	"headway.dev/headway/runtime/volume"
)

// Runtime is what the agent needs of a container engine. runtime/containerd
// gives it on a real machine, runtime/fake in tests; the suite runtimetest says
// what both must do.
//
// Every method is idempotent: killed at any line and called again, it ends in
// the same state. What runs is found again by labels that the Runtime puts on
// what it makes, never by memory. Nothing here restarts or stops a container on
// its own.
type Runtime interface {
	Sandboxes
	Containers
	Meter
	Images
}

// Images are what containers are made from.
type Images interface {
	// EnsureImage makes the image present under the policy and returns it. It goes on
	// as long as something comes, and bounds how many are fetched at once.
	// Errors: *ImageError.
	EnsureImage(ctx context.Context, req ImageRequest) (Image, error)
	// Images lists the images that are present, in any order.
	Images(ctx context.Context) ([]PresentImage, error)
	// RemoveImage removes a present image under all its names and returns when its
	// space is free. A container that is made from it runs on; one that starts meanwhile
	// runs, or its start fails and can be asked for again.
	RemoveImage(ctx context.Context, id string) error
	// ImageDisk is the file system that images are on.
	ImageDisk(ctx context.Context) (DiskSpace, error)
}

// DiskSpace is how large a file system is, in bytes.
type DiskSpace struct{ Capacity, Available int64 }

// Sandboxes are the surroundings of pods: namespaces, network, cgroup, files.
type Sandboxes interface {
	// List reports the named sandboxes, or with no name every sandbox of this
	// node's containerd namespace and cgroup parent, with their containers,
	// running or dead: what a restarted agent adopts. A named sandbox of which
	// nothing is left is missing from the answer. The agent names one after each
	// event, so that must not cost work in proportion to the whole.
	List(ctx context.Context, uids ...types.UID) ([]SandboxState, error)
	// EnsureSandbox makes the pod's namespaces, network and cgroup, and its files
	// (hosts, resolv.conf), and returns it with its addresses and containers.
	EnsureSandbox(ctx context.Context, spec SandboxSpec) (SandboxState, error)
	// StopSandbox gives back the network and the cgroup of a pod whose containers
	// are all dead and stay so. Its dead containers and logs stay, and List still
	// reports it, not Ready.
	StopSandbox(ctx context.Context, uid types.UID) error
	// RemoveSandbox deletes everything of the pod that is left: containers (a
	// running one is killed), network, cgroup, logs, mounts.
	RemoveSandbox(ctx context.Context, uid types.UID) error
	// Foreign reports the containers of this node's containerd namespace that belong
	// to no pod, the oldest first, at most a hundred; they are left alone. One that
	// comes or goes is an event with an empty UID.
	Foreign(ctx context.Context) ([]ForeignContainer, error)
	// Dial connects to a TCP port of a pod that runs. Who stops the pod ends the
	// connection, nothing else does.
	Dial(ctx context.Context, req DialRequest) (net.Conn, error)
	// Events delivers the ids of sandboxes whose state may have changed until ctx
	// ends; it reconnects on its own and then says so with an empty UID: look at
	// everything.
	Events(ctx context.Context) <-chan types.UID
}

// Containers are what runs in a sandbox.
type Containers interface {
	// StartContainer creates and starts one attempt of a container. When the
	// attempt exists already its state is returned as it is. A container that was
	// made but could not be started is reported by List as Exited with the reason
	// StartError.
	StartContainer(ctx context.Context, spec ContainerSpec) (ContainerState, error)
	// StopContainer sends the stop signal, waits up to grace, then kills. It
	// returns when the container is dead; a second call with a shorter grace
	// shortens the first. A container that is not there is stopped.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	// RemoveContainer deletes a dead container and its snapshot; its log stays
	// until the sandbox goes.
	RemoveContainer(ctx context.Context, id string) error
	// Logs writes a container's log to w.
	Logs(ctx context.Context, req LogRequest, w io.Writer) error
	// Attach connects with a container's own process until the container ends, which is
	// no error, or ctx does. Its log is written as ever. An input with stdinOnce is
	// closed when the first who was attached with one leaves.
	Attach(ctx context.Context, req AttachRequest) error
	// Exec runs a command beside a running container's own and returns how it ended.
	// One that is killed, at its timeout or at the end of ctx, gives ErrKilled; that
	// it could not be run is another error. What an agent that died left behind of a
	// command is killed by the next one. It reads Stdin until that ends, in the end
	// beyond its own return, so whoever calls it closes Stdin.
	Exec(ctx context.Context, req ExecRequest) (code int32, err error)
}

// AttachRequest asks to be attached to a container's own process.
type AttachRequest struct {
	ID    string    // of the engine
	Stdin io.Reader // nil: none. It is read until it ends, in the end beyond the return
	// What the container prints, each from one goroutine; nil: dropped. Whoever writes
	// slowly is dropped; the container does not wait.
	Stdout, Stderr io.Writer
	Sizes          <-chan TerminalSize // of its terminal, until it is closed; nil: none
	Attached       func()              // called when nothing that it prints can be missed any more; nil: not
}

// ErrKilled is the end of a command that took too long.
var ErrKilled = errors.New("the command was killed before it ended")

// ExecRequest asks for a command in a container.
type ExecRequest struct {
	ID      string // of the engine
	Command []string
	Timeout time.Duration // 0: that of ctx alone
	Stdin   io.Reader     // nil: none
	// What the command prints, each from one goroutine; nil: dropped. Writers bound
	// what they keep, and fail only when ctx is to end.
	Stdout, Stderr io.Writer
	TTY            bool                // give it a terminal; Stderr gets nothing then
	Sizes          <-chan TerminalSize // of the terminal, until it is closed; nil: none
}

// TerminalSize is how many characters a terminal shows.
type TerminalSize struct{ Width, Height uint16 }

// DialRequest asks for a connection to a pod.
type DialRequest struct {
	UID    types.UID
	Port   uint16
	Inside bool // to the loopback address in the pod's network, else to the pod's address
}

// SandboxSpec says what a pod's surroundings are.
type SandboxSpec struct {
	Pod *corev1.Pod // shared, read-only
}

// SandboxState is what exists of one pod.
type SandboxState struct {
	UID             types.UID
	Namespace, Name string
	Ready           bool     // namespaces and network are up
	Made            int      // how often they were made anew
	IPs             []string // first is the primary
	CreatedAt       time.Time
	Containers      []ContainerState // sorted by name, then attempt
}

// Phase of a container.
type Phase string

const (
	Created Phase = "created"
	Running Phase = "running"
	Exited  Phase = "exited"
	Unknown Phase = "unknown" // the engine cannot say now; never act on it
)

// ContainerState is one attempt of one container.
type ContainerState struct {
	ID         string // of the engine
	Name       string // in the pod spec
	Attempt    int    // 0 first; restartCount of the pod's status
	Made       int    // that of the sandbox that it was started in
	SpecHash   string // of the ContainerSpec it was made from
	Phase      Phase
	Image      string // as named in the pod
	ImageID    string // repository@digest
	PID        uint32
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	Signal     int32
	Reason     string // Completed, Error, OOMKilled, ContainerCannotRun, StartError
	Message    string
	Signalled  bool          // its stop signal was sent
	StopSignal corev1.Signal // by name; "": not known
	LogPath    string
}

// ForeignContainer is a container that Headway did not make.
type ForeignContainer struct {
	ID        string // of the engine
	Namespace string // of the engine
	Image     string // as whoever made it named it; may be empty
	CreatedAt time.Time
}

// ContainerSpec is what to start.
type ContainerSpec struct {
	Pod       *corev1.Pod       // shared, read-only
	Container *corev1.Container // of Pod
	Attempt   int
	Image     Image
	Env       []string // NAME=value, everything resolved and expanded
	Command   []string // expanded; empty: the image's entrypoint
	Args      []string // expanded
	Mounts    []volume.Mount
	Target    string // container, by the engine's id, whose processes it sees; "": its own
	Hash      string
}

// ImageRequest asks for an image.
type ImageRequest struct {
	Reference string // as in the pod; made canonical by the Runtime
	Policy    corev1.PullPolicy
	Keyring   image.Keyring // of the pod's pull secrets
	// Progress, if set, is called with a phrase for an event: "Pulling image …".
	Progress func(reason, message string)
}

// Image is a present image.
type Image struct {
	Reference  string // canonical: docker.io/library/nginx:1
	ID         string // digest of its config or manifest
	Digest     string // repository@digest
	User       string
	StopSignal string
}

// ImageError is a failure to have an image; Reason is one of Kubernetes':
// ErrImagePull, ErrImageNeverPull, InvalidImageName, ImageInspectError. Errors
// never hold credentials (R14).
type ImageError struct {
	Reason     string
	RetryAfter time.Duration // what the registry asks for; 0: nothing
	Err        error
}

func (e *ImageError) Error() string { return e.Err.Error() }
func (e *ImageError) Unwrap() error { return e.Err }

// CreateError is why StartContainer made nothing of an attempt. Otherwise what was made
// failed to start.
type CreateError struct{ Err error }

func (e *CreateError) Error() string { return e.Err.Error() }
func (e *CreateError) Unwrap() error { return e.Err }

// LogRequest asks for the log of one container.
type LogRequest struct {
	UID        types.UID
	Container  string
	Attempt    int // -1: the newest
	Previous   bool
	Follow     bool
	Timestamps bool
	TailLines  int64 // -1: all
	LimitBytes int64 // 0: no limit
	Since      time.Time
}
