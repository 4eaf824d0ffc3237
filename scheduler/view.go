package scheduler

import (
	"slices"
	"sync"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// bound is a bind of ours that the cache may not show yet.
type bound struct {
	pod     *corev1.Pod // as it was read, without a node
	nodes   []string    // where it is; more than one when answers were lost
	certain bool        // the write succeeded
}

// view keeps the board as the store's cache has it, changed only where something
// happened, with our own recent binds.
type view struct {
	store store.Reader

	mu    sync.Mutex // events come on another goroutine
	dirty dirt
	doubt map[store.Key]bool // pods whose bind is uncertain

	board *board // used by the one worker only, as is the rest
	binds map[store.Key]bound
	hopes map[store.Key]types.UID // pods nominated on the board
}

// dirt is what must be looked at again.
type dirt struct {
	all       bool
	budgets   bool
	nodes     map[string]bool
	spaces    map[string]bool
	nominated map[store.Key]bool // pods that are or were nominated to a node
	shelf     map[store.Key]bool // claims, volumes and classes
}

func newDirt() dirt {
	return dirt{nodes: map[string]bool{}, spaces: map[string]bool{}, nominated: map[store.Key]bool{}, shelf: map[store.Key]bool{}}
}

func newView(r store.Reader) *view {
	v := &view{store: r, dirty: newDirt(), doubt: map[store.Key]bool{}, board: newBoard(), binds: map[store.Key]bound{}, hopes: map[store.Key]types.UID{}}
	v.dirty.all = true
	return v
}

// touch says that nodes must be looked at again; "" is none.
func (v *view) touch(names ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range names {
		if name != "" {
			v.dirty.nodes[name] = true
		}
	}
}

// soil says what else must be looked at again.
func (v *view) soil(how func(*dirt)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	how(&v.dirty)
}

func (v *view) touchAll() { v.soil(func(d *dirt) { d.all = true }) }

// look brings the board up to date.
func (v *view) look() *board {
	v.mu.Lock()
	d := v.dirty
	v.dirty = newDirt()
	v.mu.Unlock()

	// Binds before pods: what the cache shows by then needs no keeping in mind, and
	// what it shows only afterwards is counted once, by uid.
	for key, b := range v.binds {
		if v.seen(key, b) {
			delete(v.binds, key)
			for _, n := range b.nodes {
				d.nodes[n] = true
			}
		}
	}
	if d.all {
		v.everything(&d)
	}
	for name := range d.spaces {
		var set map[string]string
		if ns := v.store.Get(store.Key{GroupResource: api.Namespaces(), Name: name}); ns != nil {
			set = ns.GetLabels()
		}
		v.board.setSpace(name, set)
	}
	if len(d.nodes) > 0 {
		held := map[string][]*corev1.Pod{}
		for _, b := range v.binds {
			for _, name := range b.nodes {
				held[name] = append(held[name], b.pod)
			}
		}
		for name := range d.nodes {
			v.sync(name, held[name])
		}
	}
	for key := range d.shelf {
		v.restock(key)
	}
	for key := range d.nominated {
		v.nominate(key)
	}
	if d.budgets {
		v.board.budgets = readBudgets(v.store)
	}
	v.board.keep()
	v.board.sweep()
	return v.board
}

// everything marks all there is.
func (v *view) everything(d *dirt) {
	d.budgets = true
	for _, obj := range v.store.List(api.Nodes(), "") {
		d.nodes[obj.GetName()] = true
	}
	for name := range v.board.slots {
		d.nodes[name] = true
	}
	for _, obj := range v.store.List(api.Namespaces(), "") {
		d.spaces[obj.GetName()] = true
	}
	for name := range v.board.spaces {
		d.spaces[name] = true
	}
	for key := range v.hopes {
		d.nominated[key] = true
	}
	v.board.shelf.each(func(key store.Key) { d.shelf[key] = true })
	for _, gr := range []schema.GroupResource{api.PersistentVolumeClaims(), api.PersistentVolumes(), api.StorageClasses()} {
		for _, obj := range v.store.List(gr, "") {
			d.shelf[store.KeyOf(obj)] = true
		}
	}
	for _, obj := range v.store.List(api.Pods(), "") {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" {
			d.nominated[store.KeyOf(pod)] = true
		}
	}
}

