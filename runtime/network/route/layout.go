package route

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/knftables"
)

// The chains that every table has. Others are made per number of members.
const (
	chainPrerouting  = "prerouting"
	chainOutput      = "output"
	chainPostrouting = "postrouting"
	chainInput       = "input"
	chainForward     = "forward"
	chainOutFilter   = "output-filter"
	chainInside      = "inside"
	chainOutside     = "outside"
	chainPick        = "pick"
	chainConnect     = "connect"
	chainRefuse      = "refuse"
	chainReject      = "turn-away"

	layoutPrefix = "layout-"
)

// affinityMap remembers which member a client got. Packets fill it, so it is
// bounded: when it is full, a new client is not remembered.
const (
	affinityMap  = "affinity"
	affinitySize = 1 << 18
	asked        = "ip daddr . meta l4proto . th dport"
)

// chain is one with all its rules.
type chain struct {
	name     string
	kind     knftables.BaseChainType // "" when no packet enters here
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

// layout is the part of a table that does not depend on any Service.
type layout struct {
	chains []chain
	mark   string // the name of an empty chain that tells one layout from another
}

// newLayout decides the fixed chains. The NAT chains come after those of host
// ports (-100), which therefore win. Refusing comes before the chains of other
// firewalls (0), which may drop what they do not know.
func newLayout(bridge string, services netip.Prefix) layout {
	prerouting := []string{"goto " + chainInside}
	outside := []string{
		"meta priority set " + asked + " map @outer goto " + chainPick,
		"fib daddr type local meta priority set meta l4proto . th dport map @outer-ports goto " + chainPick,
	}
	fromLoopback := `ct status dnat ip saddr 127.0.0.0/8 oifname != "lo" masquerade`
	toRemote := "ct status dnat " + asked + " @remotes masquerade"
	if bridge != "" {
		prerouting = []string{fmt.Sprintf(`iifname %q goto %s`, bridge, chainInside), "goto " + chainOutside}
		fromLoopback = fmt.Sprintf(`ct status dnat ip saddr 127.0.0.0/8 oifname %q masquerade`, bridge)
		toRemote = fmt.Sprintf(`ct status dnat iifname != %q oifname != %[1]q %s @remotes masquerade`, bridge, asked)
	}
	refuse := []string{
		"ct state new " + asked + " vmap @refused",
		"ct state new fib daddr type local meta l4proto . th dport vmap @refused-ports",
	}
	if services.IsValid() {
		// Another instance's pods may ask for the same address and mean its own.
		outside = slices.Insert(outside, 0, fmt.Sprintf("ip daddr %s return", services))
		// Were it let through, its flow would be remembered as one that goes nowhere.
		refuse = append(refuse, fmt.Sprintf("ip daddr %s goto %s", services, chainReject))
	}
	l := layout{chains: []chain{
		{name: chainReject, rules: []string{"meta l4proto tcp reject with tcp reset", "reject"}},
		{name: chainRefuse, rules: refuse},
		{name: chainConnect, rules: []string{"meta l4proto { tcp, udp, sctp } dnat ip to meta priority map @members"}},
		{name: chainPick, rules: []string{"meta priority vmap @groups", "meta priority vmap @groups"}},
		{name: chainInside, rules: []string{
			"meta priority set " + asked + " map @inner goto " + chainPick,
			"ip daddr != 127.0.0.0/8 fib daddr type local meta priority set meta l4proto . th dport map @inner-ports goto " + chainPick,
		}},
		{name: chainOutside, rules: outside},
		{name: chainPrerouting, kind: knftables.NATType, hook: knftables.PreroutingHook, priority: "-95", rules: prerouting},
		{name: chainOutput, kind: knftables.NATType, hook: knftables.OutputHook, priority: "-95", rules: []string{
			"ip daddr 127.0.0.0/8 meta priority set meta l4proto . th dport map @loop-ports goto " + chainPick,
			"goto " + chainInside,
		}},
		{name: chainPostrouting, kind: knftables.NATType, hook: knftables.PostroutingHook, priority: "95", rules: []string{
			`ct status dnat ip saddr . ip daddr @hairpins oifname != "lo" masquerade`, fromLoopback, toRemote,
		}},
		{name: chainInput, kind: knftables.FilterType, hook: knftables.InputHook, priority: "-10", rules: []string{"jump " + chainRefuse}},
		{name: chainForward, kind: knftables.FilterType, hook: knftables.ForwardHook, priority: "-10", rules: []string{"jump " + chainRefuse}},
		{name: chainOutFilter, kind: knftables.FilterType, hook: knftables.OutputHook, priority: "-10", rules: []string{"jump " + chainRefuse}},
	}}
	l.mark = l.fingerprint()
	return l
}

// fingerprint names the layout by what it says, rules of the made chains and
// declarations of the sets included.
func (l layout) fingerprint() string {
	h := fnv.New32a()
	for _, c := range append(slices.Clone(l.chains), made(value{a: 2}), made(value{a: 2, b: 1}), made(value{b: 1})) {
		fmt.Fprintln(h, c)
	}
	for s := range setCount {
		fmt.Fprintln(h, s.shape())
	}
	fmt.Fprintln(h, affinity().Type, affinitySize)
	return fmt.Sprintf("%s%08x", layoutPrefix, h.Sum32())
}

// chainOf names the chain that picks one of v.a members, where clients stick for
// v.b seconds if that is not zero; without members, the one that makes them stick.
func chainOf(v value) string {
	switch {
	case v.b == 0:
		return fmt.Sprintf("spread-%d", v.a)
	case v.a == 0:
		return fmt.Sprintf("stick-%d", v.b)
	}
	return fmt.Sprintf("affine-%d-%d", v.a, v.b)
}

func parseChain(name string) value {
	kind, rest, _ := strings.Cut(name, "-")
	first, second, _ := strings.Cut(rest, "-")
	a, errA := strconv.ParseUint(first, 10, 31)
	b, errB := strconv.ParseUint(cmp.Or(second, "0"), 10, 31)
	v := value{uint32(a), uint32(b)}
	if kind == "stick" {
		v = value{b: uint32(a)}
	}
	if errA != nil || errB != nil || v == (value{}) || chainOf(v) != name {
		return value{a: unknown}
	}
	return v
}

// made returns the chain that a group of this size needs.
//
// A packet may do one lookup before a change and the next after it, and kernels
// before 6.17 may miss an element that is being replaced: what was not found is
// looked for a second time.
func made(v value) chain {
	client := "ip saddr . " + asked
	known := "meta priority set meta priority . meta mark map @sticky goto " + chainOf(value{b: v.b})
	switch {
	case v.b == 0:
		pick := "meta priority set meta priority . numgen random mod %d map @slots goto " + chainConnect
		c := chain{name: chainOf(v), rules: []string{fmt.Sprintf(pick, v.a)}}
		if v.a > 1 {
			c.rules = append(c.rules, fmt.Sprintf(pick, 1))
		}
		return c
	case v.a == 0:
		return chain{name: chainOf(v), rules: []string{
			fmt.Sprintf("update @%s { %s timeout %ds : meta mark }", affinityMap, client, v.b),
			"meta mark set 0",
			"goto " + chainConnect,
		}}
	}
	return chain{name: chainOf(v), rules: []string{
		"meta mark set " + client + " map @" + affinityMap,
		known,
		// What is remembered is no longer a member; an update would leave it as it is.
		fmt.Sprintf("delete @%s { %s : meta mark }", affinityMap, client),
		fmt.Sprintf("meta mark set meta priority . numgen random mod %d map @picks", v.a),
		known,
		"meta mark set meta priority . numgen random mod 1 map @picks",
		known,
	}}
}

func affinity() *knftables.Map {
	size := uint64(affinitySize)
	return &knftables.Map{
		Name: affinityMap, Type: "ipv4_addr . ipv4_addr . inet_proto . inet_service : mark",
		Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
		Size:  &size,
	}
}

// create writes the table without any Service, in place of what is there.
func (l layout) create(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("Services: headway makes and repairs this table")})
	for s := range setCount {
		shape := s.shape()
		kind, of := types(shape.key), shape.of
		if len(shape.value) == 0 {
			tx.Add(&knftables.Set{Name: shape.name, Type: kind})
			continue
		}
		m := &knftables.Map{Name: shape.name, Type: kind + " : " + types(shape.value)}
		if of != "" {
			m.Type, m.TypeOf = "", of+" : "+shape.valueOf
		}
		tx.Add(m)
	}
	tx.Add(affinity())
	for _, c := range l.chains {
		addChain(tx, c)
	}
	addChain(tx, chain{name: l.mark})
}

func types(fields []field) string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.nftType()
	}
	return strings.Join(out, " . ")
}

func addChain(tx *knftables.Transaction, c chain) {
	add := &knftables.Chain{Name: c.name}
	if c.kind != "" {
		add.Type, add.Hook, add.Priority = &c.kind, &c.hook, &c.priority
	}
	tx.Add(add)
	for _, r := range c.rules {
		tx.Add(&knftables.Rule{Chain: c.name, Rule: r})
	}
}

// fits reports whether the chains that a table has are those of the layout and
// ones made for groups, each with its number of rules.
func (l layout) fits(rules map[string]int) bool {
	if _, ok := rules[l.mark]; !ok {
		return false
	}
	for _, c := range l.chains {
		if n, ok := rules[c.name]; !ok || n != len(c.rules) {
			return false
		}
	}
	for name, n := range rules {
		if v := parseChain(name); v.a != unknown && n != len(made(v).rules) {
			return false
		}
	}
	return true
}
