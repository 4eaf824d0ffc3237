package forge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Intents keeps the statuses that forges shall show in the store, each under its
// Key, with the leader's fence in every write (R4).
type Intents interface {
	// Put stores an intent in the place of what is under its Key.
	Put(ctx context.Context, i Intent) error
	// Done marks an intent as settled. It does nothing when what is stored under its
	// Key has another Attempt or Revision, or is not there.
	Done(ctx context.Context, i Intent) error
	// Drop forgets what is under a key, if anything is.
	Drop(ctx context.Context, key string) error
	// List gives all intents, settled ones too, also those of other contexts.
	List(ctx context.Context) ([]Intent, error)
}

// StatusConfig says for whom and to whom. Cluster, URL, TokenFile, Intents and
// Fence must be set.
type StatusConfig struct {
	Cluster, Path string // of the source; they name the context
	URL           string // of the repository, as the source names it; credentials in it are not used
	Kind          Kind   // zero: known by the host, or found out by asking it
	API           string // base of the forge's API; empty: derived from URL
	TokenFile     string // one line; read for each request

	Intents   Intents
	Fence     func(ctx context.Context) error // nil while we are the leader, asked of the store's majority
	Tell      func(problem string)            // told by Run when Problem has changed, but of no single failure to reach the forge; may be nil
	Transport http.RoundTripper               // default http.DefaultTransport
	Log       *slog.Logger
}

// Statuses writes the statuses of one context to one repository. Report may be
// called by anyone at any time; Run by one, on the leader.
type Statuses struct {
	cfg        StatusConfig
	where      location
	repository string
	context    string
	token      *secretFile
	client     *http.Client
	wake       chan struct{} // capacity 1: there may be something to send

	writing chan struct{} // one place: one write of intents at a time

	mu      sync.Mutex // never held while calling out
	loaded  bool
	entries map[string]*entry // by commit
	problem string

	gate gate   // of the one caller of Run
	told string // likewise: the problem that Tell knows
}

// NewStatuses checks the configuration. It speaks with nobody yet.
func NewStatuses(c StatusConfig) (*Statuses, error) {
	if c.Cluster == "" || c.TokenFile == "" || c.Intents == nil || c.Fence == nil {
		return nil, errors.New("commit statuses need a cluster, a token file, intents and a fence")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	where, err := locate(c.URL)
	if err != nil {
		return nil, fmt.Errorf("commit statuses: %w", err)
	}
	if c.API, err = checkBase(c.API); err != nil {
		return nil, fmt.Errorf("commit statuses: %w", err)
	}
	if c.Kind == "" {
		c.Kind = kindOf(where.host)
	}
	if c.Kind == "" && c.API != "" {
		return nil, errors.New("commit statuses: --forge-api needs --forge, to say which API that is")
	}
	s := &Statuses{
		cfg: c, where: where, repository: where.String(), context: Context(c.Cluster, c.Path),
		token:   &secretFile{path: c.TokenFile, log: c.Log},
		client:  newClient(c.Transport),
		wake:    make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
		entries: map[string]*entry{},
	}
	if c.Kind != "" { // else Run finds out
		at, err := endpointOf(c.Kind, where, c.API)
		if err != nil {
			return nil, fmt.Errorf("commit statuses: %w", err)
		}
		s.use(at)
	}
	return s, nil
}

// Report takes in what the syncer says about a commit, and stores what is to be
// sent. It does not wait for the forge. After an error the same report, or a newer
// one, must be made again.
func (s *Statuses) Report(ctx context.Context, r Report) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("report a status: %w", err)
	}
	defer s.end()
	if err := s.load(ctx); err != nil {
		return err
	}
	state, description := describe(r)
	want := Intent{
		Key: keyOf(s.repository, s.context, r.Commit), Repository: s.repository, Context: s.context,
		Commit: r.Commit, Ref: r.Ref, Attempt: r.Attempt, Revision: r.Revision,
		State: state, Description: description,
	}
	s.mu.Lock()
	have := s.entries[r.Commit]
	next, ok := advance(have, r, want)
	if have == nil && r.Attempt < floor(s.entries) {
		ok = false
	}
	s.mu.Unlock()
	if ok {
		if err := s.cfg.Intents.Put(ctx, next); err != nil {
			return fmt.Errorf("store the status of commit %.12s: %w", r.Commit, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have == nil && ok {
		have = &entry{}
		s.entries[r.Commit] = have
	}
	if have == nil {
		return nil
	}
	if r.Attempt > have.attempt || r.Attempt == have.attempt && r.Revision > have.revision {
		have.attempt, have.revision = r.Attempt, r.Revision
	}
	if ok {
		have.intent, have.retry, have.tries, have.complaint = next, time.Time{}, 0, ""
		s.awake()
	}
	return nil
}

// Problem is why statuses, or that of the newest commit, do not reach the forge, for
// a person; empty while they do.
func (s *Statuses) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != "" {
		return s.problem
	}
	var last *entry
	for _, e := range s.entries {
		if last == nil || newest(e.intent, last.intent) < 0 {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return last.complaint
}

// load reads the intents of this repository and context, once. The caller has
// begun.
func (s *Statuses) load(ctx context.Context) error {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if loaded {
		return nil
	}
	all, err := s.cfg.Intents.List(ctx)
	if err != nil {
		return fmt.Errorf("list the statuses to send: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range all {
		if i.Repository != s.repository || i.Context != s.context || i.Key != keyOf(i.Repository, i.Context, i.Commit) {
			continue
		}
		e := &entry{intent: i, attempt: i.Attempt, revision: i.Revision}
		if !i.Settled {
			e.hold = time.Now().Add(requestTimeout)
		}
		s.entries[i.Commit] = e
	}
	s.loaded = true
	s.awake()
	return nil
}

// begin waits for the place to write; end gives it back.
func (s *Statuses) begin(ctx context.Context) error {
	select {
	case s.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Statuses) end() { <-s.writing }

func (s *Statuses) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