// restock brings a claim, a volume or a class up to date.
func (v *view) restock(key store.Key) {
	obj, s := v.store.Get(key), v.board.shelf
	switch key.GroupResource {
	case api.PersistentVolumeClaims():
		claim, _ := obj.(*corev1.PersistentVolumeClaim)
		s.setClaim(key, claim)
	case api.PersistentVolumes():
		volume, _ := obj.(*corev1.PersistentVolume)
		s.setVolume(key.Name, volume)
	case api.StorageClasses():
		class, _ := obj.(*storagev1.StorageClass)
		s.setClass(key.Name, class)
	}
}

// seen says whether the cache is past the write of a bind: the pod is no longer
// as it was when the bind was written.
func (v *view) seen(key store.Key, b bound) bool {
	pod, ok := v.store.Get(key).(*corev1.Pod)
	return !ok || pod.UID != b.pod.UID || pod.ResourceVersion != b.pod.ResourceVersion
}

// sync brings one node up to date: what the cache shows there and what it will show
// by our binds. Pods that are as before are not counted anew.
func (v *view) sync(name string, held []*corev1.Pod) {
	node, ok := v.store.Get(store.Key{GroupResource: api.Nodes(), Name: name}).(*corev1.Node)
	if !ok {
		v.board.dropNode(name)
		return
	}
	lease := v.store.Get(store.Key{GroupResource: api.Leases(), Namespace: corev1.NamespaceNodeLease, Name: name})
	v.board.setNode(node, lease != nil)
	on := map[types.UID]bool{}
	for _, pod := range v.store.OnNode(name) {
		if !ended(pod) {
			on[pod.UID] = true
			v.board.settle(pod, name)
		}
	}
	for _, pod := range held {
		if !on[pod.UID] {
			on[pod.UID] = true
			v.board.settle(pod, name)
		}
	}
	for uid, r := range v.board.spots[v.board.slots[name]].records {
		if !on[uid] {
			v.board.take(r)
		}
	}
}

// settle makes a pod on a node be counted as it is now.
func (b *board) settle(pod *corev1.Pod, node string) {
	slot := b.slots[node]
	was := b.spots[slot].records[pod.UID]
	if was != nil && was.pod == pod {
		return
	}
	r := b.record(pod)
	if was != nil {
		if was.shape == r.shape && was.owner == r.owner {
			was.pod = pod
			return
		}
		b.take(was)
	}
	b.put(r, slot)
}

// nominate brings up to date for which node a pod is nominated.
func (v *view) nominate(key store.Key) {
	v.board.dismiss(v.hopes[key])
	delete(v.hopes, key)
	pod, ok := v.store.Get(key).(*corev1.Pod)
	if !ok || !ours(pod) || pod.Status.NominatedNodeName == "" {
		return
	}
	if b, bound := v.binds[key]; bound && b.certain && b.pod.UID == pod.UID {
		return
	}
	if slot, known := v.board.slots[pod.Status.NominatedNodeName]; known {
		v.board.nominate(v.board.record(pod), slot)
		v.hopes[key] = pod.UID
	}
}

func readBudgets(r store.Reader) (out []*budget) {
	for _, obj := range r.List(api.PodDisruptionBudgets(), "") {
		pdb, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil {
			continue // validation refuses one that cannot be read; it guards nothing
		}
		g := &budget{namespace: pdb.Namespace, selector: selector, allowed: pdb.Status.DisruptionsAllowed, disrupted: map[string]bool{}}
		for name := range pdb.Status.DisruptedPods {
			g.disrupted[name] = true
		}
		out = append(out, g)
	}
	return out
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
	if certain && len(before.nodes) == 0 {
		if slot, known := v.board.slots[node]; known && v.board.spots[slot].records[pod.UID] == nil {
			v.board.put(v.board.record(pod), slot)
		}
		v.board.dismiss(pod.UID)
		return
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

// own are the nodes where a pod may be by binds whose answers were lost.
func (v *view) own(pod *corev1.Pod) []string {
	if b, ok := v.binds[store.KeyOf(pod)]; ok && !b.certain && b.pod.UID == pod.UID {
		return slices.Clone(b.nodes)
	}
	return nil
}

// ended says whether a pod needs nothing of its node any more: one that has failed and
// is still being stopped does (R11).
func ended(pod *corev1.Pod) bool { return podset.Ended(pod) }
