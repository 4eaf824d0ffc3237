package route

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// flows are the connections, as far as UDP has any, that the kernel would still
// send by decisions that no longer hold.
type flows struct {
	silent map[road]bool   // to targets that no longer answer for this address
	gone   map[target]bool // to targets of an earlier process that answer for none
	fresh  map[key]bool    // to addresses that led nowhere before
}

// note adds what a change leaves behind. After a comparison with the kernel, a
// member that is removed may be what an earlier process routed UDP to.
func (f *flows) note(c *change, w *wanted, compared bool) {
	if f.silent == nil {
		f.silent, f.gone, f.fresh = map[road]bool{}, map[target]bool{}, map[key]bool{}
	}
	for r := range w.silent {
		f.silent[r] = true
	}
	clear(w.silent)
	for _, e := range c.remove {
		if compared && e.key.set == members {
			f.gone[target{e.val.a, e.val.b}] = true
		}
	}
	for r := range f.silent {
		if w.serving[r] > 0 {
			delete(f.silent, r)
		}
	}
	for t := range f.gone {
		if w.answers[t] > 0 {
			delete(f.gone, t)
		}
	}
	for _, e := range c.add {
		k := e.key
		switch {
		case (k.set == inner || k.set == outer) && k.b == udp:
			f.fresh[key{inner, k.a, k.b, k.c}] = true
		case (k.set == innerPorts || k.set == outerPorts || k.set == loopPorts) && k.a == udp:
			f.fresh[key{innerPorts, k.a, k.b, 0}] = true
		}
	}
}

// delete removes those flows. They are kept for another try when that fails.
func (f *flows) delete() error {
	if len(f.silent)+len(f.gone)+len(f.fresh) == 0 {
		return nil
	}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, syscall.AF_INET, f)
	if err != nil {
		return fmt.Errorf("delete stale UDP flows: %w", err)
	}
	clear(f.silent)
	clear(f.gone)
	clear(f.fresh)
	return nil
}

// MatchConntrackFlow reports whether a flow is to be deleted. Deleting one too
// many costs nothing: its next packet makes it anew.
func (f *flows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != udp {
		return false
	}
	from, okFrom := netip.AddrFromSlice(flow.Reverse.SrcIP)
	to, okTo := netip.AddrFromSlice(flow.Forward.DstIP)
	if !okFrom || !okTo || !from.Unmap().Is4() || !to.Unmap().Is4() {
		return false
	}
	asked := target{word(to.Unmap()), uint32(flow.Forward.DstPort)}
	answers := target{word(from.Unmap()), uint32(flow.Reverse.SrcPort)}
	byAddress, byPort := key{inner, asked.addr, udp, asked.port}, key{innerPorts, udp, asked.port, 0}
	if asked != answers {
		return f.gone[answers] || f.silent[road{byAddress, answers}] || f.silent[road{byPort, answers}]
	}
	return f.fresh[byAddress] || f.fresh[byPort]
}
