package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/probe"
)

// Config is what an Agent needs.
type Config struct {
	Runtime Runtime
	// Dial opens a connection to a server; the agent closes it when the session
	// over it ends.
	Dial func(ctx context.Context) (Conn, error)
	// Node makes this machine's Node: name, labels, capacity, allocatable,
	// addresses, node info. Facts is one. The agent adds the Ready condition.
	Node    func() (*corev1.Node, error)
	Volumes Volumes // nil: pods that have volumes are not run
	Traffic Traffic // nil: Services reach nothing on this node
	// Explain says how a pod of this node reaches a port of a Service, in a form for
	// JSON. nil: the agent does not know.
	Explain func(ctx context.Context, namespace, service, port string) (any, error)
	// Host says how full the machine is; nil: nobody knows, and no pod is evicted for it.
	Host       func() (Host, error)
	Busy       func() (time.Duration, error) // CPU time of the machine; nil: nobody knows
	Thresholds []Threshold                   // at which pods are evicted
	Images     Collector                     // nil: images stay
	Dir        string                        // for the checkpoint; made 0700
	Secrets    string                        // for Secrets; must be on a tmpfs, else none are kept
	Workers    int                           // transitions at one time that work the engine; default 16
	Pulls      int                           // image fetches at one time; default 8
	// Probe asks a container how it is; default probe.Check.
	Probe  func(context.Context, probe.Request) probe.Answer
	Resync time.Duration        // how often everything is looked at; default 5 minutes
	Now    func() time.Time     // default time.Now
	Boot   func() time.Duration // a clock that runs while the machine sleeps; default CLOCK_BOOTTIME
	Log    *slog.Logger
}

// Agent drives the pods of one node.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	instance string
	name     string
	keep     *checkpoint
	width    chan struct{} // one token per transition that works the engine
	pulls    chan struct{}
	born     time.Time

	mu      sync.Mutex
	node    *corev1.Node
	entries map[types.UID]*entry
	things  things // ConfigMaps and Secrets that pods refer to
	flow    flow   // Services and their endpoints
	probes  probes
	agenda  agenda       // which entries to look at, and when
	gauge   gauge        // what pods use, when somebody asks
	sample  sample       // the last reading of everything, for who asks once
	squeeze squeeze      // what the machine is short of
	upkeep  upkeep       // of persistent volumes
	known   *corev1.Node // the node's labels as the server has them; nil: it has not said
	out     outbox
	events  recorder
	alien   map[string]bool // foreign containers that were told of
	adopted bool            // what ran before this agent is known
	synced  bool            // in this process's life everything assigned was received at least once
	seen    map[string]bool // objects received in this session, until it is synced
	right   time.Duration   // boot time at which the right to run ends (D4)
	poke    chan struct{}   // the agenda has something
	send    chan struct{}   // the outbox has something
	relist  chan struct{}   // look at everything
}

// New returns an agent that knows what its checkpoint holds and has not looked
// at the engine yet.
func New(cfg Config) (*Agent, error) {
	if cfg.Workers <= 0 {
		cfg.Workers = 16
	}
	if cfg.Pulls <= 0 {
		cfg.Pulls = 8
	}
	if cfg.Resync <= 0 {
		cfg.Resync = 5 * time.Minute
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Boot == nil {
		cfg.Boot = bootTime
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	node, err := cfg.Node()
	if err != nil {
		return nil, fmt.Errorf("collect the node's facts: %w", err)
	}
	a := &Agent{
		cfg: cfg, log: cfg.Log, instance: rand.Text(), name: node.Name, node: node,
		width: make(chan struct{}, cfg.Workers), pulls: make(chan struct{}, cfg.Pulls),
		entries: map[types.UID]*entry{}, things: newThings(), flow: newFlow(), gauge: newGauge(), upkeep: newUpkeep(), out: newOutbox(), events: newRecorder(node.Name),
		poke: make(chan struct{}, 1), send: make(chan struct{}, 1), relist: make(chan struct{}, 1),
	}
	a.born = cfg.Now()
	if cfg.Volumes != nil && cfg.Volumes.PersistentDir() != "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, api.VolumesDirAnnotation, cfg.Volumes.PersistentDir())
	}
	a.probes = probes{schedule: probe.NewSchedule[*watch](defaultProbes, defaultCommands), wake: make(chan struct{}, 1)}
	if cfg.Probe == nil {
		a.cfg.Probe = func(ctx context.Context, req probe.Request) probe.Answer { return probe.Check(ctx, req, a.exec) }
	}
	a.ready(errors.New("the container engine has not been asked yet"))
	if a.keep, err = openCheckpoint(cfg.Dir, cfg.Secrets, cfg.Log); err != nil {
		return nil, err
	}
	a.keep.wrote = func() { notify(a.send) }
	saved, err := a.keep.load()
	if err != nil {
		return nil, err
	}
	for _, pod := range saved.pods {
		v, err := takeVerdict(pod)
		if err != nil {
			a.log.Error("a pod that was to end may go on", "error", err)
		}
		a.assign(pod)
		a.entries[pod.UID].record.doom = v
	}
	for _, cm := range saved.configMaps {
		a.things.configMaps[nameOf(cm)] = cm
	}
	for _, s := range saved.secrets {
		a.things.secrets[nameOf(s)] = s
	}
	for _, c := range saved.claims {
		a.things.claims[nameOf(c)] = c
	}
	for _, v := range saved.volumes {
		a.things.volumes[v.Name] = v
	}
	for _, s := range saved.services {
		a.flow.setService(s)
	}
	for _, s := range saved.slices {
		a.flow.setSlice(s)
	}
	if saved.all {
		a.flow.do(Traffic.Synced)
	}
	return a, nil
}

// Run drives the pods until ctx ends. Pods keep running then.
func (a *Agent) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	events := a.cfg.Runtime.Events(ctx) // before the first List, so that nothing is missed between
	if err := a.Adopt(ctx); err != nil {
		a.log.Error("container engine does not answer", "error", err)
	}
	wg.Go(func() { a.watch(ctx, events) })
	wg.Go(func() { a.survey(ctx) })
	wg.Go(func() { a.keep.run(ctx) })
	wg.Go(func() { a.route(ctx) })
	wg.Go(func() { a.measure(ctx) })
	wg.Go(func() { a.weigh(ctx) })
	wg.Go(func() { a.keepUp(ctx) })
	wg.Go(func() { a.press(ctx) })
	wg.Go(func() { a.examine(ctx) })
	wg.Go(func() { a.connect(ctx) })
	a.dispatch(ctx, &wg)
	wg.Wait()
	return a.keep.flush()
}

