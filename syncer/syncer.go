package syncer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config is what a Syncer needs. Store and Commits must be set.
type Config struct {
	Store interface {
		store.Reader
		store.Writer
	}
	Commits Commits
	// Fence is the leader's right to write (R4). Judge, Status and Follow work
	// without.
	Fence func() store.Fence
	// Fetch brings the newest commit of the source's ref from a forge, as that was at
	// most maxAge ago. Nil means the hosted repository, whose refs are GitRef objects.
	Fetch func(ctx context.Context, spec api.SourceSpec, maxAge time.Duration) (commit string, err error)
	// Capacity asks the scheduler whether new pods would fit; nil: nobody asks.
	Capacity Capacity
	// Receipts gives the Jobs that are done according to the receipt of a commit, or
	// of the nearest one before it that has a receipt. It is asked as long as nothing
	// has been applied: a new cluster on an old repository (R3). May be nil.
	Receipts func(ctx context.Context, commit string) ([]Done, error)
	// Services says which cluster IPs and node ports there are; the zero value: the
	// default ranges.
	Services admission.Services
	Server   string // this server's name, for the receipts
	Source   string // name of the Source object; default api.MainSource
	// Spec is what the Source object must say. The syncer of the main source writes it,
	// and the objects of the further sources that its commits name. That of a further
	// one rests while the object says something else, or is going.
	Spec   api.SourceSpec
	Poll   time.Duration // how often Fetch is called; default 10 s
	Resync time.Duration // how often every declared object is looked at; default 5 minutes
	Seed   uint64        // of the jitter
	// Metrics takes the loop's metrics; may be nil.
	Metrics prometheus.Registerer
	Now     store.Clock
	Log     *slog.Logger
}

// Syncer brings the cluster to the newest commit of its source. Judge, Status
// and Follow may be called on every server; Run and Step belong to the leader.
type Syncer struct {
	cfg  Config
	loop *reconcile.Loop
	key  store.Key
	bulk int // objects in one transaction

	renders     renders
	plans       plans
	watch       watchers
	ledger      ledger
	provenances provenances
	resync      time.Duration

	// Used by the one caller of Run or Step.
	poll      poll
	desired   *desired          // of the applied commit; nil until it is needed
	refused   refusal           // the last one
	held      refusal           // the commit that was found good while paused
	pause     *api.Pause        // that held at the last look
	answering string            // orders.sync that is being answered
	author    authorship        // of the applied commit
	kept      string            // the applied commit for which Keep was called
	checked   map[store.Key]tag // objects as they were when they needed nothing
	told      map[store.Key]string
	looked    map[store.Key]time.Time // when an object that drifts was looked at
	later     map[store.Key]time.Time // objects to look at again, and when
	back      bool                    // a half applied commit is being taken back
	hindrance time.Time               // when it was written what keeps a commit from being applied
	others    bool                    // the further sources are to be looked at
	events    *event.Recorder

	mu      sync.Mutex
	wrote   int64                      // our newest write
	own     map[int64]bool             // our writes whose events have not come yet
	dirty   map[store.Key]bool         // declared objects that changed
	ended   map[store.Key]*batchv1.Job // Jobs that are gone and had finished
	blocked map[string][]store.Key     // by the namespace that must be there again first
	verify  bool                       // look at every object again
	known   *desired                   // desired, for the events' side
}

// authorship remembers who wrote a commit.
type authorship struct{ commit, name string }

// tag is a version of a live object and of its manifest.
type tag struct {
	version, hash string
	scaled        bool // an autoscaler set its replicas
}

