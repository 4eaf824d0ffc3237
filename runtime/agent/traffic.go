package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
)

// Traffic is how this node's pods reach Services: the routes of its kernel, and the
// cluster's names. The agent calls it from one goroutine at a time. Objects are
// shared and must not be changed.
type Traffic interface {
	SetService(*corev1.Service)
	UnsetService(namespace, name string)
	SetSlice(*discoveryv1.EndpointSlice)
	UnsetSlice(namespace, name string)
	// Drop takes an address out of every Service, whatever its slices say, until
	// Admit.
	Drop(netip.Addr)
	Admit(netip.Addr)
	// Synced says that everything that there is has been set once.
	Synced()
	// Sync returns when the node's kernel does all of the above.
	Sync(ctx context.Context) error
}

const routeTimeout = time.Minute // of one Sync

// drainMost is how long a pod that is to be stopped runs on while other nodes may
// still route to it.
const drainMost = 2 * time.Second

// flow is what the session has said of Services, and what of it waits for Traffic.
type flow struct {
	services map[string]map[string]*corev1.Service // by namespace and name
	slices   map[string]*discoveryv1.EndpointSlice // by namespace/name
	named    map[types.UID]int                     // pods by how many endpoints name them

	waiting  []func(Traffic) // in order
	dropping []types.UID     // pods whose Drop is among waiting, or not synced yet
	marked   int64           // revision that everything up to the end of waiting is of
	routed   int64           // revision that the kernel goes by
	unsynced bool            // the last Sync failed
	wake     chan struct{}
}

func newFlow() flow {
	return flow{
		services: map[string]map[string]*corev1.Service{}, slices: map[string]*discoveryv1.EndpointSlice{},
		named: map[types.UID]int{}, wake: make(chan struct{}, 1),
	}
}

// do has something done to Traffic, after what was asked for before.
func (f *flow) do(change func(Traffic)) {
	f.waiting = append(f.waiting, change)
	notify(f.wake)
}

func (f *flow) setService(s *corev1.Service) {
	if f.services[s.Namespace] == nil {
		f.services[s.Namespace] = map[string]*corev1.Service{}
	}
	f.services[s.Namespace][s.Name] = s
	f.do(func(t Traffic) { t.SetService(s) })
}

func (f *flow) unsetService(namespace, name string) {
	delete(f.services[namespace], name)
	if len(f.services[namespace]) == 0 {
		delete(f.services, namespace)
	}
	f.do(func(t Traffic) { t.UnsetService(namespace, name) })
}

func (f *flow) setSlice(s *discoveryv1.EndpointSlice) {
	f.count(f.slices[nameOf(s)], -1)
	f.count(s, 1)
	f.slices[nameOf(s)] = s
	f.do(func(t Traffic) { t.SetSlice(s) })
}

func (f *flow) unsetSlice(namespace, name string) {
	f.count(f.slices[namespace+"/"+name], -1)
	delete(f.slices, namespace+"/"+name)
	f.do(func(t Traffic) { t.UnsetSlice(namespace, name) })
}

func (f *flow) count(s *discoveryv1.EndpointSlice, by int) {
	if s == nil {
		return
	}
	for i := range s.Endpoints {
		ref := s.Endpoints[i].TargetRef
		if ref == nil || ref.UID == "" {
			continue
		}
		if f.named[ref.UID] += by; f.named[ref.UID] <= 0 {
			delete(f.named, ref.UID)
		}
	}
}

func (f *flow) admit(ips []string) {
	for _, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err == nil {
			f.do(func(t Traffic) { t.Admit(addr) })
		}
	}
}

// drop takes a pod that is to be stopped out of this node's traffic.
func (f *flow) drop(uid types.UID, ips []string) {
	for _, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err == nil {
			f.do(func(t Traffic) { t.Drop(addr) })
		}
	}
	f.dropping = append(f.dropping, uid)
	notify(f.wake)
}

// mark notes that the session has sent everything up to a revision.
func (f *flow) mark(revision int64) {
	f.marked = revision
	notify(f.wake)
}

// unseen lists what is known and a session has not sent.
func (f *flow) unseen(seen map[string]bool) (out []*session.ObjectName) {
	for _, namespace := range sortedKeys(f.services) {
		for _, name := range sortedKeys(f.services[namespace]) {
			if !seen[session.Services+" "+namespace+"/"+name] {
				out = append(out, &session.ObjectName{Resource: session.Services, Namespace: namespace, Name: name})
			}
		}
	}
	for _, name := range sortedKeys(f.slices) {
		if s := f.slices[name]; !seen[session.Slices+" "+name] {
			out = append(out, &session.ObjectName{Resource: session.Slices, Namespace: s.Namespace, Name: s.Name})
		}
	}
	return out
}

// Route brings what waits to Traffic and notes that the node goes by it. One
// goroutine calls it, or who steps the agent; it says whether there was anything.
// What could not be synced is tried again by the next call.
func (a *Agent) Route(ctx context.Context) (bool, error) {
	a.mu.Lock()
	f := &a.flow
	waiting, dropping, marked := f.waiting, f.dropping, f.marked
	f.waiting, f.dropping = nil, nil
	idle := len(waiting)+len(dropping) == 0 && marked == f.routed && !f.unsynced
	a.mu.Unlock()
	if idle || a.cfg.Traffic == nil {
		return false, nil
	}
	for _, change := range waiting {
		change(a.cfg.Traffic)
	}
	err := a.cfg.Traffic.Sync(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	f.unsynced = err != nil
	if err != nil {
		f.dropping = append(dropping, f.dropping...)
		return true, fmt.Errorf("bring Services to this node: %w", err)
	}
	if marked <= f.marked { // else another session has begun, and marks anew
		f.routed = marked
		a.out.route(marked)
	}
	for _, uid := range dropping {
		if e := a.entries[uid]; e != nil {
			e.record.dropped = true
			a.wake(e)
		}
	}
	notify(a.send)
	return true, nil
}

// route calls Route until ctx ends.
func (a *Agent) route(ctx context.Context) {
	failed := backoff{}
	for {
		turn, cancel := context.WithTimeout(ctx, routeTimeout)
		worked, err := a.Route(turn)
		cancel()
		if ctx.Err() != nil {
			return
		}
		retry := time.Hour
		switch {
		case err != nil:
			if failed.Delay == 0 {
				a.log.Error("Services do not work as declared on this node; trying again", "error", err)
			}
			a.routable(err)
			failed = failed.next(time.Time{}, errorFirst, 10*time.Second)
			retry = failed.Delay
		case failed.Delay > 0:
			a.log.Info("Services work again on this node")
			failed = backoff{}
		}
		if worked && err == nil {
			a.routable(nil)
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
		case <-a.flow.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// routable says on the node whether its traffic goes as Services say: also of a node
// whose agent before this one could not.
func (a *Agent) routable(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "ServicesRouted", Message: "Services are reached from this node"}
	if err != nil {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "ServicesNotRouted", clip(err.Error(), 500)
	}
	for _, old := range a.node.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status && old.Message == c.Message {
			return
		}
	}
	a.condition(c)
}
