package scheduler

// tally counts pods by domain: by the value that a topology key has on their
// nodes. It is kept up to date by every pod that comes or goes, so asking it costs
// two look-ups, however many pods there are.
type tally struct {
	domain  func(n *nodeInfo) (value string, ok bool) // of a node; not ok when it counts for nothing
	selects func(k *kin) bool                         // nil: counted by the pods that carry it

	at     []int // slot → domain, or nowhere
	ids    map[string]int
	spare  []int
	values []string
	count  []int // domain → pods
	nodes  []int // domain → nodes
	total  int
	levels []int // pods in a domain → domains that have as many
	least  int   // pods of the domain that has fewest
	used   uint64
	ground string // that domain asks; "" when it asks none
}

const nowhere = -1

func newTally(domain func(*nodeInfo) (string, bool), selects func(*kin) bool) *tally {
	return &tally{domain: domain, selects: selects, ids: map[string]int{}}
}

// place says in which domain a node is now; the node has no counted pods. A nil
// node is none.
func (t *tally) place(slot int, n *nodeInfo) {
	for len(t.at) <= slot {
		t.at = append(t.at, nowhere)
	}
	if id := t.at[slot]; id != nowhere {
		t.at[slot] = nowhere
		if t.nodes[id]--; t.nodes[id] == 0 {
			t.level(t.count[id], -1)
			delete(t.ids, t.values[id])
			t.spare = append(t.spare, id)
		}
	}
	if n == nil {
		return
	}
	value, ok := t.domain(n)
	if !ok {
		return
	}
	id, known := t.ids[value]
	if !known {
		if last := len(t.spare) - 1; last >= 0 {
			id, t.spare = t.spare[last], t.spare[:last]
		} else {
			id = len(t.count)
			t.count, t.nodes, t.values = append(t.count, 0), append(t.nodes, 0), append(t.values, "")
		}
		t.ids[value], t.values[id] = id, value
		t.level(0, 1)
	}
	t.nodes[id]++
	t.at[slot] = id
}

// shift adds pods on a node.
func (t *tally) shift(slot, pods int) {
	id := t.at[slot]
	if id == nowhere {
		return
	}
	t.level(t.count[id], -1)
	t.count[id] += pods
	t.total += pods
	t.level(t.count[id], 1)
}

func (t *tally) level(count, by int) {
	for len(t.levels) <= count {
		t.levels = append(t.levels, 0)
	}
	t.levels[count] += by
	if by > 0 {
		t.least = min(t.least, count)
	}
}

// fewest is how many pods the domain with the fewest has.
func (t *tally) fewest() int {
	for t.least < len(t.levels)-1 && t.levels[t.least] == 0 {
		t.least++
	}
	return t.least
}

func (t *tally) domains() int { return len(t.ids) }

// on is how many pods are in the domain of a node.
func (t *tally) on(slot int) (pods int, ok bool) {
	id := t.at[slot]
	if id == nowhere {
		return 0, false
	}
	return t.count[id], true
}

// carried is a term that placed pods have, and where they are.
type carried struct {
	key string
	liking
	*tally
	pods int // that carry it, wherever they are
}