// New makes a Syncer.
func New(cfg Config) *Syncer {
	if cfg.Source == "" {
		cfg.Source = api.MainSource
	}
	if cfg.Poll <= 0 {
		cfg.Poll = 10 * time.Second
	}
	if cfg.Resync <= 0 {
		cfg.Resync = 5 * time.Minute
	}
	if !cfg.Services.CIDR().IsValid() {
		cfg.Services = admission.DefaultServices()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Fence == nil {
		cfg.Fence = func() store.Fence { return store.Fence{} }
	}
	s := &Syncer{
		cfg:     cfg,
		key:     store.Key{GroupResource: api.Sources(), Name: cfg.Source},
		bulk:    store.BulkObjects,
		resync:  cfg.Resync,
		poll:    newPoll(cfg.Poll, cfg.Seed),
		checked: map[store.Key]tag{},
		told:    map[store.Key]string{},
		looked:  map[store.Key]time.Time{},
		later:   map[store.Key]time.Time{},
		events:  &event.Recorder{Store: cfg.Store, Fence: cfg.Fence, Now: cfg.Now, Component: "headway-syncer", Log: cfg.Log},
		own:     map[int64]bool{},
		dirty:   map[store.Key]bool{},
		ended:   map[store.Key]*batchv1.Job{},
		blocked: map[string][]store.Key{},
	}
	s.loop = reconcile.New(reconcile.Config{
		Name:       s.named("syncer"),
		Reconciler: s,
		Watches:    s.watches(),
		List:       func() []reconcile.Key { s.lookAtAll(); return []reconcile.Key{s.key} },
		Resync:     cfg.Resync,
		Workers:    1,
		Log:        cfg.Log,
		Now:        cfg.Now,
		Seed:       cfg.Seed,
		Metrics:    cfg.Metrics,
	})
	return s
}

// Run follows the source until ctx ends. Only the leader runs it.
func (s *Syncer) Run(ctx context.Context) error {
	s.forget()
	return s.loop.Run(ctx)
}

// Halt ends a stretch of Steps as the end of Run does: the next Step starts afresh.
func (s *Syncer) Halt() {
	s.forget()
	s.loop.Halt()
}

// forget drops what an earlier term of this server knew.
func (s *Syncer) forget() {
	s.desired, s.refused, s.kept, s.held, s.answering = nil, refusal{}, "", refusal{}, ""
	clear(s.looked)
	clear(s.later)
	s.mu.Lock()
	s.wrote, s.known = 0, nil
	clear(s.own)
	s.mu.Unlock()
}

// Step does one piece of work, and says whether there was any.
func (s *Syncer) Step(ctx context.Context) bool { return s.loop.Step(ctx) }

// Next is when Step has something to do although no event came.
func (s *Syncer) Next() time.Time { return s.loop.Next() }

// Handle is for store.OnEvents, on every server.
func (s *Syncer) Handle(events []store.Event) {
	s.ledger.note(events, s.odd)
	s.provenances.note(events, s.commitOf)
	s.loop.Handle(events)
	s.watch.notify()
}

// AllowRewind says whether the operator allows the hosted ref to move to a commit
// that is no descendant (R1).
func (s *Syncer) AllowRewind(commit string) bool {
	src := s.source()
	return src != nil && allowance(src, commit).Rewind
}

// Follows says whether ref is the one that the cluster follows.
func (s *Syncer) Follows(ref string) bool {
	src := s.source()
	if src == nil {
		src = &api.Source{Spec: s.cfg.Spec}
	}
	return s.cfg.Fetch == nil && ref == refOf(src)
}

func refOf(src *api.Source) string {
	if src.Spec.Ref == "" {
		return "refs/heads/main"
	}
	return src.Spec.Ref
}

func (s *Syncer) source() *api.Source {
	src, _ := s.cfg.Store.Get(s.key).(*api.Source)
	return src
}

// Reconcile moves towards the newest commit, or heals what drifted from the
// applied one.
func (s *Syncer) Reconcile(ctx context.Context, _ reconcile.Key) error {
	if s.behind() {
		return reconcile.After(5*time.Millisecond, "the cache is behind our own write")
	}
	src := s.source()
	if !s.follows(src) {
		if s.cfg.Spec.Further() {
			return nil // whoever writes the object starts another syncer, or none
		}
		return s.declareSource(ctx, src)
	}
	pause := s.pausing(src)
	if out, ended := remember(src, s.cfg.Now()); out != nil {
		return s.writePause(ctx, out, ended) // which wakes us
	}
	s.asked(src)
	s.reconsider(src)
	head, err := s.head(ctx, src)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return s.unreadable(ctx, src, err)
	}
	if head != "" && head != src.Status.Applied && !s.isRefused(src, head) {
		if pause == nil {
			err = s.advance(ctx, src, head)
		} else {
			err = s.hold(ctx, src, head, pause)
		}
		if err != nil {
			return s.hindered(ctx, src, head, err)
		}
		if pause == nil || s.behind() {
			return s.untilNext(pause)
		}
	} else if err := s.settle(ctx, src, head); err != nil {
		return err
	}
	if src.Status.Applied != "" {
		if err := s.heal(ctx, src); err != nil {
			return err
		}
		if err := s.keepCommits(ctx, src); err != nil {
			return err
		}
	}
	return s.untilNext(pause)
}

// behind says whether the cache has not yet seen our newest write.
func (s *Syncer) behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Store.Revision() < s.wrote
}

// declareSource makes the Source object say what the configuration says.
func (s *Syncer) declareSource(ctx context.Context, src *api.Source) error {
	op := store.Op{Verb: store.Create}
	if src == nil {
		src = &api.Source{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Source}}
		store.Stamp(src, s.cfg.Now())
	} else {
		src, op.Verb = src.DeepCopyObject().(*api.Source), store.Update
		src.Generation++
	}
	src.Spec = s.cfg.Spec
	op.Object = src
	return s.commit(ctx, []store.Op{op})
}

// head is the newest commit of the ref; empty when there is none.
func (s *Syncer) head(ctx context.Context, src *api.Source) (string, error) {
	if s.cfg.Fetch == nil {
		return s.hosted(src), nil
	}
	return s.poll.head(ctx, s.cfg.Now(), func(ctx context.Context, maxAge time.Duration) (string, error) {
		return s.cfg.Fetch(ctx, src.Spec, maxAge)
	})
}