// dispatch gives each entry that is due a goroutine until it has nothing to do.
func (a *Agent) dispatch(ctx context.Context, wg *sync.WaitGroup) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a.mu.Lock()
		for e := a.due(); e != nil; e = a.due() {
			wg.Go(func() {
				for ctx.Err() == nil && a.turn(ctx, e) {
				}
				if ctx.Err() != nil {
					a.rest(e)
				}
			})
		}
		var next time.Time
		if a.adopted {
			next = a.agenda.next()
		}
		a.mu.Unlock()
		sleep := time.Hour
		if !next.IsZero() {
			sleep = max(next.Sub(a.cfg.Now()), 0)
		}
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-a.poke:
		case <-timer.C:
		}
	}
}

// Step takes one transition of the pod that is due first; false when none is.
// It is how one caller drives an agent that is not run.
func (a *Agent) Step(ctx context.Context) bool {
	a.mu.Lock()
	e := a.due()
	a.mu.Unlock()
	if e == nil {
		return false
	}
	if a.turn(ctx, e) {
		a.mu.Lock()
		e.busy = false
		a.agenda.now(e.uid)
		a.mu.Unlock()
	}
	return true
}

// Next is when the earliest waiting pod is due; zero when none waits.
func (a *Agent) Next() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.agenda.next()
}

// due takes the first entry off the agenda that is due and at rest, and marks it
// busy.
func (a *Agent) due() *entry {
	if !a.adopted {
		return nil
	}
	for {
		uid, ok := a.agenda.pop(a.cfg.Now())
		if !ok {
			return nil
		}
		e := a.entries[uid]
		if e == nil {
			continue
		}
		if e.busy {
			e.again = true
			continue
		}
		e.busy = true
		return e
	}
}

// wake has an entry looked at now.
func (a *Agent) wake(e *entry) {
	if e.busy {
		e.again = true
		return
	}
	a.agenda.now(e.uid)
	notify(a.poke)
}

func (a *Agent) rest(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.busy = false
}

// notify leaves a note in a channel of one; a note that is there is enough.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// watch turns the engine's events into looks at pods.
func (a *Agent) watch(ctx context.Context, events <-chan types.UID) {
	for {
		select {
		case <-ctx.Done():
			return
		case uid, ok := <-events:
			if !ok {
				return
			}
			a.Changed(uid)
		}
	}
}

// Changed notes that the engine's state of a pod, or of any, may be another now.
// Who steps the agent calls it in the place of Runtime.Events.
func (a *Agent) Changed(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.entries[uid]; e != nil {
		e.refresh = true
		a.wake(e)
		return
	}
	notify(a.relist)
}

// Survey looks at everything if that was asked for, and says whether it was. Who
// steps the agent calls it, and Adopt on a period.
func (a *Agent) Survey(ctx context.Context) (bool, error) {
	select {
	case <-a.relist:
		return true, a.Adopt(ctx)
	default:
		return false, nil
	}
}

// Save writes what the checkpoint still has to write. Run does it by itself.
func (a *Agent) Save() error { return a.keep.flush() }

// survey looks at everything on a period and when asked.
func (a *Agent) survey(ctx context.Context) {
	timer := time.NewTimer(a.cfg.Resync)
	defer timer.Stop()
	failed := backoff{}
	for {
		a.mu.Lock()
		adopted := a.adopted
		a.mu.Unlock()
		sleep := a.cfg.Resync
		if !adopted || failed.Delay > 0 {
			sleep = max(failed.Delay, errorFirst)
		}
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-a.relist:
		case <-timer.C:
		}
		if err := a.Adopt(ctx); err != nil {
			if failed.Delay == 0 && ctx.Err() == nil {
				a.log.Error("container engine does not answer", "error", err)
			}
			failed = failed.next(a.cfg.Now(), errorFirst, 10*time.Second)
			continue
		}
		if failed.Delay > 0 {
			a.log.Info("container engine answers again")
		}
		failed = backoff{}
	}
}
