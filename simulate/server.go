package simulate

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/controllers/cronjob"
	"headway.dev/headway/controllers/daemonset"
	"headway.dev/headway/controllers/deployment"
	"headway.dev/headway/controllers/disruption"
	"headway.dev/headway/controllers/endpointslice"
	"headway.dev/headway/controllers/eviction"
	"headway.dev/headway/controllers/garbage"
	"headway.dev/headway/controllers/job"
	"headway.dev/headway/controllers/namespace"
	nodecontroller "headway.dev/headway/controllers/node"
	"headway.dev/headway/controllers/podgarbage"
	"headway.dev/headway/controllers/quota"
	"headway.dev/headway/controllers/replicaset"
	"headway.dev/headway/controllers/statefulset"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/scheduler"
	"headway.dev/headway/server/nodes"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer"
)

const (
	leadershipTTL = 10 * time.Second
	lookAgain     = 20 * time.Second // at a part that had nothing to do
)

// server is one server process: its cache, the sessions of nodes and, while it
// leads, the leader's parts.
type server struct {
	w    *World
	name string
	skew time.Duration // of its wall clock

	up      bool
	halted  time.Time // stands still until then
	life    context.Context
	stop    context.CancelFunc
	conn    *conn
	store   *store.Store
	loaded  bool
	cacheAt time.Time // next try after the cache could not be brought up to date
	nodes   *nodes.Nodes
	syncer  *syncer.Syncer
	refs    *syncer.Refs
	parts   []*part
	links   []*link

	term    *store.Leadership
	renewAt time.Time
	standAt time.Time
}

// part is a component of the leader.
type part struct {
	name string
	step func(context.Context) bool
	next func() time.Time
	halt func()
	idle time.Time // nothing to do until then, unless the cache changes
}

func newServer(w *World, name string) *server {
	s := &server{w: w, name: name}
	s.boot()
	return s
}

func (s *server) now() time.Time { return time.Now().Add(s.skew) }

// fence is the right that the server believes to have.
func (s *server) fence() store.Fence {
	if s.term != nil {
		return s.term.Fence
	}
	return store.Fence{Key: store.ElectionKey, Revision: 1<<63 - 1}
}

