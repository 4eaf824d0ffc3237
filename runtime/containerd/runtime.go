package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/image"
	"headway.dev/headway/runtime/keeper"
	"headway.dev/headway/runtime/network"
	"headway.dev/headway/runtime/resolv"
)

// Output takes what containers print: the node's keeper.
type Output interface {
	// Open makes a container's FIFOs and begins to read them.
	Open(ctx context.Context, c keeper.Container) error
	// Close writes what is left in the FIFOs to the log and removes them.
	Close(ctx context.Context, id string) error
	// Attach hands on what a container prints from now on until it ends, or ctx does.
	// It calls attached when nothing can be missed any more.
	Attach(ctx context.Context, id string, attached func(), stdout, stderr io.Writer) error
	// List returns the ids of the open containers.
	List(ctx context.Context) ([]string, error)
	// Keep sees to it that it runs, until ctx ends.
	Keep(ctx context.Context) error
}

// Config of a Runtime.
type Config struct {
	Socket       string // of containerd
	Namespace    string // in containerd; nobody else's
	CgroupParent string // of all pods: /headway
	Dir          string // our files
	Keeper       Output
	Network      *network.Network
	DNS          resolv.Cluster   // who answers the pods' questions for names
	HostsDir     string           // how to reach registries: <host>/hosts.toml
	SeccompDir   string           // profiles that pods name
	Archives     []fs.FS          // folders with image archives, imported at start
	Memory       int64            // bytes that all pods together may use; 0: all there are
	PIDs         int64            // processes and threads of a pod; 0 or less: as many as there may be
	Parallel     int              // containers made at once; 0: what the machine bears
	OCIRuntime   string           // program that makes containers; "": runc
	Pause        string           // program that, with the argument pause, is the first process of pods whose containers share theirs
	Now          func() time.Time // nil: time.Now
	Log          *slog.Logger
}

// How many images are pulled at once, and from one registry.
const pulls, pullsPerHost = 6, 3

// snapshotter is the one that every containerd on Linux has.
const snapshotter = "overlayfs"

// defaultDomain is the cluster's as Kubernetes has it everywhere.
const defaultDomain = "cluster.local"

// Runtime is the agent's Runtime over containerd. Safe for concurrent use.
type Runtime struct {
	cfg    Config
	client *client.Client
	engine *engine
	images *image.Images

	cgroups cgroups
	memory  int64   // of the machine
	pages   []int64 // sizes of the machine's huge pages
	lowest  int64   // oom_score_adj that we can give
	caps    []string
	runc    typeurl.Any // options of the shim: which program makes containers

	locks keyed
	slots chan struct{}
	stop  context.CancelFunc
	over  <-chan struct{} // closed by Close
	group sync.WaitGroup

	mu        sync.Mutex
	connected bool // events arrive: the mirror is true
	sandboxes map[types.UID]*sandbox
	owners    map[string]types.UID // of containers
	strangers map[string]agent.ForeignContainer
	listeners map[*listener]struct{}
}

var _ agent.Runtime = (*Runtime)(nil)

// New connects to containerd, learns what exists, frees what an interrupted call
// left behind, and begins to import archives and to follow events until ctx ends
// or Close is called.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Parallel <= 0 {
		cfg.Parallel = 2 * runtime.NumCPU()
	}
	if cfg.DNS.Domain == "" {
		cfg.DNS.Domain = defaultDomain
	}
	var err error
	if cfg.Pause, err = filepath.Abs(cfg.Pause); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "pods"), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of pods: %w", err)
	}
	// What containerd's client tells on standard error, in a form of its own, is in the
	// errors of its calls, too.
	if err := log.SetLevel("fatal"); err != nil {
		return nil, fmt.Errorf("silence containerd's client: %w", err)
	}
	r := &Runtime{
		cfg: cfg, slots: make(chan struct{}, cfg.Parallel), locks: keyed{busy: map[string]chan struct{}{}},
		sandboxes: map[types.UID]*sandbox{}, owners: map[string]types.UID{}, strangers: map[string]agent.ForeignContainer{}, listeners: map[*listener]struct{}{},
		caps: allCapabilities(),
	}
	if r.cgroups, err = findCgroups(cfg.Log); err != nil {
		return nil, err
	}
	if err := r.cgroups.weigh(cfg.CgroupParent, runtime.NumCPU()); err != nil {
		return nil, err
	}
	r.cgroups.bound(cfg.CgroupParent, cfg.Memory, cfg.Log)
	if r.pages, err = pageSizes("/sys/kernel/mm/hugepages"); err != nil {
		return nil, err
	}
	if r.memory, err = totalMemory(); err != nil {
		return nil, err
	}
	if r.lowest, err = lowestOOMScore(); err != nil {
		return nil, err
	}
	if r.runc, err = runcOptions(cfg.OCIRuntime); err != nil {
		return nil, err
	}
	// A containerd that restarts is back in well under a second; gRPC's own
	// patience (up to two minutes) is for machines on the other side of a network.
	soon := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.1, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: 5 * time.Second,
	}
	r.client, err = client.New(cfg.Socket, client.WithDefaultNamespace(cfg.Namespace),
		client.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(soon)}))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", cfg.Socket, err)
	}
	r.engine = &engine{client: r.client, hosts: cfg.HostsDir, platform: platforms.Default(),
		looks: looks{filepath.Join(cfg.Dir, "looks")}, cache: map[string]image.Image{}, users: map[string]specs.User{}}
	if err := r.engine.looks.clear(); err != nil {
		return nil, errors.Join(err, r.client.Close())
	}
	r.images, err = image.New(image.Config{Engine: r.engine, Parallel: pulls, PerHost: pullsPerHost, Dir: filepath.Join(cfg.Dir, "images"), Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, r.client.Close())
	}

	ctx, r.stop = context.WithCancel(ctx)
	r.over = ctx.Done()
	first := make(chan error, 1)
	r.group.Go(func() { r.follow(ctx, first) })
	if err := <-first; err != nil {
		return nil, errors.Join(fmt.Errorf("containerd at %s: %w", cfg.Socket, err), r.Close())
	}
	if err := r.tidy(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.group.Go(func() { r.keep(ctx) })
	importing := make(chan struct{})
	r.group.Go(func() {
		if err := r.images.Import(ctx, func() { close(importing) }, cfg.Archives...); err != nil && ctx.Err() == nil {
			cfg.Log.Error("image archives not imported", "err", err)
		}
	})
	<-importing
	return r, nil
}

