package route

import (
	"cmp"
	"slices"
)

// wanted is what the table should hold: the elements of all Services, and which
// of them changed since the kernel was last told.
type wanted struct {
	elements map[key]claim
	others   map[key][]claim // of keys that several Services want, those that do not have it
	sizes    map[value]int   // how many groups use a made chain
	before   map[key]*value  // what a changed element was; nil: it was not there
	lagging  map[key]value   // what is wanted no more and still in the kernel
	chains   map[value]bool  // made chains that may have come or gone
	made     map[value]bool  // made chains that the kernel has
	idle     map[value]bool  // those of them that nothing leads to
	serving  map[road]int    // how many Services have it to a target that answers
	answers  map[target]int  // how many roads lead to a UDP target
	silent   map[road]bool   // those that lead to it no more
}

// claim is a Service's wish for an element. Of several for one key the Service
// that comes first by name has it, whatever the order of events.
type claim struct {
	by  *name // a Service's own, the same as long as it wants anything
	val value
}

func newWanted() *wanted {
	return &wanted{
		elements: map[key]claim{}, others: map[key][]claim{}, sizes: map[value]int{},
		before: map[key]*value{}, lagging: map[key]value{}, chains: map[value]bool{}, made: map[value]bool{}, idle: map[value]bool{},
		serving: map[road]int{}, answers: map[target]int{}, silent: map[road]bool{},
	}
}

// replace exchanges the elements that a Service wants, both sorted.
func (w *wanted) replace(by *name, old, new []entry) {
	for len(old) > 0 || len(new) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(new) == 0:
			order = -1
		default:
			order = old[0].compare(new[0])
		}
		switch {
		case order < 0:
			w.remove(by, old[0].key)
			old = old[1:]
		case order > 0:
			w.add(new[0].key, claim{by, new[0].val})
			new = new[1:]
		default:
			if old[0].val != new[0].val {
				w.remove(by, old[0].key)
				w.add(new[0].key, claim{by, new[0].val})
			}
			old, new = old[1:], new[1:]
		}
	}
}

func (w *wanted) add(k key, c claim) {
	holder, taken := w.elements[k]
	switch {
	case !taken:
	case c.by.compare(*holder.by) < 0:
		w.others[k] = append(w.others[k], holder)
	default:
		w.others[k] = append(w.others[k], c)
		return
	}
	w.set(k, &c)
}

func (w *wanted) remove(by *name, k key) {
	if w.elements[k].by != by {
		w.yield(by, k)
		return
	}
	rest := w.others[k]
	if len(rest) == 0 {
		w.set(k, nil)
		return
	}
	next := slices.MinFunc(rest, func(a, b claim) int { return a.by.compare(*b.by) })
	w.yield(next.by, k)
	w.set(k, &next)
}

// yield takes a Service's wish out of those that wait for a key.
func (w *wanted) yield(by *name, k key) {
	w.others[k] = slices.DeleteFunc(w.others[k], func(c claim) bool { return c.by == by })
	if len(w.others[k]) == 0 {
		delete(w.others, k)
	}
}

// set changes an element and notes what it was.
func (w *wanted) set(k key, c *claim) {
	old, was := w.elements[k]
	if _, noted := w.before[k]; !noted {
		w.before[k] = nil
		if was {
			w.before[k] = &old.val
		}
	}
	if was && k.set == groups {
		w.use(old.val, -1)
	}
	if c == nil {
		delete(w.elements, k)
		return
	}
	w.elements[k] = *c
	if k.set == groups {
		w.use(c.val, 1)
	}
}

func (w *wanted) use(v value, n int) {
	for _, c := range []value{v, {b: v.b}} { // a chain where clients stick has another behind it
		if c == (value{}) {
			continue
		}
		w.chains[c] = true
		if w.sizes[c] += n; w.sizes[c] == 0 {
			delete(w.sizes, c)
		}
	}
}

