package route

import (
	"sigs.k8s.io/knftables"
)

// transactions returns the parts in which a change is written, each a whole. A
// packet that is on its way while a chain is made finds it empty until its walk
// ends, so chains are made one transaction before anything leads there.
func (c *change) transactions() []change {
	if c.all || len(c.make) == 0 {
		return []change{*c}
	}
	rest := *c
	rest.make = nil
	if rest.empty() {
		return []change{*c}
	}
	return []change{{make: c.make}, rest}
}

// write turns a change into commands of one transaction: chains before the
// elements that lead to them, old elements before new ones with their keys,
// chains that nothing leads to any more last.
func (c *change) write(tx *knftables.Transaction, l layout) {
	if c.all {
		l.create(tx)
	}
	for _, v := range c.make {
		addChain(tx, made(v))
	}
	for _, e := range c.remove {
		tx.Delete(e.element(false))
	}
	for _, e := range c.add {
		tx.Add(e.element(true))
	}
	for _, v := range c.abandon {
		tx.Delete(&knftables.Chain{Name: chainOf(v)})
	}
}

func (e entry) element(withValue bool) *knftables.Element {
	s := e.key.set.shape()
	out := &knftables.Element{Key: e.key.text()}
	if len(s.value) == 0 {
		out.Set = s.name
		return out
	}
	out.Map = s.name
	if withValue {
		out.Value = e.key.valueText(e.val)
	}
	return out
}
