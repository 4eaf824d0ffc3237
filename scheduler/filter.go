package scheduler

import (
	"headway.dev/headway/internal/hostport"
	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// reason is why a node does not do. They are in the order in which they are asked;
// the first that holds speaks for the node.
type reason uint8

const (
	fits reason = iota
	notReady
	unschedulable
	tainted
	unlike
	elsewhere
	noVolume
	portTaken
	noRoom
	exclusive
	noDomain
	skewed
	needsMissing
	avoided
	repelled
	reasons // how many there are
)

// The words for resources. Each that is short counts by itself.
const (
	reasonPods     = "Too many pods"
	reasonResource = "Insufficient " // and the resource's name
)

// String is in Kubernetes' words where it has them.
func (r reason) String() string {
	return [...]string{
		notReady:      "node(s) were not ready",
		unschedulable: "node(s) were unschedulable",
		tainted:       "node(s) had untolerated taint(s)",
		unlike:        "node(s) didn't match Pod's node affinity/selector",
		elsewhere:     "node(s) didn't match PersistentVolume's node affinity",
		noVolume:      "node(s) didn't find available persistent volumes to bind",
		exclusive:     "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
		portTaken:     "node(s) didn't have free ports for the requested pod ports",
		noRoom:        "node(s) had too little room",
		noDomain:      "node(s) didn't match pod topology spread constraints (missing required label)",
		skewed:        "node(s) didn't match pod topology spread constraints",
		needsMissing:  "node(s) didn't match pod affinity rules",
		avoided:       "node(s) didn't match pod anti-affinity rules",
		repelled:      "node(s) didn't satisfy existing pods anti-affinity rules",
		reasons:       "",
	}[r]
}

// yields says whether the reason may go with other pods.
func (r reason) yields() bool {
	switch r {
	case portTaken, noRoom, exclusive, skewed, avoided, repelled:
		return true
	}
	return false
}

// ground is what pods of one kind think of each node, apart from what is on it.
type ground struct {
	tolerations []corev1.Toleration
	affinity    nodeaffinity.RequiredNodeAffinity
	preferred   *nodeaffinity.PreferredSchedulingTerms
	verdicts    []verdict // by slot
	used        uint64
}

type verdict struct {
	why       reason
	matches   bool  // node selector and required node affinity
	tolerated bool  // no taint keeps the pod off
	likes     int64 // preferred node affinity
	soft      int64 // taints that only ask to stay away
}

// ground returns what a shape thinks of nodes, worked out when it is asked first.
func (b *board) ground(s *shape) *ground {
	g := b.grounds[s.ground]
	if g == nil {
		g = &ground{tolerations: s.pod.Spec.Tolerations, affinity: s.affinity, preferred: s.preferred}
		b.grounds[s.ground] = g
		for slot, n := range b.spots {
			g.look(slot, n)
		}
	}
	g.used = b.clock
	return g
}

// look works out the verdict on a node. An affinity that cannot be read matches
// no node.
func (g *ground) look(slot int, n *nodeInfo) {
	for len(g.verdicts) <= slot {
		g.verdicts = append(g.verdicts, verdict{})
	}
	if n == nil {
		return
	}
	var v verdict
	v.matches, _ = g.affinity.Match(n.node)
	v.tolerated = true
	for i := range n.node.Spec.Taints {
		t := &n.node.Spec.Taints[i]
		switch {
		case g.tolerates(t):
		case t.Effect == corev1.TaintEffectPreferNoSchedule:
			v.soft++
		default:
			v.tolerated = false
		}
	}
	if g.preferred != nil {
		v.likes = g.preferred.Score(n.node)
	}
	switch {
	case !n.alive:
		v.why = notReady
	case n.node.Spec.Unschedulable && !g.tolerates(&corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}):
		v.why = unschedulable
	case !v.tolerated:
		v.why = tainted
	case !v.matches:
		v.why = unlike
	}
	g.verdicts[slot] = v
}

func (g *ground) tolerates(t *corev1.Taint) bool {
	return schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, g.tolerations, t, true)
}

// trial is a pod held against the board. Everything it needs has been looked up,
// so that asking about a node costs little.
type trial struct {
	b          *board
	r          *record
	s          *shape
	ground     *ground
	hard, soft []*tally // for s.hard and s.soft
	needs      []*tally
	avoids     []*tally
	likes      []*tally // for s.likes
	wants      *wants   // nil without claims
}

func (b *board) trial(r *record) *trial {
	s := r.shape
	t := &trial{b: b, r: r, s: s, ground: b.ground(s)}
	if len(r.claims) > 0 {
		t.wants = b.wants(r)
	}
	matching := func(one *term) *tally { return b.tally(one.key, byKey(one.topology), one.selects) }
	spreading := func(constraints []*spread) (out []*tally) {
		for _, c := range constraints {
			out = append(out, b.spreading(s, c, t.ground))
		}
		return out
	}
	t.hard, t.soft = spreading(s.hard), spreading(s.soft)
	for _, n := range s.needs {
		if len(s.needs) == 1 {
			t.needs = append(t.needs, matching(n))
			continue
		}
		key := "all|" + n.topology // a pod counts only if every term selects it
		for _, other := range s.needs {
			key += "|" + other.key
		}
		t.needs = append(t.needs, b.tally(key, byKey(n.topology), func(k *kin) bool {
			for _, other := range s.needs {
				if !other.selects(k) {
					return false
				}
			}
			return true
		}))
	}
	for _, a := range s.avoids {
		t.avoids = append(t.avoids, matching(a))
	}
	for _, l := range s.likes {
		t.likes = append(t.likes, matching(l.term))
	}
	return t
}

