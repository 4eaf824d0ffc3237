package scheduler

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// board is the nodes and what is on them, with every count that a decision needs.
// A pod that comes or goes changes the counts it is in and nothing else; so a
// decision costs a look at each node, whatever the number of pods.
//
// A plan tries its placements on the board itself and takes them back with undo.
type board struct {
	spots []*nodeInfo    // by slot, nil where there is none
	slots map[string]int // by the node's name
	spare []int

	images map[string]*imageState // by name: what nodes have
	had    map[int][]string       // the names by slot

	spaces     map[string]*space
	kins       map[string]*kin
	shapes     map[shapeKey]*shape
	grounds    map[string]*ground
	tallies    map[string]*tally
	carried    map[string]*carried
	owners     map[types.UID]map[int]int // pods of a controller by slot
	priorities map[int32]int             // placed pods by priority
	nominated  map[types.UID]*record     // pods that wait for room made for them
	budgets    []*budget
	shelf      *shelf

	journal []change
	version uint64 // another one for every state of the nodes and pods
	states  uint64 // how many there were
	clock   uint64
	scratch scratch
}

// shapeKey is the same for pods of one template: those share their decoded spec
// (D3), and with it the first container.
type shapeKey struct {
	spec *corev1.Container
	kin  *kin
}

// record is a pod on the board.
type record struct {
	pod   *corev1.Pod
	shape *shape
	owner types.UID // of its controller; "" without one
	slot  int       // where it is or is nominated to; nowhere otherwise

	claims []store.Key // of its volumes
}

func (r *record) uid() types.UID { return r.pod.UID }

// change is an entry of the journal.
type change struct {
	what    changeKind
	r       *record
	slot    int
	claim   store.Key
	version uint64 // before it
}

type changeKind uint8

const (
	added changeKind = iota
	removed
	nominated
	dismissed
	promised
)

func newBoard() *board {
	return &board{slots: map[string]int{}, images: map[string]*imageState{}, had: map[int][]string{}, spaces: map[string]*space{}, kins: map[string]*kin{}, shapes: map[shapeKey]*shape{}, grounds: map[string]*ground{},
		tallies: map[string]*tally{}, carried: map[string]*carried{}, owners: map[types.UID]map[int]int{}, priorities: map[int32]int{}, nominated: map[types.UID]*record{}, shelf: newShelf()}
}

// record reads a pod, which is not placed by that.
func (b *board) record(pod *corev1.Pod) *record {
	k := b.kin(pod.Namespace, pod.Labels, pod.DeletionTimestamp != nil)
	return &record{pod: pod, shape: b.shape(pod, k), owner: ownerOf(pod), slot: nowhere, claims: claimsOf(pod)}
}

func (b *board) shape(pod *corev1.Pod, k *kin) *shape {
	key := shapeKey{kin: k}
	if len(pod.Spec.Containers) > 0 {
		key.spec = &pod.Spec.Containers[0]
	}
	s := b.shapes[key]
	if s == nil || key.spec == nil {
		s = shapeOf(pod, k)
		b.shapes[key] = s
	}
	s.used = b.clock
	return s
}

func (b *board) kin(namespace string, set labels.Set, going bool) *kin {
	var id strings.Builder
	id.WriteString(namespace)
	for _, key := range slices.Sorted(maps.Keys(set)) {
		id.WriteString("," + key + "=" + set[key])
	}
	if going {
		id.WriteString(",") // a label's name is never empty
	}
	k := b.kins[id.String()]
	if k == nil {
		k = &kin{key: id.String(), space: b.space(namespace), labels: set, going: going, on: map[int]int{}}
		b.kins[k.key] = k
		b.relate(k)
	}
	k.used = b.clock
	return k
}

func (b *board) space(name string) *space {
	s := b.spaces[name]
	if s == nil {
		s = &space{name: name}
		b.spaces[name] = s
	}
	return s
}

// relate finds what is about the pods of a kin, and counts those there are.
func (b *board) relate(k *kin) {
	k.tallies, k.repels, k.feels = nil, nil, nil
	for _, t := range b.tallies {
		if t.selects(k) {
			b.count(t, k)
		}
	}
	for _, c := range b.carried {
		k.feel(c)
	}
}

func (b *board) count(t *tally, k *kin) {
	k.tallies = append(k.tallies, t)
	for slot, pods := range k.on {
		t.shift(slot, pods)
	}
}

func (k *kin) feel(c *carried) {
	switch {
	case !c.term.selects(k):
	case c.weight == repel:
		k.repels = append(k.repels, c)
	default:
		k.feels = append(k.feels, c)
	}
}

