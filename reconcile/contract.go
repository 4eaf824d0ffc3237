package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/store"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key is what a Loop works on: any comparable name of an object.
type Key = store.Key

// Reconciler brings one key's actual state towards the wanted one.
//
// It returns nil when there is nothing left to do, Terminal when only a change
// in the repository can help (no retry until the next event or resync), After to
// be called again in a while, and any other error to be retried with backoff.
// A write that failed because the cache was behind (store.ErrConflict, and a key's
// ErrExists or ErrNotFound) is retried at once and not logged, unless it goes on
// and on.
type Reconciler interface {
	Reconcile(ctx context.Context, key Key) error
}

// Watch says which keys an event wakes.
type Watch struct {
	Resource schema.GroupResource
	Keys     func(store.Event) []Key
}

// Config is what a Loop needs. Name, Reconciler and List are required.
type Config struct {
	Name       string // of the component, for logs and metrics: "deployment"
	Reconciler Reconciler
	Watches    []Watch
	// List gives every key there is, for start and resync. Events that come
	// before the first Run or Step are dropped, since List finds what they meant.
	List    func() []Key
	Resync  time.Duration         // default 5 minutes
	Workers int                   // default 2
	Log     *slog.Logger          // nil: silent
	Now     store.Clock           // nil: time.Now
	Seed    uint64                // of the jitter
	Metrics prometheus.Registerer // nil: none
}

type terminal struct{ error }

func (t terminal) Unwrap() error { return t.error }

// Terminal marks an error that only a change in the repository can mend.
func Terminal(err error) error { return terminal{err} }

// IsTerminal says whether err was marked by Terminal.
func IsTerminal(err error) bool { var t terminal; return errors.As(err, &t) }

// Wait is the error of After.
type Wait struct {
	Delay time.Duration
	Why   string
}

func (w *Wait) Error() string { return "waiting " + w.Delay.String() + ": " + w.Why }

// After asks to be called again after d; why says what for.
func After(d time.Duration, why string) error { return &Wait{Delay: d, Why: why} }