func (s *Syncer) hosted(src *api.Source) string {
	ref, _ := s.cfg.Store.Get(refKey(refOf(src))).(*api.GitRef)
	if ref == nil {
		return ""
	}
	return ref.Commit
}

// untilNext waits for the next look at the forge (the hosted repository wakes us)
// or at an object that drifts, or for the end of the pause.
func (s *Syncer) untilNext(pause *api.Pause) error {
	next, why := s.nextDue(), "until the next look at an object that drifts"
	if s.cfg.Fetch != nil && (next.IsZero() || s.poll.next.Before(next)) {
		next, why = s.poll.next, "until the next look at the repository"
	}
	if pause != nil && (next.IsZero() || pause.Until.Time.Before(next)) {
		next, why = pause.Until.Time, "until the pause is over"
	}
	if next.IsZero() {
		return nil
	}
	return reconcile.After(max(next.Sub(s.cfg.Now()), time.Millisecond), why)
}

// unreadable reports that the forge cannot be read. Nothing else changes (R3):
// the applied commit is healed as before.
func (s *Syncer) unreadable(ctx context.Context, src *api.Source, cause error) error {
	status := src.Status
	status.Message = cause.Error()
	if err := s.writeStatus(ctx, src, status); err != nil {
		return err
	}
	if !s.behind() && src.Status.Applied != "" {
		if err := s.heal(ctx, src); err != nil {
			return err
		}
	}
	return s.untilNext(s.pause)
}

// isRefused says whether head has been refused already, under the same facts.
func (s *Syncer) isRefused(src *api.Source, head string) bool {
	return s.refused == refusalOf(src, head)
}

// advance judges a commit and applies it.
func (s *Syncer) advance(ctx context.Context, src *api.Source, head string) error {
	v, err := s.judge(ctx, src, head, s.cfg.Commits)
	if err != nil {
		return err
	}
	if !v.OK() {
		return s.refuse(ctx, src, v)
	}
	return s.apply(ctx, src, v)
}

// refuse records why a commit is not applied (R2). Nothing else changes.
func (s *Syncer) refuse(ctx context.Context, src *api.Source, v *Verdict) error {
	status := src.Status
	status.Head, status.Refused, status.Applying = v.Commit, v.Commit, ""
	status.Message, status.Problems = v.Summary(), v.reasons()
	var with []store.Op
	if receipt := s.refusedReceipt(src, v); receipt != nil {
		with = append(with, receipt.op())
	}
	if err := s.writeStatus(ctx, src, status, with...); err != nil {
		return err
	}
	s.refused = refusalOf(src, v.Commit)
	if src.Status.Applying != "" {
		s.back = true
		s.lookAtAll() // it superseded one that was half applied: back to the applied one
	}
	return nil
}

// settle clears what the status says of other commits when the newest one is the
// applied one, or the ref is gone.
func (s *Syncer) settle(ctx context.Context, src *api.Source, head string) error {
	status := src.Status
	switch {
	case head == "" && status.Applied != "":
		status.Message = refOf(src) + " does not exist any more; what commit " + short(status.Applied) + " declares stays"
	case head == status.Applied:
		status.Head, status.Refused, status.Applying, status.Message, status.Problems = head, "", "", "", nil
		if s.cfg.Spec.Further() && head != "" {
			if err := s.load(ctx, src); err != nil {
				return err
			}
			status.Message, status.Problems = s.desired.outsideText(src.Name)
		}
	}
	return s.writeStatus(ctx, src, status)
}

// writeStatus writes the status of src when it differs, and other objects with it.
func (s *Syncer) writeStatus(ctx context.Context, src *api.Source, status api.SourceStatus, with ...store.Op) error {
	status.Synced = src.Orders.Sync // every look ends here, or with an applied commit
	if equalObjects(src.Status, status) && len(with) == 0 {
		return nil
	}
	out := src.DeepCopyObject().(*api.Source)
	out.Status = status
	if err := s.write(ctx, out, with...); err != nil {
		return err
	}
	if status.Message != "" && status.Message != src.Status.Message {
		s.cfg.Log.Warn("source", "name", src.Name, "head", status.Head, "applied", status.Applied, "message", status.Message, "problems", status.Problems)
	}
	return nil
}

// write writes the Source.
func (s *Syncer) write(ctx context.Context, src *api.Source, with ...store.Op) error {
	return s.commit(ctx, append([]store.Op{{Verb: store.Update, Object: src}}, with...))
}

// commit writes with the fence, on the condition that others are as they were
// read.
func (s *Syncer) commit(ctx context.Context, ops []store.Op, when ...api.Object) error {
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{Fence: s.cfg.Fence(), If: when, Ops: ops})
	if err != nil {
		return err
	}
	// The cache may show it before its events come.
	for _, op := range ops {
		s.ledger.suspect(store.KeyOf(op.Object))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = rev
	if s.cfg.Store.Revision() < rev {
		s.own[rev] = true
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