// setSpace says what labels a namespace has.
func (b *board) setSpace(name string, set labels.Set) {
	s := b.space(name)
	if maps.Equal(s.labels, set) {
		return
	}
	s.labels = set
	b.changed()
	for _, k := range b.kins {
		if k.space != s {
			continue
		}
		for _, t := range k.tallies {
			for slot, pods := range k.on {
				t.shift(slot, -pods)
			}
		}
		b.relate(k)
	}
	for key, shape := range b.shapes { // what a pod thinks of itself may have changed
		if shape.kin.space == s && len(shape.needs) > 0 {
			delete(b.shapes, key)
		}
	}
}

// setNode puts a node on the board, or brings it up to date.
func (b *board) setNode(node *corev1.Node, leased bool) {
	b.changed()
	slot, known := b.slots[node.Name]
	if !known {
		slot = len(b.spots)
		if last := len(b.spare) - 1; last >= 0 {
			slot, b.spare = b.spare[last], b.spare[:last]
		} else {
			b.spots = append(b.spots, nil)
		}
		b.slots[node.Name] = slot
		b.spots[slot] = newNodeInfo(node, leased)
		b.setImages(slot, node)
		b.survey(slot)
		return
	}
	n := b.spots[slot]
	if !equalImages(n.node, node) {
		b.setImages(slot, node)
	}
	is := newNodeInfo(node, leased)
	same := is.alive == n.alive && n.node.Spec.Unschedulable == node.Spec.Unschedulable && maps.Equal(n.node.Labels, node.Labels) &&
		slices.EqualFunc(n.node.Spec.Taints, node.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
	n.node, n.alive, n.allocatable, n.maxPods = is.node, is.alive, is.allocatable, is.maxPods
	if same {
		return
	}
	records := b.lift(n)
	b.survey(slot)
	for _, r := range records {
		b.put(r, slot)
	}
}

// lift takes all pods off a node.
func (b *board) lift(n *nodeInfo) []*record {
	records := slices.Collect(maps.Values(n.records))
	for _, r := range records {
		b.take(r)
	}
	return records
}

// dropNode takes a node and its pods off the board.
func (b *board) dropNode(name string) {
	slot, known := b.slots[name]
	if !known {
		return
	}
	b.changed()
	b.lift(b.spots[slot])
	b.setImages(slot, nil)
	delete(b.slots, name)
	b.spots[slot] = nil
	b.survey(slot)
	b.spare = append(b.spare, slot)
	for uid, r := range b.nominated {
		if r.slot == slot {
			delete(b.nominated, uid)
		}
	}
}

// survey works out what everyone thinks of a node.
func (b *board) survey(slot int) {
	n := b.spots[slot]
	for _, g := range b.grounds { // before tallies, which ask them
		g.look(slot, n)
	}
	for _, t := range b.tallies {
		t.place(slot, n)
	}
	for _, c := range b.carried {
		c.place(slot, n)
	}
}

// add places a pod, and remove takes it away; undo takes either back.
func (b *board) add(r *record, slot int) {
	b.log(added, r, slot)
	b.put(r, slot)
}

func (b *board) remove(r *record) {
	b.log(removed, r, r.slot)
	b.take(r)
}

// nominate keeps room on a node for a pod.
func (b *board) nominate(r *record, slot int) {
	b.log(nominated, r, slot)
	b.changed()
	r.slot = slot
	b.nominated[r.uid()] = r
	b.spots[slot].nominated = append(b.spots[slot].nominated, r)
}

// dismiss forgets for which node a pod is nominated.
func (b *board) dismiss(uid types.UID) {
	r := b.nominated[uid]
	if r == nil {
		return
	}
	b.log(dismissed, r, r.slot)
	b.changed()
	delete(b.nominated, uid)
	n := b.spots[r.slot]
	n.nominated = slices.DeleteFunc(slices.Clone(n.nominated), func(o *record) bool { return o == r })
}

// mark is where undo goes back to.
func (b *board) mark() int { return len(b.journal) }

// undo takes back what happened since the mark.
func (b *board) undo(mark int) {
	for n := len(b.journal) - 1; n >= mark; n-- {
		switch c := b.journal[n]; c.what {
		case added:
			b.take(c.r)
		case removed:
			b.put(c.r, c.slot)
		case nominated:
			b.dismiss(c.r.uid())
		case dismissed:
			b.nominate(c.r, c.slot)
		case promised:
			b.shelf.unpromise(c.claim)
		}
		b.version, b.journal = b.journal[n].version, b.journal[:n]
	}
}

func (b *board) log(what changeKind, r *record, slot int) {
	b.journal = append(b.journal, change{what: what, r: r, slot: slot, version: b.version})
}

func (b *board) changed() {
	b.states++
	b.version = b.states
}

// keep makes what happened so far final.
func (b *board) keep() { b.journal = b.journal[:0] }

func (b *board) put(r *record, slot int) {
	b.changed()
	r.slot = slot
	b.spots[slot].place(r)
	b.shift(r, slot, 1)
}

func (b *board) take(r *record) {
	b.changed()
	slot := r.slot
	b.spots[slot].unplace(r)
	b.shift(r, slot, -1)
	r.slot = nowhere
}

// shift moves every count that a pod is in.
func (b *board) shift(r *record, slot, by int) {
	k := r.shape.kin
	tick(k.on, slot, by)
	for _, t := range k.tallies {
		t.shift(slot, by)
	}
	for i := range r.shape.carries {
		c := b.carry(&r.shape.carries[i])
		c.pods += by
		c.shift(slot, by)
	}
	if r.owner != "" {
		on := b.owners[r.owner]
		if on == nil {
			on = map[int]int{}
			b.owners[r.owner] = on
		}
		if tick(on, slot, by); len(on) == 0 {
			delete(b.owners, r.owner)
		}
	}
	tick(b.priorities, r.shape.priority, by)
	for _, key := range r.claims {
		tick(b.shelf.users, key, by)
	}
}

func tick[K comparable](counts map[K]int, key K, by int) {
	if counts[key] += by; counts[key] == 0 {
		delete(counts, key)
	}
}

// carry returns where the pods are that carry a term.
func (b *board) carry(l *liking) *carried {
	key := strconv.FormatInt(l.weight, 10) + "|" + l.key
	c := b.carried[key]
	if c == nil {
		c = &carried{key: key, liking: *l, tally: newTally(byKey(l.topology), nil)}
		b.carried[key] = c
		for slot, n := range b.spots {
			c.place(slot, n)
		}
		for _, k := range b.kins {
			k.feel(c)
		}
	}
	return c
}

func byKey(topology string) func(*nodeInfo) (string, bool) {
	return func(n *nodeInfo) (string, bool) { value, ok := n.node.Labels[topology]; return value, ok }
}

// tally returns the counts for a key, made when they are asked for first.
func (b *board) tally(key string, domain func(*nodeInfo) (string, bool), selects func(*kin) bool) *tally {
	t := b.tallies[key]
	if t == nil {
		t = newTally(domain, selects)
		b.tallies[key] = t
		for slot, n := range b.spots {
			t.place(slot, n)
		}
		for _, k := range b.kins {
			if selects(k) {
				b.count(t, k)
			}
		}
	}
	t.used = b.clock
	return t
}

// lower says whether a pod of lower priority is placed.
func (b *board) lower(priority int32) bool {
	for p := range b.priorities {
		if p < priority {
			return true
		}
	}
	return false
}

// patience is for how many looks something is kept that nobody asks for.
const patience = 1024

// sweep forgets what nobody has asked for lately; it is called between plans.
func (b *board) sweep() {
	if b.clock++; b.clock%patience != 0 {
		return
	}
	idle := func(used uint64) bool { return used+patience < b.clock }
	maps.DeleteFunc(b.tallies, func(_ string, t *tally) bool { return idle(t.used) })
	maps.DeleteFunc(b.carried, func(_ string, c *carried) bool { return c.pods == 0 })
	maps.DeleteFunc(b.shapes, func(_ shapeKey, s *shape) bool { return idle(s.used) })
	wanted := map[*kin]bool{}
	for _, s := range b.shapes {
		wanted[s.kin] = true
	}
	for _, r := range b.nominated {
		wanted[r.shape.kin] = true
	}
	maps.DeleteFunc(b.kins, func(_ string, k *kin) bool { return len(k.on) == 0 && !wanted[k] && idle(k.used) })
	for _, k := range b.kins {
		k.tallies = slices.DeleteFunc(k.tallies, func(t *tally) bool { return idle(t.used) })
		gone := func(c *carried) bool { return c.pods == 0 }
		k.repels, k.feels = slices.DeleteFunc(k.repels, gone), slices.DeleteFunc(k.feels, gone)
	}
	asked := map[string]bool{} // a tally may ask a ground that no pod asks
	for _, t := range b.tallies {
		asked[t.ground] = true
	}
	maps.DeleteFunc(b.grounds, func(key string, g *ground) bool { return idle(g.used) && !asked[key] })
}