// keep keeps the keeper running. Without it, containers stall when their pipes
// are full, so it is tried for as long as we run.
func (r *Runtime) keep(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.cfg.Keeper.Keep(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("no keeper runs: containers that print much will stall", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(keepPause):
			}
		}
	}
}

// keepPause is between two tries to start a keeper that does not start.
const keepPause = 5 * time.Second

// Version of containerd.
func (r *Runtime) Version(ctx context.Context) (string, error) {
	v, err := r.client.Version(ctx)
	if err != nil {
		return "", fmt.Errorf("ask containerd for its version: %w", err)
	}
	return v.Version, nil
}

// ImageDir is the folder that containerd unpacks images into, on this machine.
func (r *Runtime) ImageDir(ctx context.Context) (string, error) {
	found, err := r.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+snapshotter)
	if err != nil {
		return "", fmt.Errorf("ask containerd where its images are: %w", err)
	}
	for _, p := range found.Plugins {
		if root := p.Exports["root"]; root != "" {
			return root, nil
		}
	}
	return "", fmt.Errorf("containerd does not say where its snapshotter %s keeps images", snapshotter)
}

// Close ends everything New began and waits for it. Containers run on.
func (r *Runtime) Close() error {
	r.stop()
	r.group.Wait()
	return r.client.Close()
}

// runcOptions names the program that makes containers. crun does what runc does
// at a fifth of the CPU time, but refuses machines with cgroups of both versions,
// so it is not chosen unasked. A container keeps the program that made it.
func runcOptions(program string) (typeurl.Any, error) {
	if program == "" {
		return nil, nil
	}
	packed, err := typeurl.MarshalAny(&options.Options{BinaryName: program})
	if err != nil {
		return nil, fmt.Errorf("encode options of the shim: %w", err)
	}
	return packed, nil
}

// EnsureImage is agent.Runtime's.
func (r *Runtime) EnsureImage(ctx context.Context, req agent.ImageRequest) (agent.Image, error) {
	policy, err := policyOf(req.Policy, req.Reference)
	if err != nil {
		return agent.Image{}, err
	}
	img, err := r.images.Ensure(ctx, image.Request{Name: req.Reference, Policy: policy, Keyring: req.Keyring, Progress: req.Progress})
	var known *image.Error
	if errors.As(err, &known) {
		return agent.Image{}, &agent.ImageError{Reason: known.Reason, RetryAfter: known.RetryAfter, Err: known.Err}
	}
	if err != nil {
		return agent.Image{}, err
	}
	return agent.Image{
		Reference: img.Reference, ID: img.ID.String(), Digest: img.RepoDigest(),
		User: img.Config.User, StopSignal: img.Config.StopSignal,
	}, nil
}

// native turns an error of a raw gRPC service into errdefs' kinds.
func native(err error) error { return errgrpc.ToNative(err) }

// ours reports whether a call failed for reasons that have nothing to do with
// what it asked for: it may be asked again.
func ours(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// keyed serialises work by key.
type keyed struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

func (k *keyed) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		k.mu.Lock()
		wait := k.busy[key]
		if wait == nil {
			mine := make(chan struct{})
			k.busy[key] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.busy, key)
				k.mu.Unlock()
				close(mine)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
