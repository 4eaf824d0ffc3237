package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

// Options of a Store. The zero value is good but for sealed kinds.
type Options struct {
	Seal   []byte       // SealKeyBytes of key for sealed kinds; nil: they can be neither written nor read
	Log    *slog.Logger // default: none
	Now    Clock        // default: time.Now
	Window int          // events kept for watches that resume; default 4096
	// Allocate gives a Service what it lacks of what the cluster has one each of, or
	// says why it cannot have what it names. It decides from its arguments alone; live
	// is what svc replaces, nil when it is new, holder names who else has a claim. nil:
	// Services are written as they come.
	Allocate func(svc, live *corev1.Service, holder func(api.Claim) string) error
	// Bounds enforce LimitRanges and ResourceQuotas on whatever is written; the zero
	// value: nothing does.
	Bounds Bounds
}

// Bounds are what LimitRanges and ResourceQuotas mean. Both decide from their
// arguments alone and change none of them.
type Bounds struct {
	// Limit is an object that is made, or a claim that is changed, as the LimitRanges
	// of its namespace have it, or why it may not be there.
	Limit func(obj api.Object, ranges []*corev1.LimitRange) (api.Object, error)
	// Charge is the quotas that writes of one namespace change, or why they do not fit.
	Charge func(writes []api.Charged, quotas []*corev1.ResourceQuota, now time.Time) ([]*corev1.ResourceQuota, error)
}

const defaultWindow = 4096

// Store is the cluster's shared state over a KV: see the package comment. Its
// reads are of the cache, which Run (or Step) keeps up with the backend; GetAt,
// ListAt and Current read the backend.
type Store struct {
	*cache
	kv    KV
	codec codec
	log   *slog.Logger
	now   Clock
	hooks []func([]Event)

	sealErr error // Options.Seal cannot be used

	feeding sync.Mutex // held by whoever applies: Load, Step or Run
	feed    *feed      // nil: not open
	next    int64      // revision at which the feed goes on

	synced   chan struct{}
	isSynced bool

	currentMu sync.Mutex
	current   *currentRead  // waits for the one in flight to end
	reading   chan struct{} // holds an element while one is in flight

	allocate func(svc, live *corev1.Service, holder func(api.Claim) string) error
	claims   *claims       // nil without allocate
	taking   chan struct{} // holds an element while a transaction takes claims
	bounds   *bounds       // nil: LimitRanges and ResourceQuotas are not enforced

	leaderMu sync.Mutex
	leaders  map[Fence]*Leadership
}

// feed is the one open watch of the backend.
type feed struct {
	batches <-chan Batch
	cancel  context.CancelFunc
}

// New returns a Store over kv. It reads nothing yet: Load does. A seal key that
// cannot be used is reported by Load, and by every use of a sealed kind.
func New(kv KV, o Options) *Store {
	s := &Store{
		cache:   newCache(),
		kv:      kv,
		codec:   codec{specs: newSpecs()},
		log:     o.Log,
		now:     o.Now,
		synced:  make(chan struct{}),
		reading: make(chan struct{}, 1),
		leaders: map[Fence]*Leadership{},
	}
	if o.Seal != nil {
		s.codec.sealer, s.sealErr = newSealer(o.Seal)
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if o.Allocate != nil {
		s.allocate, s.claims, s.taking = o.Allocate, newClaims(), make(chan struct{}, 1)
		s.OnEvents(s.claims.heard)
	}
	if o.Bounds.Limit != nil && o.Bounds.Charge != nil {
		s.bounds = newBounds(o.Bounds)
	}
	s.window.limit = o.Window
	if s.window.limit <= 0 {
		s.window.limit = defaultWindow
	}
	return s
}

// KV returns the backend.
func (s *Store) KV() KV { return s.kv }

// Synced is closed after the first Load.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// OnEvents adds a hook that gets the events of each applied revision, in order,
// right after the cache shows them; after Load it gets every object as created.
// It runs on the applying goroutine and must not block. Add hooks before Load.
func (s *Store) OnEvents(hook func([]Event)) { s.hooks = append(s.hooks, hook) }

var errBusy = errors.New("store is being run by another goroutine")

// Load fills the cache from the backend, at one revision.
func (s *Store) Load(ctx context.Context) error {
	if !s.feeding.TryLock() {
		return errBusy
	}
	defer s.feeding.Unlock()
	return s.load(ctx)
}

// Step applies the next revision if the backend has delivered one, and says
// whether it did anything. It loads first if need be. It is Run for callers that
// own every goroutine: tests and the simulator.
func (s *Store) Step(ctx context.Context) (bool, error) {
	if !s.feeding.TryLock() {
		return false, errBusy
	}
	defer s.feeding.Unlock()
	if !s.isSynced {
		return true, s.load(ctx)
	}
	if s.feed == nil {
		// The watch outlives this step, and so this step's context.
		if err := s.open(context.WithoutCancel(ctx)); err != nil {
			return false, err
		}
	}
	select {
	case b, ok := <-s.feed.batches:
		return true, s.take(ctx, b, ok)
	default:
		return false, nil
	}
}

// Bounds of the wait between two tries to reach the backend.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
)

// Run keeps the cache up with the backend until ctx ends; then it returns nil.
// While the backend is away the cache stays as it was. It returns an error only
// for what trying again cannot mend, such as a value that does not decode.
func (s *Store) Run(ctx context.Context) error {
	if !s.feeding.TryLock() {
		return errBusy
	}
	defer s.feeding.Unlock()
	defer s.closeFeed()
	wait := retryFirst
	for ctx.Err() == nil {
		err := s.follow(ctx, func() {
			if wait != retryFirst {
				s.log.Info("store is back")
			}
			wait = retryFirst
		})
		if ctx.Err() != nil {
			break
		}
		if !transient(err) {
			return err
		}
		if wait == retryFirst {
			s.log.Warn("store is away; what is known stays in use", "error", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		wait = min(2*wait, retryMost)
	}
	return nil
}

// follow applies batches until something breaks. alive is called after each.
func (s *Store) follow(ctx context.Context, alive func()) error {
	if !s.isSynced {
		if err := s.load(ctx); err != nil {
			return err
		}
	}
	if s.feed == nil {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-s.feed.batches:
			if err := s.take(ctx, b, ok); err != nil {
				return err
			}
			if s.feed == nil {
				if err := s.open(ctx); err != nil {
					return err
				}
			}
			alive()
		}
	}
}

func transient(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrCompacted)
}

func (s *Store) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	batches, err := s.kv.Watch(ctx, Prefix, s.next)
	if err != nil {
		cancel()
		return fmt.Errorf("watch the store: %w", err)
	}
	s.feed = &feed{batches: batches, cancel: cancel}
	return nil
}

func (s *Store) closeFeed() {
	if s.feed != nil {
		s.feed.cancel()
		s.feed = nil
	}
}

// take applies one batch off the feed, or mends or reports the feed's end.
func (s *Store) take(ctx context.Context, b Batch, ok bool) error {
	switch {
	case !ok:
		s.closeFeed()
		return fmt.Errorf("watch the store: ended: %w", ErrUnavailable)
	case errors.Is(b.Err, ErrCompacted):
		s.closeFeed()
		return s.load(ctx)
	case b.Err != nil:
		s.closeFeed()
		return fmt.Errorf("watch the store: %w", b.Err)
	}
	return s.apply(ctx, b)
}