// boot starts the process: nothing of an earlier one is left.
func (s *server) boot() {
	w := s.w
	s.up, s.loaded, s.term, s.links = true, false, nil, nil
	s.life, s.stop = context.WithCancel(context.Background())
	s.conn = &conn{w: w, s: s}
	s.store = store.New(s.conn, store.Options{Now: s.now, Log: w.log(s.name), Allocate: admission.DefaultServices().Allocate, Bounds: store.Bounds{Limit: admission.Limit, Charge: admission.Charge}})
	s.standAt = time.Now().Add(w.between(0, 2*time.Second))
	s.parts = nil
	own := func(name string) *writer { return &writer{Store: s.store, s: s, part: name} }
	add := func(name string, c interface {
		Step(context.Context) bool
		Next() time.Time
		Halt()
		Handle([]store.Event)
	}) {
		s.store.OnEvents(c.Handle)
		s.parts = append(s.parts, &part{name: name, step: c.Step, next: c.Next, halt: c.Halt})
	}
	s.syncer = syncer.New(syncer.Config{Store: own("syncer"), Commits: w.user.repository, Fence: s.fence, Now: s.now, Log: w.log(s.name + "/syncer"), Server: s.name, Seed: w.seed})
	s.refs = &syncer.Refs{Store: s.store, Now: s.now}
	add("syncer", s.syncer)
	for _, c := range []struct {
		name string
		loop *reconcile.Loop
	}{
		{"namespace", namespace.New(namespace.Config{Store: own("namespace"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/namespace")})},
		{"garbage", garbage.New(garbage.Config{Store: own("garbage"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/garbage")})},
		{"deployment", deployment.New(deployment.Config{Store: own("deployment"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/deployment"), Random: w.rand.Uint64})},
		{"replicaset", replicaset.New(replicaset.Config{Store: own("replicaset"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/replicaset"), Random: w.rand.Uint64})},
		{"job", job.New(job.Config{Store: own("job"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/job"), Random: w.rand.Uint64})},
		{"cronjob", cronjob.New(cronjob.Config{Store: own("cronjob"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/cronjob")})},
		{"statefulset", statefulset.New(statefulset.Config{Store: own("statefulset"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/statefulset")})},
		{"daemonset", daemonset.New(daemonset.Config{Store: own("daemonset"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/daemonset"), Random: w.rand.Uint64})},
		{"disruption", disruption.New(disruption.Config{Store: own("disruption"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/disruption")})},
		{"eviction", eviction.New(eviction.Config{Store: own("eviction"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/eviction")})},
		{"podgarbage", podgarbage.New(podgarbage.Config{Store: own("podgarbage"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/podgarbage")})},
		{"endpointslice", endpointslice.New(endpointslice.Config{Store: own("endpointslice"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/endpointslice"), Suffix: w.suffix})},
		{"quota", quota.New(quota.Config{Store: own("quota"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/quota")})},
		{"node", nodecontroller.New(nodecontroller.Config{Store: own("node"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/node")})},
		{"scheduler", scheduler.New(scheduler.Config{Store: own("scheduler"), Fence: s.fence, Now: s.now, Log: w.log(s.name + "/scheduler")})},
	} {
		add(c.name, c.loop)
	}
	s.nodes = nodes.New(nodes.Config{Store: &waiting{Store: s.store, s: s}, Authority: nobody{}, Now: s.now, Pause: w.pause, Log: w.log(s.name + "/nodes")})
	s.store.OnEvents(s.nodes.Handle)
	s.store.OnEvents(func([]store.Event) {
		for _, p := range s.parts {
			p.idle = time.Time{}
		}
		for _, l := range s.links {
			l.news = true
		}
	})
}

// suffix ends a pod's name.
func (w *World) suffix() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[w.rand.IntN(len(letters))]
	}
	return string(b)
}

// nobody is the authority of sessions that have no certificates.
type nobody struct{}

func (nobody) PEM() []byte          { return nil }
func (nobody) Pool() *x509.CertPool { return x509.NewCertPool() }
func (nobody) NodeRequest([]byte, string, time.Time) ([]byte, error) {
	return nil, errors.New("nobody issues certificates here")
}

// waiting is the store as sessions use it: they may wait for the cache.
type waiting struct {
	*store.Store
	s *server
}

func (v *waiting) WaitRevision(ctx context.Context, revision int64) error {
	for v.Revision() < revision {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !v.s.refresh() {
			v.s.w.pause(ctx, 50*time.Millisecond)
		}
	}
	return nil
}

// refresh brings the cache one revision further, and says whether it could.
func (s *server) refresh() bool {
	s.conn.deliver()
	more, err := s.store.Step(s.life)
	if err != nil {
		if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrCompacted) {
			s.w.fail("the cache can be read", "%s: %v", s.name, err)
		}
		return false
	}
	select {
	case <-s.store.Synced():
		s.loaded = true
	default:
	}
	return more
}

// ready adds what the server can do now.
func (s *server) ready(now time.Time, out []choice) []choice {
	if !s.up || s.halted.After(now) {
		return out
	}
	add := func(part string, do func()) { out = append(out, choice{actor{s, part}, do}) }
	if !s.cacheAt.After(now) && (!s.loaded || s.conn.waiting()) {
		add("cache", func() {
			if !s.refresh() && (!s.loaded || s.conn.waiting()) {
				s.cacheAt = time.Now().Add(s.w.between(50*time.Millisecond, 2*time.Second))
			}
		})
	}
	switch {
	case s.term == nil:
		if s.loaded && !s.standAt.After(now) {
			add("election", s.stand)
		}
	case over(s.term.Done()):
		add("election", s.stepDown)
	default:
		if !s.renewAt.After(now) {
			add("election", s.renew)
		}
		for _, p := range s.parts {
			if !p.idle.After(now) && !s.w.withheld(s, p.name) {
				add(p.name, func() { s.work(p) })
			}
		}
	}
	for _, l := range s.links {
		out = l.serverReady(now, out)
	}
	return out
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (s *server) next(sooner func(time.Time)) {
	if !s.up {
		return
	}
	at := func(t time.Time) {
		if s.halted.After(t) {
			t = s.halted
		}
		sooner(t)
	}
	if !s.loaded || s.conn.waiting() {
		at(s.cacheAt)
	}
	if s.term == nil {
		if s.loaded {
			at(s.standAt)
		}
		return
	}
	at(s.renewAt)
	for _, p := range s.parts {
		if !s.w.withheld(s, p.name) {
			at(p.idle)
		}
	}
}

// work has a part do one thing.
func (s *server) work(p *part) {
	if p.step(s.life) {
		return
	}
	p.idle = time.Now().Add(lookAgain)
	if next := p.next(); !next.IsZero() {
		if at := next.Add(-s.skew); at.Before(p.idle) { // next is by the server's clock
			p.idle = at
		}
	}
}

func (s *server) stand() {
	w := s.w
	s.standAt = time.Now().Add(w.between(200*time.Millisecond, 2*time.Second))
	term, err := s.store.Stand(s.life, s.name, leadershipTTL)
	if err != nil || term == nil {
		return
	}
	s.term, s.renewAt = term, time.Now().Add(leadershipTTL/3)
	w.trace.add(s.name, "leads, fence %d", term.Fence.Revision)
}

func (s *server) renew() {
	again, ok := s.term.Renew(s.life)
	if ok {
		s.renewAt = time.Now().Add(again)
	}
}

// stepDown ends what the server does as the leader.
func (s *server) stepDown() {
	s.w.trace.add(s.name, "does not lead any more")
	s.term = nil
	s.standAt = time.Now().Add(s.w.between(200*time.Millisecond, 2*time.Second))
	for _, p := range s.parts {
		p.halt()
		p.idle = time.Time{}
	}
}

// kill ends the process at once.
func (s *server) kill() {
	if !s.up {
		return
	}
	s.up, s.loaded = false, false
	s.stop()
	if s.conn.feed != nil {
		s.conn.feed.cancel()
	}
	for _, l := range slices.Clone(s.links) {
		l.serverGone = true
	}
	s.links = nil
}
