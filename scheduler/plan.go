package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decision is what becomes of one pod: a node, or the reason why there is none and
// what is done about it.
type decision struct {
	pod     *corev1.Pod
	node    *corev1.Node // nil: it waits
	score   score
	weights weights
	message string // why it waits, in Kubernetes' form
	hopes   hopes  // what may give it a place

	nominated string        // the node that is being emptied for it; "" for none
	victims   []*corev1.Pod // are deleted for it
	displaced []*corev1.Pod // were nominated to that node and are of lower priority

	binds []*promise                      // claims that are bound with the pod
	held  []*corev1.PersistentVolumeClaim // that it has already
}

// ops is how many operations a decision takes, its events included.
func (d *decision) ops() int { return 2 + 2*len(d.victims) + len(d.displaced) + 3*len(d.binds) }

// bytes is about how much of a transaction the claims and volumes of a decision take.
func (d *decision) bytes() (n int) {
	for _, p := range d.binds {
		n += p.bound.Size() + p.volume.Size()
	}
	return n
}

// others are the pods that a decision changes beside its own.
func (d *decision) others() []*corev1.Pod { return slices.Concat(d.victims, d.displaced) }

// hopes says what may give a waiting pod a place, beside a change of a node.
type hopes struct {
	room bool // a pod that leaves
	near bool // a pod that comes, or changes its labels

	claims  []store.Key // a change of these
	volumes bool        // a change of volumes and classes
}

// plan places pods, in order, each one seeing those before it, until a transaction
// is full. What the first may hold already on its own nodes, by binds whose answers
// were lost, is not held against it. The board is as before when it returns.
func plan(b *board, pods []*corev1.Pod, own ...string) []decision {
	start := b.mark()
	defer b.undo(start)
	for _, name := range own {
		if slot, known := b.slots[name]; known {
			if r := b.spots[slot].records[pods[0].UID]; r != nil {
				b.remove(r)
			}
		}
	}
	p := planner{b: b, failed: map[*shape]decision{}, touched: map[types.UID]bool{}}
	var out []decision
	ops, bytes, conditions := 0, 0, 0
	for _, pod := range pods {
		if p.touched[pod.UID] {
			break
		}
		mark := b.mark()
		d := p.decide(pod)
		ops, bytes, conditions = ops+d.ops(), bytes+d.bytes(), conditions+1+len(d.held)
		if len(out) > 0 && (ops > store.BulkObjects || ops+conditions > store.MaxOps-1 || bytes > store.BulkBytes/4 || slices.ContainsFunc(d.others(), p.isTouched)) {
			b.undo(mark)
			break
		}
		for _, other := range append(d.others(), pod) {
			p.touched[other.UID] = true
		}
		out = append(out, d)
	}
	return out
}

type planner struct {
	b       *board
	failed  map[*shape]decision // of shapes that fit nowhere
	version uint64              // of the board when that was found
	touched map[types.UID]bool  // pods that the plan writes: a transaction writes each once
}

func (p *planner) isTouched(pod *corev1.Pod) bool { return p.touched[pod.UID] }

// decide decides about one pod and changes the board as if that were done.
func (p *planner) decide(pod *corev1.Pod) decision {
	r := p.b.record(pod)
	if r.shape.err != nil {
		return decision{pod: pod, message: unreadable(r.shape.err)}
	}
	if p.version != p.b.version {
		clear(p.failed)
		p.version = p.b.version
	}
	alike := pod.Status.NominatedNodeName == "" && len(r.claims) == 0 // as far as shapes go
	if d, known := p.failed[r.shape]; known && alike {
		d.pod = pod
		return d
	}
	d := p.b.decide(r)
	if alike && d.node == nil && d.nominated == "" {
		p.failed[r.shape], p.version = d, p.b.version
	}
	return d
}