// spreading is the count for a constraint: of pods in the pod's own namespace that
// are not being deleted, on nodes that the constraint's policies include.
func (b *board) spreading(s *shape, c *spread, g *ground) *tally {
	space := s.kin.space
	t := b.tally(c.key, func(n *nodeInfo) (string, bool) {
		for _, key := range c.all {
			if _, ok := n.node.Labels[key]; !ok {
				return "", false
			}
		}
		if c.affinity || c.taints {
			v := &g.verdicts[b.slots[n.node.Name]]
			if c.affinity && !v.matches || c.taints && !v.tolerated {
				return "", false
			}
		}
		return n.node.Labels[c.topology], true
	}, func(k *kin) bool { return k.space == space && !k.going && c.selector.Matches(k.labels) })
	if c.affinity || c.taints {
		t.ground = s.ground
	}
	return t
}

// why says why the pod cannot run on a node, with what is there now (R11).
func (t *trial) why(slot int) reason {
	if why := t.ground.verdicts[slot].why; why != fits {
		return why
	}
	n := t.b.spots[slot]
	if t.wants != nil {
		if why := t.reach(slot); why != fits {
			return why
		}
	}
	if len(t.s.demand.ports) > 0 && !portsFree(t.s.demand.ports, n) {
		return portTaken
	}
	if !n.hasRoom(&t.s.demand, 0, &amounts{}) {
		return noRoom
	}
	if t.wants != nil && t.exclusive() {
		return exclusive
	}
	for i, c := range t.s.hard {
		if why := c.allows(t.hard[i], slot, n); why != fits {
			return why
		}
	}
	return t.neighbours(slot)
}

// allows is the rule of a spread constraint: with the pod there, the node's domain
// has at most maxSkew more than the one that has fewest.
func (c *spread) allows(count *tally, slot int, n *nodeInfo) reason {
	there, included := count.on(slot) // a node that is not included has none
	if !included {
		if _, ok := n.node.Labels[c.topology]; !ok {
			return noDomain
		}
	}
	fewest := 0
	if count.domains() >= c.minDomains {
		fewest = count.fewest()
	}
	if there+c.self-fewest > c.maxSkew {
		return skewed
	}
	return fits
}

// neighbours asks what the pod says of others, and what they say of it.
func (t *trial) neighbours(slot int) reason {
	met, any := true, false
	for _, count := range t.needs {
		pods, ok := count.on(slot)
		if !ok { // the node lacks the topology key
			return needsMissing
		}
		met, any = met && pods > 0, any || count.total > 0
	}
	// The first of a set that wants to be together may go anywhere.
	if !met && (any || !t.s.alone) {
		return needsMissing
	}
	for _, count := range t.avoids {
		if pods, _ := count.on(slot); pods > 0 {
			return avoided
		}
	}
	for _, c := range t.s.kin.repels {
		if pods, _ := c.on(slot); pods > 0 {
			return repelled
		}
	}
	return fits
}

// ask is why, and in addition the node must do with the pods that are nominated to
// it and are not of lower priority.
func (t *trial) ask(slot int) reason {
	why := t.why(slot)
	if why != fits {
		return why
	}
	if len(t.b.spots[slot].nominated) == 0 {
		return fits
	}
	pods, held := t.reserved(slot)
	if pods == 0 {
		return fits
	}
	if !t.b.spots[slot].hasRoom(&t.s.demand, -pods, &held) { // most often, and soon told
		return noRoom
	}
	mark := t.b.mark()
	t.imagine(slot)
	why = t.why(slot)
	t.b.undo(mark)
	return why
}

// reserved is how many pods that are nominated to a node have no lower priority, and
// what they will take, as what is given back: below zero. The pod itself is not among
// them, since it is dismissed before it is decided about.
func (t *trial) reserved(slot int) (pods int64, back amounts) {
	for _, o := range t.b.spots[slot].nominated {
		if o.shape.priority >= t.s.priority {
			pods++
			back.add(&o.shape.demand.requests, -1)
		}
	}
	return pods, back
}

// imagine puts those pods on the node.
func (t *trial) imagine(slot int) {
	for _, o := range t.b.spots[slot].nominated {
		if o.shape.priority >= t.s.priority {
			t.b.add(&record{pod: o.pod, shape: o.shape, owner: o.owner, claims: o.claims}, slot)
		}
	}
}

func portsFree(ports []hostport.Port, n *nodeInfo) bool {
	for _, want := range ports {
		for have := range n.ports {
			if have.Clashes(want) {
				return false
			}
		}
	}
	return true
}
