package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// entry is one pod that is assigned to the node or has something on it. At most
// one transition of it is under way (busy). Agent.mu guards it.
type entry struct {
	uid      types.UID
	pod      *corev1.Pod // nil: found on the node, not known yet
	released bool        // not assigned any more: goes
	sandbox  *SandboxState
	record   *record
	refresh  bool // ask the engine before the next decision
	busy     bool
	again    bool // something happened while busy
	version  int  // rises with each change of sandbox
	watches  []*watch
	cut      func()  // interrupts the transition under way, when that is safe
	stale    bool    // the content of its volumes is to be looked at
	content  trouble // why it could not be brought up to date
	settled  bool    // it was asked whether the node has room for it
	told     bool    // the server has been told the status since it last sent the pod
}

func (e *entry) observed(hostIPs []string) observed {
	return observed{pod: e.pod, wanted: !e.released, sandbox: e.sandbox, record: e.record, hostIPs: hostIPs}
}

// assign notes that a pod is assigned, new or changed.
func (a *Agent) assign(pod *corev1.Pod) {
	e := a.entries[pod.UID]
	if e == nil {
		e = &entry{uid: pod.UID, record: newRecord(pod.Status)}
		a.entries[pod.UID] = e
	}
	before := e.pod
	if before == nil {
		e.record.last = *pod.Status.DeepCopy()
	} else {
		e.stale = hasContent(&pod.Spec) // labels and annotations may be in it
		learn(&e.record.last, &pod.Status)
		e.record.recall(&pod.Status)
	}
	e.pod, e.released, e.told = pod, false, false
	if terminal(pod.Status.Phase) && !terminal(e.record.last.Phase) { // somebody else ended it
		e.record.last.Phase, e.record.last.Reason, e.record.last.Message = pod.Status.Phase, pod.Status.Reason, pod.Status.Message
	}
	if before != nil && (before.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || before != nil && graceOf(pod) < graceOf(before) {
		e.interrupt()
	}
	a.wake(e)
}

// learn takes from the server's status what ours has not: that a container was
// started which this agent, whose checkpoint is older, knows nothing of. So what
// must run once does not run twice on a machine that lost its containers.
func learn(ours, servers *corev1.PodStatus) {
	for _, lists := range []struct {
		to   *[]corev1.ContainerStatus
		from []corev1.ContainerStatus
	}{{&ours.InitContainerStatuses, servers.InitContainerStatuses}, {&ours.ContainerStatuses, servers.ContainerStatuses}} {
		for _, s := range lists.from {
			if s.ContainerID == "" {
				continue
			}
			known := lastStatus(ours, s.Name)
			switch {
			case known == nil:
				*lists.to = append(*lists.to, s)
			case known.ContainerID == "" || known.RestartCount < s.RestartCount:
				*known = s
			}
		}
	}
}

// recall takes from the server's status what hooks and probes had said of the containers
// that run, if a checkpoint that is older does not know it and nothing was asked since.
func (r *record) recall(servers *corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{servers.InitContainerStatuses, servers.ContainerStatuses} {
		for i := range list {
			s, known := &list[i], lastStatus(&r.last, list[i].Name)
			if known == nil || s.ContainerID == "" || s.ContainerID != known.ContainerID || s.State.Running == nil || has(r.health, s.Name) {
				continue
			}
			if s.Ready && !known.Ready || s.Started != nil && *s.Started && (known.Started == nil || !*known.Started) {
				*known = *s
			}
		}
	}
}

// release notes that a pod is not assigned any more.
func (a *Agent) release(e *entry) {
	if e.released {
		return
	}
	e.released = true
	a.out.drop(e.uid)
	a.keep.dropPod(e.uid)
	e.interrupt()
	a.wake(e)
}

func (e *entry) interrupt() {
	if e.cut != nil {
		e.cut()
	}
}

// Adopt asks the engine about everything. Before it has succeeded once, nothing
// is done to any pod: what runs is taken over as it is (R8).
func (a *Agent) Adopt(ctx context.Context) (err error) {
	defer func() {
		if err == nil {
			a.stock(ctx)
		}
	}()
	a.mu.Lock()
	versions := make(map[types.UID]int, len(a.entries))
	for uid, e := range a.entries {
		versions[uid] = e.version
	}
	a.mu.Unlock()
	states, err := a.cfg.Runtime.List(ctx)
	var strangers []ForeignContainer
	if err == nil {
		strangers, err = a.cfg.Runtime.Foreign(ctx)
	}
	var full []types.UID
	if err == nil {
		full, err = a.left()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready(err)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	a.foreign(strangers)
	a.upkeep.list()
	found := make(map[types.UID]bool, len(states))
	for i := range states {
		s := &states[i]
		found[s.UID] = true
		e := a.entries[s.UID]
		if e == nil {
			e = &entry{uid: s.UID, record: newRecord(corev1.PodStatus{}), released: a.synced}
			a.entries[s.UID] = e
		}
		a.observe(e, s, versions[s.UID])
	}
	for _, uid := range full { // of pods that were killed off between their volumes and their sandbox, too
		if a.entries[uid] == nil {
			a.entries[uid] = &entry{uid: uid, record: newRecord(corev1.PodStatus{}), released: a.synced}
			a.wake(a.entries[uid])
		}
	}
	for _, uid := range sortedKeys(a.entries) { // in an order that does not change: it is the agenda's
		if _, known := versions[uid]; known && !found[uid] {
			a.observe(a.entries[uid], nil, versions[uid])
		}
	}
	a.adopted = true
	notify(a.poke)
	return nil
}

// observe takes over what a list of everything said about one pod, unless a
// transition has overtaken it: then the engine is asked again.
func (a *Agent) observe(e *entry, s *SandboxState, version int) {
	if e.busy || e.version != version {
		e.refresh = true
	} else {
		e.set(s)
	}
	a.wake(e)
}

func (e *entry) set(s *SandboxState) {
	e.sandbox = s
	e.version++
	if s != nil {
		e.record.clean = false
	}
}

// put merges the state of one container that the engine has just answered.
func (e *entry) put(c ContainerState) {
	if e.sandbox == nil {
		return
	}
	s := *e.sandbox
	s.Containers = slices.DeleteFunc(slices.Clone(s.Containers), func(x ContainerState) bool {
		return x.Name == c.Name && x.Attempt == c.Attempt
	})
	s.Containers = append(s.Containers, c)
	sortContainers(s.Containers)
	e.set(&s)
}

// drop merges that an attempt is removed.
func (e *entry) drop(id string) {
	if e.sandbox == nil {
		return
	}
	s := *e.sandbox
	s.Containers = slices.DeleteFunc(slices.Clone(s.Containers), func(x ContainerState) bool { return x.ID == id })
	e.set(&s)
}

func sortContainers(list []ContainerState) {
	slices.SortFunc(list, func(x, y ContainerState) int {
		if c := strings.Compare(x.Name, y.Name); c != 0 {
			return c
		}
		return x.Attempt - y.Attempt
	})
}

// turn takes one transition of a busy entry. True asks to be called again; false
// leaves the entry at rest, on the agenda if it has to be looked at later.
func (a *Agent) turn(ctx context.Context, e *entry) bool {
	a.mu.Lock()
	if e.refresh {
		e.refresh = false
		a.mu.Unlock()
		err := a.look(ctx, e)
		a.mu.Lock()
		if err != nil {
			e.refresh = true
			notify(a.relist) // which tells of it, and the node is not ready meanwhile
			return a.settle(e, a.cfg.Now().Add(errorFirst))
		}
	}
	if e.pod == nil && !e.released {
		return a.settle(e, time.Time{}) // whose it is will be known when the session is synced
	}
	e.again = false
	if !a.admit(e) {
		return a.settle(e, time.Time{})
	}
	now := a.cfg.Now()
	if a.refillable(e, now) {
		pod := e.pod
		a.mu.Unlock()
		a.refill(ctx, e, pod)
		return true
	}
	a.tell(e, now)
	a.watchOver(e, now)
	o := e.observed(a.hostIPs())
	o.named = a.cfg.Traffic != nil && a.flow.named[e.uid] > 0
	d := plan(o, now)
	if e.stale && e.content.is() {
		d.wakeAt(e.content.backoff.until())
	}
	a.announce(e, d.waiting)
	if d.step.verb == wait {
		return a.settle(e, d.wake)
	}
	if d.step.verb == forget {
		delete(a.entries, e.uid)
		a.out.drop(e.uid)
		a.keep.dropPod(e.uid)
		a.mu.Unlock()
		return false
	}
	cutting, cancel := context.WithCancel(ctx)
	if d.step.verb == fetchImage || d.step.verb == stop || d.step.verb == greet {
		e.cut = cancel
	}
	pod := e.pod
	a.mu.Unlock()
	a.apply(cutting, e, pod, d.step)
	cancel()
	a.mu.Lock()
	e.cut = nil
	a.mu.Unlock()
	return true
}

// settle ends a turn that had nothing to do. It unlocks.
func (a *Agent) settle(e *entry, wake time.Time) bool {
	defer a.mu.Unlock()
	if e.again {
		e.again = false
		return true
	}
	e.busy = false
	if !wake.IsZero() {
		a.agenda.at(e.uid, wake)
		notify(a.poke)
	}
	return false
}

// look asks the engine about one pod.
func (a *Agent) look(ctx context.Context, e *entry) error {
	states, err := a.cfg.Runtime.List(ctx, e.uid)
	if err != nil {
		return fmt.Errorf("list the sandbox: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.set(nil)
	for i := range states {
		if states[i].UID == e.uid {
			e.set(&states[i])
		}
	}
	return nil
}

// save has the checkpoint keep the pod with our own status: the server's may be older
// than what ran here already.
func (a *Agent) save(e *entry) {
	kept := withVerdict(*e.pod, e.record.doom)
	kept.Status = *e.record.last.DeepCopy() // which learn changes
	a.keep.savePod(kept)
}

// tell puts the pod's status into the outbox if it has changed, or if the server
// shows another than ours.
func (a *Agent) tell(e *entry, now time.Time) {
	if e.pod == nil || e.released {
		return
	}
	o := e.observed(a.hostIPs())
	status := report(o, now)
	changed := !equality.Semantic.DeepEqual(status, e.record.last)
	if !changed && (e.told || sameStatus(&status, &e.pod.Status) && !o.gone()) {
		e.told = true
		return
	}
	before := e.record.last
	e.record.last = status
	e.told = true
	switch {
	case o.gone(): // nothing of it runs: an agent that comes back has nothing to start
		a.keep.dropPod(e.uid)
	case outlasts(&before, &status):
		a.save(e)
	}
	lazy := !o.gone() && !urgent(&before, &status)
	a.out.status(e.pod, &status, o.gone(), lazy, now)
	notify(a.send)
}

// outlasts says whether a status has what a restarted agent must know: the phase, which
// containers were started, and what their hooks and probes came to.
func outlasts(before, after *corev1.PodStatus) bool {
	if before.Phase != after.Phase {
		return true
	}
	for _, list := range [][]corev1.ContainerStatus{after.InitContainerStatuses, after.ContainerStatuses} {
		for _, s := range list {
			was := lastStatus(before, s.Name)
			if was == nil || was.ContainerID != s.ContainerID || was.Ready != s.Ready || (was.State.Running == nil) != (s.State.Running == nil) ||
				(was.Started != nil && *was.Started) != (s.Started != nil && *s.Started) {
				return true
			}
		}
	}
	return false
}

// sameStatus compares what the agent writes of a status.
func sameStatus(ours, servers *corev1.PodStatus) bool {
	merged := *servers
	merged.Conditions = nil
	for _, c := range ours.Conditions {
		for _, s := range servers.Conditions {
			if s.Type == c.Type {
				merged.Conditions = append(merged.Conditions, s)
			}
		}
	}
	return equality.Semantic.DeepEqual(*ours, merged)
}

// urgent says whether somebody may wait for the change. The small steps of a pod
// that is coming up are not worth a write each.
func urgent(before, after *corev1.PodStatus) bool {
	if before.Phase != after.Phase && before.Phase != "" || after.Phase != corev1.PodPending {
		return true
	}
	for _, list := range [][]corev1.ContainerStatus{after.InitContainerStatuses, after.ContainerStatuses} {
		for _, c := range list {
			if c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing" {
				return true
			}
		}
	}
	return false
}

func (a *Agent) hostIPs() []string {
	var out []string
	for _, addr := range a.node.Status.Addresses {
		if addr.Type == corev1.NodeInternalIP {
			out = append(out, addr.Address)
		}
	}
	return out
}