// serve exchanges the roads of a Service.
func (w *wanted) serve(old, new []road) {
	for _, r := range new {
		w.serving[r]++
		w.answers[r.to]++
		delete(w.silent, r)
	}
	for _, r := range old {
		if w.serving[r]--; w.serving[r] == 0 {
			delete(w.serving, r)
			w.silent[r] = true
		}
		if w.answers[r.to]--; w.answers[r.to] == 0 {
			delete(w.answers, r.to)
		}
	}
}

// change is what the kernel has to be told.
type change struct {
	add, remove   []entry
	make, abandon []value // chains of groups
	all           bool    // the table is made anew
	late          int     // of remove: known to be there still, see lags
}

func (c *change) empty() bool {
	return !c.all && len(c.add)+len(c.remove)+len(c.make)+len(c.abandon) == 0
}

// lags reports whether elements of a set stay until the change after the one that
// makes them unreachable: a packet may be on its way to them. What clients stick
// to must go at once, since what is remembered of it stays.
func (s set) lags() bool { return s == groups || s == slots || s == picks || s == members }

// take returns the changes since it was last called.
func (w *wanted) take() *change {
	c := &change{}
	past := w.lagging
	w.lagging = map[key]value{}
	for k, old := range w.before {
		now, is := w.elements[k]
		if v, lagged := past[k]; old == nil && lagged {
			old = &v
		}
		delete(past, k)
		switch {
		case old != nil && is && *old == now.val:
			continue
		case old != nil && !is && k.set.lags():
			w.lagging[k] = *old
			continue
		case old != nil:
			c.remove = append(c.remove, entry{k, *old})
		}
		if is {
			c.add = append(c.add, entry{k, now.val})
		}
	}
	for k, v := range past {
		c.remove = append(c.remove, entry{k, v})
	}
	w.retire(c)
	w.forget()
	c.sort()
	return c
}

// retire decides which made chains come and go. One that nothing leads to any
// more stays until the change after: a packet may be on its way into it.
func (w *wanted) retire(c *change) {
	for v := range w.idle {
		delete(w.idle, v)
		if w.sizes[v] == 0 {
			c.abandon = append(c.abandon, v)
			delete(w.made, v)
		}
	}
	for v := range w.chains {
		switch {
		case w.sizes[v] > 0 && !w.made[v]:
			c.make = append(c.make, v)
			w.made[v] = true
		case w.sizes[v] == 0 && w.made[v]:
			w.idle[v] = true
		}
	}
}

func (w *wanted) forget() {
	w.before = map[key]*value{} // made anew: it may have been of all elements, and would stay as big
	clear(w.chains)
}

// against returns what makes the kernel hold what is wanted.
func (w *wanted) against(l layout, o *observed) *change {
	defer w.forget()
	c := &change{}
	if o == nil || o.elements == nil || !l.fits(o.rules) {
		c.all = true
		o = &observed{}
	}
	for k, v := range o.elements {
		if now, is := w.elements[k]; !is || now.val != v {
			c.remove = append(c.remove, entry{k, v})
			if was, late := w.lagging[k]; late && was == v {
				c.late++
			}
		}
	}
	for k, now := range w.elements {
		if v, is := o.elements[k]; !is || v != now.val {
			c.add = append(c.add, entry{k, now.val})
		}
	}
	clear(w.made)
	clear(w.idle)
	clear(w.lagging)
	for name := range o.rules {
		if v := parseChain(name); v.a != unknown {
			w.made[v], w.chains[v] = true, true
		}
	}
	for v := range w.sizes {
		w.chains[v] = true
	}
	w.retire(c)
	c.sort()
	return c
}

func (c *change) sort() {
	byChain := func(a, b value) int { return cmp.Or(cmp.Compare(a.b, b.b), cmp.Compare(a.a, b.a)) }
	slices.SortFunc(c.add, entry.compare)
	slices.SortFunc(c.remove, entry.compare)
	slices.SortFunc(c.make, byChain)
	slices.SortFunc(c.abandon, byChain)
	slices.Reverse(c.abandon)
}
