package nodes

import (
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// routes says whether an object tells nodes how Services are reached. Every session
// is sent all of them, since any pod may call any Service.
func routes(key store.Key) bool {
	return key.GroupResource == api.Services() || key.GroupResource == api.EndpointSlices()
}

// wakeRoute is wake for a change of a Service or an EndpointSlice. The revision and
// the object are taken by the writer together, or its mark would come first.
func (a *attendance) wakeRoute(key store.Key, revision int64) {
	a.mu.Lock()
	a.newest = max(a.newest, revision)
	a.note(key)
	a.mu.Unlock()
	notify(a.outward)
}

// allRoutes lists every Service and EndpointSlice, and a revision that the list is
// not older than.
func allRoutes(r store.Reader) (keys []store.Key, revision int64) {
	revision = r.Revision()
	for _, resource := range []schema.GroupResource{api.Services(), api.EndpointSlices()} {
		for _, obj := range r.List(resource, "") {
			keys = append(keys, store.KeyOf(obj))
		}
	}
	return keys, revision
}

func mark(revision int64) *session.Down {
	return &session.Down{Message: &session.Down_Mark{Mark: &session.Mark{Revision: revision}}}
}

// leaving is a pod of a connected node that is to be stopped. Its agent waits, not
// for long, until no node routes to it.
type leaving struct {
	pod      store.Key
	node     string
	delisted int64 // revision at which no slice listed it as ready any more; 0: one does
	told     int64 // epoch of the session that was told; 0: none
}

// podChanged follows a pod that is to be stopped. The caller holds n.mu.
func (n *Nodes) podChanged(e store.Event) {
	if before, ok := e.Previous.(*corev1.Pod); ok && (e.Deleted() || e.Object.GetUID() != before.UID) {
		n.noteLeaving(before.UID, nil)
	}
	if pod, ok := e.Object.(*corev1.Pod); ok {
		n.noteLeaving(pod.UID, pod)
	}
}

// noteLeaving keeps a pod in mind while it is being stopped. The caller holds n.mu.
func (n *Nodes) noteLeaving(uid types.UID, pod *corev1.Pod) {
	if pod == nil || pod.DeletionTimestamp == nil || n.sessions[pod.Spec.NodeName] == nil {
		delete(n.leaving, uid)
		return
	}
	if n.leaving[uid] != nil {
		return
	}
	l := &leaving{pod: store.KeyOf(pod), node: pod.Spec.NodeName}
	n.leaving[uid] = l
	n.delist(uid, l)
	n.tellDrained(uid, l, n.leastRouted())
}

// delist notes since when no slice lists a pod: the newest change of a route that
// was heard of, or that the cache shows already.
func (n *Nodes) delist(uid types.UID, l *leaving) {
	if l.delisted > 0 {
		return
	}
	newest := max(n.newest, 1)
	for _, obj := range n.cfg.Store.List(api.EndpointSlices(), l.pod.Namespace) {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		if session.Lists(slice, uid) {
			return
		}
		newest = max(newest, revisionOf(slice))
	}
	l.delisted = newest
}

// revisionOf is the revision that an object from the cache was written at.
func revisionOf(obj api.Object) int64 {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return math.MaxInt64 // never routed by: the agent's own bound ends its wait
	}
	return revision
}

// routeChanged wakes every session, and looks again at the leaving pods of the
// namespace. The caller holds n.mu.
func (n *Nodes) routeChanged(key store.Key, revision int64) {
	n.newest = revision
	for _, a := range n.sessions {
		a.wakeRoute(key, revision)
	}
	for uid, l := range n.leaving {
		if l.pod.Namespace == key.Namespace && l.delisted == 0 {
			n.delist(uid, l)
		}
	}
	n.tellAllDrained()
}

// routed notes how far a node's traffic is.
func (n *Nodes) routed(a *attendance, revision int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a.routed = max(a.routed, revision)
	n.tellAllDrained()
}

// tellAllDrained tells each agent of its pods that no other node routes to.
func (n *Nodes) tellAllDrained() {
	if len(n.leaving) == 0 {
		return
	}
	least := n.leastRouted()
	for _, uid := range slices.Sorted(maps.Keys(n.leaving)) { // in an order that does not change
		n.tellDrained(uid, n.leaving[uid], least)
	}
}

func (n *Nodes) tellDrained(uid types.UID, l *leaving, least int64) {
	a := n.sessions[l.node]
	if a == nil || l.delisted == 0 || l.told == a.epoch || l.delisted > least {
		return
	}
	l.told = a.epoch
	a.reply(&session.Down{Message: &session.Down_Drained{Drained: &session.Drained{Uid: string(uid)}}})
}

// leastRouted is the revision that every living node is known to route by: a leaving
// pod's own, too, since what takes its place comes with the same change of the slices.
// Of a node that another server serves nothing is known here.
func (n *Nodes) leastRouted() int64 {
	least := int64(math.MaxInt64)
	for _, obj := range n.cfg.Store.List(api.Leases(), Namespace) {
		a := n.sessions[obj.GetName()]
		if a == nil {
			return 0
		}
		least = min(least, a.routed)
	}
	return least
}

// resumeLeaving takes up the leaving pods of a node whose session begins.
func (n *Nodes) resumeLeaving(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range n.cfg.Store.OnNode(node) {
		n.noteLeaving(pod.UID, pod)
	}
	n.tellAllDrained()
}
