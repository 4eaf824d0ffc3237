package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// ErrMoved is what Refs.Move returns when a key did not have the old value.
var ErrMoved = errors.New("the ref has moved meanwhile")

// Refs is the truth of the hosted refs: keys in the store.
type Refs interface {
	// List returns every ref with its commit.
	List(ctx context.Context) (map[string]string, error)
	// Move moves every key from its old value in one transaction, or none and
	// returns ErrMoved. Any other error may mean that it did.
	Move(ctx context.Context, updates []Update, pusher string) error
}

// Push is one update under judgement. Its objects are readable only until Judge
// returns, for git has not accepted them yet.
type Push struct {
	Update
	Pusher  string
	Options []string // of git push -o; with dry-run the push is refused after Judge
	Objects *Objects // sees what is pushed and what was there
}

// DryRun says whether the person who pushes asks for the plan only.
func (p Push) DryRun() bool { return slices.Contains(p.Options, optionDryRun) }

// Config is what a hosted repository needs. Only Dir, Cluster, Keeper, Refs and
// Tokens must be set.
type Config struct {
	Dir     string            // of the bare repository; its last element is its name in the URL
	Cluster string            // for the names of our own refs
	Keeper  string            // path of the keeper binary, which is the hook
	Git     string            // path of the git program; default from PATH
	Tokens  map[string]string // who may read and push: name → token
	Refs    Refs

	// Follows says whether the cluster follows the ref; default refs/heads/main only.
	Follows func(ref string) bool
	// AllowRewind says whether the operator allows this one move of a followed
	// ref to a commit that is no descendant (R1); default never.
	AllowRewind func(ctx context.Context, u Update) (bool, error)
	// Judge returns every problem of a push to a followed ref, each one line. An
	// error means that it could not tell. What it writes to progress is shown to
	// the person who pushes.
	Judge func(ctx context.Context, p Push, progress io.Writer) (problems []string, err error)
	// Follow writes what becomes of a commit that was accepted, until it is
	// healthy, failed or superseded. Its context ends when the client leaves.
	Follow func(ctx context.Context, commit string, w io.Writer) error

	MaxPush   int64         // bytes of one push; default 512 MiB
	Patience  time.Duration // how long a client may send or take nothing; default 1 minute
	JudgeTime time.Duration // how long Judge may take; default 2 minutes
	Log       *slog.Logger
}

// Limits of what runs at once. Reading cannot take the place of pushing, nor
// watching a rollout the place of the push that would mend it (R13).
const (
	maxReading   = 8
	maxPushing   = 8
	maxFollowing = 64
)

// Hosted is the repository that a team pushes to: its bare repository, the
// http.Handler of its smart HTTP address, and the judge of its pushes.
type Hosted struct {
	*Repository
	config Config
	reader bool // nobody pushes: the clone of a forge, without hooks
	redact redactor
	socket net.Listener
	hooks  *os.File // the folder of the socket

	reading, pushing, following chan struct{} // one element for each that runs

	reconciling sync.Mutex // one Reconcile at a time

	mu      sync.Mutex
	pushes  map[string]*push       // by id, while git receive-pack runs
	moving  map[string]int         // refs that a push is moving right now
	dirty   bool                   // some bare ref may differ from its key
	running map[*exec.Cmd]struct{} // git programs of requests, for the shutdown
	closed  bool                   // nothing new begins
	killed  bool                   // what still runs has been killed
	busy    sync.WaitGroup         // requests and hooks that run
	tidy    chan struct{}          // wakes gc
}

// socketName is relative to the repository, where hooks run: the path of a unix
// socket may not be longer than 107 bytes.
const socketName = "headway.sock"

// Open makes or repairs the repository, brings its refs to their keys and
// listens for hooks. Run must follow.
func Open(ctx context.Context, c Config) (*Hosted, error) {
	path, err := find(c.Git)
	if err != nil {
		return nil, err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("open the hosted repository: %w", err)
	}
	if c.Keeper, err = filepath.Abs(c.Keeper); err != nil {
		return nil, fmt.Errorf("open the hosted repository: %w", err)
	}
	c.setDefaults()
	p := program{path: path, dir: c.Dir}
	if err := prepare(ctx, p, hostedConfig(c.MaxPush)); err != nil {
		return nil, err
	}
	if err := writeHooks(c.Dir, c.Keeper); err != nil {
		return nil, err
	}
	// A git program of a server that was killed ends by itself when its hook or
	// its input ends, and what it may still do to a ref is compared with the old
	// value; so its lock files can go now.
	if err := sweep(c.Dir, 0); err != nil {
		return nil, err
	}
	h := newHosted(newRepository(p, c.Cluster, c.Log), c)
	if err := h.Reconcile(ctx); err != nil {
		// Served all the same: a push of the lost commits mends it.
		h.dirty = true
		c.Log.Error("hosted refs do not match the store", "dir", c.Dir, "err", err)
	}
	if err := h.listen(); err != nil {
		h.Repository.Close()
		return nil, err
	}
	return h, nil
}