// decide finds a place for a pod or makes room for it.
func (b *board) decide(r *record) decision {
	d := decision{pod: r.pod, weights: r.shape.weights()}
	b.dismiss(r.uid())
	t := b.trial(r)
	if t.wants != nil && t.wants.blocked != "" {
		return d.blocked(len(b.slots), r, t.wants.blocked)
	}
	n, s, why := t.choose()
	if n != nil && t.wants != nil {
		mark := b.mark()
		if err := t.bindClaims(&d, n.node); err != nil {
			b.undo(mark)
			d.binds, d.held = nil, nil
			return d.blocked(len(b.slots), r, err.Error())
		}
	}
	if n != nil {
		d.node, d.score = n.node, s
		b.add(r, b.slots[n.node.Name])
		return d
	}
	d.message, d.hopes = explain(len(b.slots), why.words()), why.hopes(r.shape)
	if t.wants != nil {
		d.hopes.claims, d.hopes.volumes = r.claims, true
	}
	t.preempt(&d)
	return d
}

// blocked is the decision to wait for claims and volumes alone.
func (d decision) blocked(nodes int, r *record, why string) decision {
	d.message = fmt.Sprintf("0/%d nodes are available: %s.", nodes, why)
	d.hopes = hopes{claims: r.claims, volumes: true}
	return d
}

// refusals counts why nodes do not do.
type refusals struct {
	by    [reasons]int
	short map[string]int // resources and pods
}

// choose returns the best node, or why there is none. The one that was made free
// for the pod is as good as the best.
func (t *trial) choose() (*nodeInfo, score, refusals) {
	b := t.b
	if slot, known := b.slots[t.r.pod.Status.NominatedNodeName]; known && t.ask(slot) == fits {
		return b.spots[slot], score{}, refusals{}
	}
	var why refusals
	fit, whys := b.scratch.fit[:0], b.scratch.why[:0]
	for slot, n := range b.spots {
		r := notReady
		if n != nil {
			r = t.ask(slot)
			why.by[r]++
		}
		if whys = append(whys, r); r == fits {
			fit = append(fit, slot)
		}
	}
	b.scratch.fit, b.scratch.why = fit, whys
	if len(fit) == 0 {
		why.short = t.shortages()
		return nil, score{}, why
	}
	n, s := t.best(fit)
	return n, s, why
}

// shortages counts, over the nodes that choose found without room, what is short.
func (t *trial) shortages() map[string]int {
	out := map[string]int{}
	for slot, n := range t.b.spots {
		if n != nil && t.b.scratch.why[slot] == noRoom {
			t.shortAt(slot, out)
		}
	}
	return out
}

// shortAt counts what is short on a node, or else beside the pods that are nominated
// to it.
func (t *trial) shortAt(slot int, out map[string]int) {
	n := t.b.spots[slot]
	any := false
	n.lacks(&t.s.demand, 0, &amounts{}, func(what string) { out[what]++; any = true })
	if any {
		return
	}
	pods, held := t.reserved(slot)
	n.lacks(&t.s.demand, -pods, &held, func(what string) { out[what]++ })
}

func (f *refusals) words() map[string]int {
	out := maps.Clone(f.short)
	for r, n := range f.by {
		if n > 0 && reason(r) != fits && reason(r) != noRoom {
			out[reason(r).String()] += n
		}
	}
	return out
}

func (f *refusals) hopes(s *shape) hopes {
	h := hopes{near: s.near() && f.by[noDomain]+f.by[skewed]+f.by[needsMissing]+f.by[avoided]+f.by[repelled] > 0 || f.by[repelled] > 0}
	for r, n := range f.by {
		h.room = h.room || n > 0 && reason(r).yields()
	}
	return h
}

func unreadable(err error) string {
	return fmt.Sprintf("the pod's affinity or spread constraints cannot be read: %v", err)
}

// explain says why no node does, in the form of Kubernetes' scheduler.
func explain(nodes int, why map[string]int) string {
	if nodes == 0 {
		return "no nodes available to schedule pods"
	}
	var reasons []string
	for reason, n := range why {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(reasons)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(reasons, ", "))
}
