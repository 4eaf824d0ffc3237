package scheduler

import (
	"maps"
	"slices"
	"sync"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bound is a bind of ours that the cache may not show yet.
type bound struct {
	pod     *corev1.Pod // as it was read, without a node
	nodes   []string    // where it is; more than one when answers were lost
	certain bool        // the write succeeded
}

// view is what the scheduler knows of nodes: a summary per node, made again only
// when something on that node changed, and its own recent binds.
type view struct {
	store store.Reader

	mu    sync.Mutex // events come on another goroutine
	dirty map[string]bool
	all   bool               // everything is dirty
	doubt map[store.Key]bool // pods whose bind is uncertain

	nodes map[string]*nodeInfo // used by the one worker only, as is the rest
	names []string             // of nodes, sorted
	binds map[store.Key]bound
}

func newView(r store.Reader) *view {
	return &view{store: r, dirty: map[string]bool{}, all: true, doubt: map[store.Key]bool{}, nodes: map[string]*nodeInfo{}, binds: map[store.Key]bound{}}
}

// touch says that a node must be looked at again; "" is none.
func (v *view) touch(names ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range names {
		if name != "" {
			v.dirty[name] = true
		}
	}
}

func (v *view) touchAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = true
}

// look brings the summaries up to date and returns them sorted by name, without
// what the pod of the key itself may hold by a bind whose answer was lost.
func (v *view) look(key store.Key) (nodes []*nodeInfo) {
	v.mu.Lock()
	dirty, all := v.dirty, v.all
	v.dirty, v.all = map[string]bool{}, false
	v.mu.Unlock()

	// Binds before pods: what the cache shows by then needs no keeping in mind, and
	// what it shows only afterwards is counted once, by uid.
	for key, b := range v.binds {
		if v.seen(key, b) {
			delete(v.binds, key)
			for _, n := range b.nodes {
				dirty[n] = true
			}
		}
	}
	if all {
		clear(v.nodes)
		for _, obj := range v.store.List(api.Nodes(), "") {
			dirty[obj.GetName()] = true
		}
	}
	own := v.binds[key]
	for name := range dirty {
		if n := v.summary(name, ""); n != nil {
			v.nodes[name] = n
		} else {
			delete(v.nodes, name)
		}
	}
	if len(dirty) > 0 {
		v.names = slices.Sorted(maps.Keys(v.nodes))
	}
	for _, name := range v.names {
		n := v.nodes[name]
		if slices.Contains(own.nodes, name) {
			if n = v.summary(name, own.pod.UID); n == nil {
				continue
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// seen says whether the cache is past the write of a bind: the pod is no longer
// as it was when the bind was written.
func (v *view) seen(key store.Key, b bound) bool {
	pod, ok := v.store.Get(key).(*corev1.Pod)
	return !ok || pod.UID != b.pod.UID || pod.ResourceVersion != b.pod.ResourceVersion
}

// summary makes the summary of a node, leaving out one pod; nil when there is no
// such node.
func (v *view) summary(name string, without types.UID) *nodeInfo {
	node, ok := v.store.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node)
	if !ok {
		return nil
	}
	lease := v.store.Get(store.Key{GroupResource: api.Leases(), Namespace: corev1.NamespaceNodeLease, Name: name})
	n := newNodeInfo(node, lease != nil)
	on := map[types.UID]bool{}
	if without != "" {
		on[without] = true
	}
	place := func(pod *corev1.Pod) {
		if !on[pod.UID] {
			on[pod.UID] = true
			n.place(demandOf(pod))
		}
	}
	for _, pod := range v.store.OnNode(name) {
		if !ended(pod) {
			place(pod)
		}
	}
	for _, b := range v.binds {
		if slices.Contains(b.nodes, name) {
			place(b.pod)
		}
	}
	return n
}

// note keeps a bind in mind. An uncertain one is counted on every node where it
// may be.
func (v *view) note(pod *corev1.Pod, node string, certain bool) {
	key := store.KeyOf(pod)
	b := bound{pod: pod, nodes: []string{node}, certain: certain}
	before := v.binds[key]
	if !certain && before.pod != nil && before.pod.UID == pod.UID {
		for _, n := range before.nodes {
			if n != node {
				b.nodes = append(b.nodes, n)
			}
		}
	}
	v.binds[key] = b
	if !certain {
		v.mu.Lock()
		v.doubt[key] = true // until the pod's next event, even when a later write succeeds elsewhere
		v.mu.Unlock()
	}
	if !certain && v.seen(key, b) { // it was known before we could doubt it
		delete(v.binds, key)
		v.cleared(key)
	}
	v.touch(append(before.nodes, b.nodes...)...)
}

// cleared says whether a pod's bind was uncertain until the event that calls it:
// whatever happened, it shows now.
func (v *view) cleared(key store.Key) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.doubt[key]
	delete(v.doubt, key)
	return was
}

// placed says whether a pod is bound already, by a write that the cache does not
// show yet.
func (v *view) placed(key store.Key, pod *corev1.Pod) bool {
	b, ok := v.binds[key]
	return ok && b.certain && !v.seen(key, b) && b.pod.UID == pod.UID
}

// uncertain says whether the answer to the pod's last bind was lost and the cache
// does not show yet what happened.
func (v *view) uncertain(key store.Key) bool {
	b, ok := v.binds[key]
	return ok && !b.certain && !v.seen(key, b)
}

// ended says whether a pod needs nothing of its node any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
