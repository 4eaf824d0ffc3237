package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
)

// Options say what to simulate.
type Options struct {
	Nodes   int           // default 3
	Servers int           // default 3
	Chaos   time.Duration // how long things go wrong; default 8 minutes
	Quiet   bool          // nothing goes wrong
	Dir     string        // for the agents' checkpoints
	Commits *Manifests    // decoded files, to be used by many runs; may be nil
	Plant   Plant         // a wrong decision that the rules must find; "" for none
	Trace   func(string)  // hears every line of the trace; may be nil
}

// Result is how one run went.
type Result struct {
	Seed    uint64
	Failure string // the rule that was broken, and how; "" when none was
	Trace   string // its last lines
	Hash    uint64 // of the whole trace
	Steps   int
	Time    time.Duration // simulated
	Faults  int
	Commits int            // that were applied
	Checked map[string]int // how often each rule had something to say about
}

// World is one run.
type World struct {
	seed  uint64
	opts  Options
	rand  *rand.Rand
	trace trace
	actor actor // whose step it is
	tasks tasks

	kv     *memory.KV
	truth  *store.Store // what is really in the store
	news   []store.Event
	late   []late
	chaos  bool
	faults int
	steps  int
	failed string

	servers []*server
	nodes   []*node
	user    *user
	rules   *rules

	nextFault time.Time
	mend      []mend
}

// mend ends a fault.
type mend struct {
	at   time.Time
	what string
	do   func()
}

// actor is who takes a step: a part of a server, an agent, a person.
type actor struct {
	server *server
	part   string
}

func (a actor) String() string {
	if a.server == nil {
		return a.part
	}
	return a.server.name + "/" + a.part
}

// New makes the world of a seed. It and its run belong in one testing/synctest
// bubble, and no other world may be in the process meanwhile: the uids of objects
// come from the seed.
func New(seed uint64, o Options) *World {
	if o.Nodes <= 0 {
		o.Nodes = 3
	}
	if o.Servers <= 0 {
		o.Servers = 3
	}
	if o.Chaos <= 0 {
		o.Chaos = 8 * time.Minute
	}
	w := &World{seed: seed, opts: o, rand: rand.New(rand.NewPCG(seed, 0x68656164776179)), chaos: !o.Quiet}
	w.trace = trace{began: time.Now(), all: o.Trace}
	w.tasks.yield = make(chan bool)
	w.kv = memory.NewAt(time.Now)
	w.truth = store.New(w.kv, store.Options{Window: 1})
	w.rules = newRules(w)
	w.truth.OnEvents(func(events []store.Event) { w.news = append(w.news, events...) })
	w.user = newUser(w)
	for i := range o.Servers {
		w.servers = append(w.servers, newServer(w, fmt.Sprintf("s%d", i+1)))
	}
	for i := range o.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	return w
}

// random gives uids.
type random struct{ *rand.Rand }

func (r random) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return len(p), nil
}

// Run steps the world until everything is as the last commit says, or a rule is
// broken.
func (w *World) Run() Result {
	uuid.SetRand(random{rand.New(rand.NewPCG(w.seed, 0x75756964))})
	defer uuid.SetRand(nil)
	w.nextFault = time.Now().Add(w.between(10*time.Second, 40*time.Second))
	over := time.Now().Add(w.opts.Chaos)
	for w.failed == "" && time.Now().Before(over) {
		w.step()
	}
	if w.failed == "" {
		w.calm()
		w.converge()
	}
	r := Result{
		Seed: w.seed, Failure: w.failed, Trace: w.trace.text(), Hash: w.trace.hash, Steps: w.steps, Time: time.Since(w.trace.began),
		Faults: w.faults, Commits: w.user.pushed, Checked: w.rules.checked,
	}
	w.close()
	return r
}