// setDefaults fills what was not set.
func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Follows == nil {
		c.Follows = func(ref string) bool { return ref == "refs/heads/main" }
	}
	if c.MaxPush == 0 {
		c.MaxPush = 512 << 20
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	if c.JudgeTime == 0 {
		c.JudgeTime = 2 * time.Minute
	}
}

func newHosted(r *Repository, c Config) *Hosted {
	secrets := make([]string, 0, len(c.Tokens))
	for _, token := range c.Tokens {
		secrets = append(secrets, token)
	}
	return &Hosted{
		Repository: r,
		config:     c,
		redact:     newRedactor(secrets...),
		reading:    make(chan struct{}, maxReading),
		pushing:    make(chan struct{}, maxPushing),
		following:  make(chan struct{}, maxFollowing),
		pushes:     map[string]*push{},
		moving:     map[string]int{},
		running:    map[*exec.Cmd]struct{}{},
		tidy:       make(chan struct{}, 1),
	}
}

// OpenReader serves the clone of a forge to those who read: what is live and the
// receipts are there even when they may not be pushed to the forge. Of c, Tokens
// must be set; Dir, Cluster, Keeper, Refs and all that is about pushing are not
// used. Run must follow, and end before the clone is closed.
func OpenReader(clone *Forge, c Config) *Hosted {
	c.Dir, c.Cluster = clone.config.Dir, clone.cluster
	c.setDefaults()
	h := newHosted(clone.Repository, c)
	h.reader = true
	return h
}

// listen opens the socket for hooks, by way of its folder's descriptor so that
// the length of the path does not matter.
func (h *Hosted) listen() error {
	dir, err := os.Open(h.config.Dir)
	if err != nil {
		return fmt.Errorf("listen for git hooks: %w", err)
	}
	if err := os.Remove(filepath.Join(h.config.Dir, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("listen for git hooks: %w", err), dir.Close())
	}
	// The folder is 0700, so the socket is ours alone even before it is 0600.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName))
	if err == nil {
		err = os.Chmod(filepath.Join(h.config.Dir, socketName), 0o600)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("listen for git hooks: %w", err), dir.Close())
	}
	h.socket, h.hooks = l, dir
	return nil
}

// Run answers the hooks and packs the repository now and then, until ctx ends
// and every request and git program has ended.
func (h *Hosted) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	if !h.reader {
		loops.Go(func() { h.accept(work) })
	}
	loops.Go(func() { h.pack(work) })
	<-ctx.Done()
	h.shut()
	cancel()
	loops.Wait()
	if h.reader {
		return nil
	}
	h.Repository.Close()
	return h.hooks.Close()
}

// shut refuses new requests, gives the running ones ten seconds and then ends
// their git programs.
func (h *Hosted) shut() {
	h.mu.Lock()
	h.closed = true
	for _, p := range h.pushes {
		p.leave() // whoever watches a rollout need not see its end
	}
	h.mu.Unlock()
	idle := make(chan struct{})
	go func() { h.busy.Wait(); close(idle) }()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		h.mu.Lock()
		h.killed = true
		for cmd := range h.running {
			kill(cmd)
		}
		h.mu.Unlock()
	}
	if h.reader {
		<-idle
		return
	}
	_ = h.socket.Close() // ends accept; the hooks that are connected go on
	<-idle
}

// accept serves the connections of hooks until the socket is closed.
func (h *Hosted) accept(ctx context.Context) {
	for {
		conn, err := h.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			h.config.Log.Error("cannot answer a git hook", "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // out of descriptors, most likely
			case <-ctx.Done():
				return
			}
			continue
		}
		if !h.enter() {
			_ = conn.Close()
			continue
		}
		go func() {
			defer h.busy.Done()
			h.answer(ctx, conn)
		}()
	}
}

// enter registers one more piece of work, unless we are closing.
func (h *Hosted) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.busy.Add(1)
	}
	return !h.closed
}

// pack runs gc after pushes, at most once in ten minutes, and each hour: what we
// write ourselves has to be packed too.
func (h *Hosted) pack(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.tidy:
		case <-time.After(time.Hour):
		}
		if err := h.GC(ctx); err != nil && ctx.Err() == nil {
			h.config.Log.Error("git repository not packed", "err", err)
		}
		if err := sweep(h.config.Dir, 24*time.Hour); err != nil {
			h.config.Log.Error("git repository not cleaned up", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Minute):
		}
	}
}
