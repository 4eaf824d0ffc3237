package syncer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/forge"
	"headway.dev/headway/syncer/git"
)

// Bounds of a Noter.
const (
	maxReceipts = 200 // in the store; the notes keep all
	noterPause  = 100 * time.Millisecond
)

// NoterConfig is what a Noter needs. Syncer, Store, Fence and Notes must be set.
type NoterConfig struct {
	Syncer *Syncer
	Store  interface {
		store.Reader
		store.Writer
	}
	Fence func() store.Fence
	Notes interface {
		WriteNote(ctx context.Context, commit string, content []byte, as git.Identity, when time.Time, ready func(context.Context) error) error
	}
	Cluster string
	// Prepare is called before the first note of each Run, until it returns nil; it
	// takes over the notes that are elsewhere. May be nil.
	Prepare func(ctx context.Context) error
	// Wrote is told that a note was written. May be nil.
	Wrote func()
	// Statuses makes the sender of commit statuses, for one Run, which says with tell
	// why they do not reach the forge, or "" when they do; nil: none are sent.
	Statuses func(tell func(problem string)) (Statuses, error)
	Seed     uint64 // of the jitter
	Metrics  prometheus.Registerer
	Now      store.Clock
	Log      *slog.Logger
}

// Statuses carries commit statuses to a forge.
type Statuses interface {
	Report(ctx context.Context, r forge.Report) error
	Run(ctx context.Context) error
}

// Noter completes the receipts: how the rollout went, which images ran, which Jobs
// are done. It writes them as notes on their commits, and says them as commit
// statuses, and alone writes the Source's status.commitStatus. It belongs to the
// leader.
//
// A receipt is in the store before its note is written (R4). The note is compared
// by content, the notes' ref moves from its old value only, and the fence is
// checked in between: so a kill between any two steps, and a leader that was
// deposed, leave the right note, once.
type Noter struct {
	cfg  NoterConfig
	loop *reconcile.Loop

	mu       sync.Mutex
	watching store.Key // the receipt whose rollout is watched; zero: none
	problem  string    // why commit statuses do not reach the forge

	// Used by the one worker, or the one caller of Step.
	run      *rollout
	looked   time.Time
	settled  string // resource version of run's receipt when all was done for it
	prepared bool
	statuses Statuses
}

// NewNoter makes a Noter.
func NewNoter(cfg NoterConfig) *Noter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Noter{cfg: cfg}
	n.loop = reconcile.New(reconcile.Config{
		Name: cfg.Syncer.named("noter"), Reconciler: n, Watches: n.watches(), List: n.all,
		Resync: 10 * time.Minute, Workers: 1, Log: cfg.Log, Now: cfg.Now, Seed: cfg.Seed, Metrics: cfg.Metrics,
	})
	return n
}

// Handle is for store.OnEvents.
func (n *Noter) Handle(events []store.Event) { n.loop.Handle(events) }

// Step does one piece of work, and says whether there was any.
func (n *Noter) Step(ctx context.Context) bool { return n.loop.Step(ctx) }

// Next is when Step has something to do although no event came.
func (n *Noter) Next() time.Time { return n.loop.Next() }

// Run works until ctx ends. Only the leader runs it.
func (n *Noter) Run(ctx context.Context) error {
	n.run, n.settled, n.prepared, n.statuses = nil, "", false, nil
	n.tell("")
	group, ctx := errgroup.WithContext(ctx)
	if n.cfg.Statuses != nil {
		s, err := n.cfg.Statuses(n.tell)
		if err != nil {
			return err
		}
		n.statuses = s
		group.Go(func() error { return s.Run(ctx) })
	}
	group.Go(func() error { return n.loop.Run(ctx) })
	return group.Wait()
}

func (n *Noter) watches() []reconcile.Watch {
	out := []reconcile.Watch{
		{Resource: api.Receipts(), Keys: func(e store.Event) []reconcile.Key {
			if !strings.HasPrefix(e.Key.Name, receiptKey(n.cfg.Syncer.cfg.Source, "").Name) {
				return nil // another source's
			}
			keys := []reconcile.Key{e.Key}
			if e.Previous == nil {
				keys = append(keys, n.cfg.Syncer.key) // there may be too many now
			}
			return keys
		}},
		{Resource: api.Sources(), Keys: func(e store.Event) []reconcile.Key {
			if e.Key != n.cfg.Syncer.key {
				return nil
			}
			return append(n.open(), n.cfg.Syncer.key)
		}},
		{Resource: api.DoneRecords(), Keys: func(store.Event) []reconcile.Key { return n.applied() }},
	}
	for _, k := range api.Kinds() {
		if k.Declarable {
			out = append(out, reconcile.Watch{Resource: k.GroupResource(), Keys: n.touched})
		}
	}
	return out
}

// touched wakes the receipt whose rollout is watched.
func (n *Noter) touched(store.Event) []reconcile.Key {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watching == (store.Key{}) {
		return nil
	}
	return []reconcile.Key{n.watching}
}

func (n *Noter) watch(key store.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watching = key
}

// applied is the receipt of the applied commit.
func (n *Noter) applied() []reconcile.Key {
	src := n.cfg.Syncer.source()
	if src == nil || src.Status.Applied == "" {
		return nil
	}
	return []reconcile.Key{receiptKey(src.Name, src.Status.Applied)}
}