// step takes one step of somebody who has something to do; when nobody has, time
// passes.
func (w *World) step() {
	w.steps++
	now := time.Now()
	ready := w.ready(now)
	if len(ready) == 0 {
		w.sleep(w.next(now).Sub(now))
		return
	}
	one := ready[w.rand.IntN(len(ready))]
	w.actor = one.who
	one.do()
	// A step takes its time; now and then a long one.
	took := w.between(20*time.Microsecond, 2*time.Millisecond)
	if w.rand.IntN(200) == 0 {
		took = w.between(10*time.Millisecond, time.Second)
	}
	w.sleep(took)
}

// choice is a step that can be taken.
type choice struct {
	who actor
	do  func()
}

// ready lists who has something to do, in an order that does not change.
func (w *World) ready(now time.Time) []choice {
	var out []choice
	for _, t := range w.tasks.parked {
		if t.due(now) {
			out = append(out, choice{t.actor, func() { w.proceed(t) }})
		}
	}
	for i, l := range w.late {
		if !l.due.After(now) {
			out = append(out, choice{l.sent.who, func() { w.arrive(i) }})
		}
	}
	for _, s := range w.servers {
		out = s.ready(now, out)
	}
	for _, n := range w.nodes {
		out = n.ready(now, out)
	}
	for i, m := range w.mend {
		if !m.at.After(now) {
			out = append(out, choice{actor{part: "mend"}, func() {
				w.mend = append(w.mend[:i], w.mend[i+1:]...)
				w.trace.add("mend", "%s", m.what)
				m.do()
			}})
		}
	}
	if w.chaos && !w.nextFault.After(now) {
		out = append(out, choice{actor{part: "fault"}, w.disturb})
	}
	if !w.user.next.After(now) {
		out = append(out, choice{actor{part: "user"}, w.user.act})
	}
	return out
}

// next is when somebody has something to do.
func (w *World) next(now time.Time) time.Time {
	next := now.Add(10 * time.Second)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, t := range w.tasks.parked {
		sooner(t.wake)
	}
	for _, l := range w.late {
		sooner(l.due)
	}
	for _, s := range w.servers {
		s.next(sooner)
	}
	for _, n := range w.nodes {
		n.next(sooner)
	}
	for _, m := range w.mend {
		sooner(m.at)
	}
	if w.chaos {
		sooner(w.nextFault)
	}
	sooner(w.user.next)
	if !next.After(now) {
		return now.Add(time.Millisecond)
	}
	return next
}

// sleep lets time pass, and leases end.
func (w *World) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.kv.Tick()
	w.observe(nil)
	w.rules.restarted()
}

// arrive lets a late transaction reach the backend.
func (w *World) arrive(i int) {
	l := w.late[i]
	w.late = append(w.late[:i], w.late[i+1:]...)
	out, err := w.commit(l.sent, l.compares, l.writes)
	switch {
	case err != nil:
		w.trace.add(l.sent.who.String(), "late commit: %v", err)
	case !out.OK:
		w.trace.add(l.sent.who.String(), "late commit is refused: %s", describe(l.writes))
	default:
		w.trace.add(l.sent.who.String(), "late commit took effect")
	}
}

// leader is who leads by what the store says, and the fence.
func (w *World) leader() (name string, fence int64) {
	r, err := w.kv.Range(context.Background(), store.RangeRequest{Start: store.ElectionKey})
	if err != nil || len(r.Entries) == 0 {
		return "", 0
	}
	return string(r.Entries[0].Value), r.Entries[0].CreateRevision
}

// fail notes that a rule is broken. The first one counts.
func (w *World) fail(rule, format string, args ...any) {
	if w.failed == "" {
		w.failed = rule + ": " + fmt.Sprintf(format, args...)
		w.trace.add("BROKEN", "%s", w.failed)
	}
}

// between is a random duration, more often a short one.
func (w *World) between(least, most time.Duration) time.Duration {
	span := float64(most - least)
	f := w.rand.Float64()
	return least + time.Duration(span*f*f)
}

// close lets everything that still waits end.
func (w *World) close() {
	for _, s := range w.servers {
		s.kill()
	}
	for _, n := range w.nodes {
		n.kill()
	}
	for len(w.tasks.parked) > 0 {
		w.proceed(w.tasks.parked[0])
	}
	w.kv.Break(context.Canceled)
	synctest.Wait()
}