// open are the receipts that an event of the Source may concern.
func (n *Noter) open() []reconcile.Key {
	keys := n.applied()
	for _, r := range n.receipts() {
		if !r.Result.Final() {
			keys = append(keys, store.KeyOf(r))
		}
	}
	return keys
}

// all is every receipt, and the Source.
func (n *Noter) all() []reconcile.Key {
	keys := []reconcile.Key{n.cfg.Syncer.key}
	for _, r := range n.receipts() {
		keys = append(keys, store.KeyOf(r))
	}
	return keys
}

// receipts are those of the source.
func (n *Noter) receipts() []*api.Receipt { return n.cfg.Syncer.receipts() }

func (s *Syncer) receipts() []*api.Receipt {
	var out []*api.Receipt
	for _, obj := range s.cfg.Store.List(api.Receipts(), "") {
		if r, ok := obj.(*api.Receipt); ok && r.Source == s.cfg.Source {
			out = append(out, r)
		}
	}
	return out
}

// Reconcile completes one receipt, and tells of it.
func (n *Noter) Reconcile(ctx context.Context, key reconcile.Key) error {
	if key.GroupResource == api.Sources() {
		return n.tidy(ctx)
	}
	r, ok := n.cfg.Store.Get(key).(*api.Receipt)
	if !ok {
		return nil
	}
	if left := n.rest(r); left > 0 {
		return reconcile.After(left, "the next look at the rollout")
	}
	n.settled = ""
	next, doing := n.complete(r)
	if !bytes.Equal(NoteText(next), NoteText(r.ReceiptContent)) {
		out := r.DeepCopyObject().(*api.Receipt)
		out.ReceiptContent = next
		return n.write(ctx, out) // whose event brings us back
	}
	if err := n.report(ctx, r, doing); err != nil {
		return err
	}
	if err := n.note(ctx, r); err != nil {
		return err
	}
	if n.run != nil && n.run.commit == r.Commit {
		n.settled = r.ResourceVersion
	}
	return nil
}

// rest is how long a receipt under watch, for which all is done, need not be looked
// at: a rollout changes the store many times a second.
func (n *Noter) rest(r *api.Receipt) time.Duration {
	n.mu.Lock()
	watched := n.watching == store.KeyOf(r)
	n.mu.Unlock()
	left := noterPause - n.cfg.Now().Sub(n.looked)
	if !watched || n.settled != r.ResourceVersion || left > noterPause {
		return 0
	}
	return left
}

func (n *Noter) write(ctx context.Context, r *api.Receipt) error {
	_, err := n.cfg.Store.Commit(ctx, store.Txn{Fence: n.cfg.Fence(), Ops: []store.Op{{Verb: store.Update, Object: r}}})
	return err
}

// note writes the note of a receipt, when the receipt is not known to have it. A
// commit that is being applied has none yet.
func (n *Noter) note(ctx context.Context, r *api.Receipt) error {
	if r.Result == api.ResultApplying {
		return nil
	}
	text := NoteText(r.ReceiptContent)
	hash := noteHash(text)
	if r.Noted == hash {
		return nil
	}
	if !n.prepared && n.cfg.Prepare != nil {
		if err := n.cfg.Prepare(ctx); err != nil {
			return fmt.Errorf("take over the notes of before: %w", err)
		}
	}
	n.prepared = true
	as := git.Identity{Name: "Headway", Mail: "headway@" + n.cfg.Cluster}
	if err := n.cfg.Notes.WriteNote(ctx, r.Commit, text, as, n.cfg.Now(), n.holds); err != nil {
		if errors.Is(err, git.ErrNotFound) {
			return reconcile.Terminal(err) // the repository has lost the commit
		}
		return err
	}
	if n.cfg.Wrote != nil {
		n.cfg.Wrote()
	}
	out := r.DeepCopyObject().(*api.Receipt)
	out.Noted = hash
	return n.write(ctx, out)
}

// holds asks the store whether we lead still.
func (n *Noter) holds(ctx context.Context) error { return Holds(ctx, n.cfg.Store, n.cfg.Fence()) }

// Holds asks the store's majority whether a fence holds; the error is of class
// store.ErrFenced when it does not.
func Holds(ctx context.Context, w store.Writer, fence store.Fence) error {
	if _, err := w.Commit(ctx, store.Txn{Fence: fence}); err != nil {
		return fmt.Errorf("check that we are the leader: %w", err)
	}
	return nil
}

// tidy drops the oldest receipts beyond those that are kept, reports a commit that
// is seen and not begun, and notes why commit statuses do not reach the forge.
func (n *Noter) tidy(ctx context.Context) error {
	if err := n.noteProblem(ctx); err != nil {
		return err
	}
	if err := n.reportHead(ctx); err != nil {
		return err
	}
	all := n.receipts()
	if len(all) <= maxReceipts {
		return nil
	}
	slices.SortFunc(all, func(a, b *api.Receipt) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), strings.Compare(a.Name, b.Name))
	})
	src := n.cfg.Syncer.source()
	var ops []store.Op
	for _, r := range all[:len(all)-maxReceipts] {
		if src != nil && (r.Commit == src.Status.Applied || r.Commit == src.Status.Applying) {
			continue
		}
		if ops = append(ops, store.Op{Verb: store.Delete, Object: r}); len(ops) == store.BulkObjects {
			break
		}
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := n.cfg.Store.Commit(ctx, store.Txn{Fence: n.cfg.Fence(), Ops: ops})
	return err
}
