package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// hostPorts are the ports of the node that lead to pods: a file per pod, and an
// nftables table that is made from the files and can always be made again.
type hostPorts struct {
	dir   string
	table string

	mu     sync.Mutex
	bridge string
	subnet netip.Prefix
	masq   bool
	// tracked: answers between two pods of the bridge pass through the node's
	// connection tracking.
	tracked bool
	seen    string // the table as nft prints it, after the last look; "" after a change
}

// portFile is what is on disk of a pod's host ports.
type portFile struct {
	ID    string     `json:"id"`
	IP    netip.Addr `json:"ip"`
	Ports []mapping  `json:"ports"`
}

func newHostPorts(dir, bridge string) (*hostPorts, error) {
	if bridge == "" {
		return nil, errors.New("a network needs a bridge name")
	}
	return &hostPorts{dir: dir, table: "headway-" + bridge}, nil
}

// prepare makes the table from the files, at start.
func (h *hostPorts) prepare(ctx context.Context, c bridgeConf, tracked bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bridge, h.subnet, h.masq, h.tracked = c.Bridge, c.subnet(), c.IPMasq, tracked
	return h.rebuild(ctx)
}

// check makes the table again if somebody else changed it, and reports whether.
func (h *hostPorts) check(ctx context.Context) (repaired bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bridge == "" {
		return false, nil // the operator's configuration has no bridge of ours
	}
	out, err := exec.CommandContext(ctx, "nft", "list", "table", "ip", h.table).Output()
	repaired = err != nil || h.seen != "" && string(out) != h.seen
	if !repaired && h.seen != "" {
		return false, nil
	}
	// After a change of our own too: whether it is still there cannot be told.
	if err := h.rebuild(ctx); err != nil {
		return repaired, err
	}
	out, err = exec.CommandContext(ctx, "nft", "list", "table", "ip", h.table).Output()
	if err != nil {
		return repaired, fmt.Errorf("list nftables table %s: %w", h.table, err)
	}
	h.seen = string(out)
	return repaired, nil
}

// portmap performs the plugin "portmap".
func (b *builtin) portmap(ctx context.Context, c portmapConf, call call) ([]byte, error) {
	if call.command == "DEL" {
		return nil, b.ports.remove(ctx, call.id)
	}
	if len(c.RuntimeConfig.PortMappings) > 0 {
		var prev types100.Result
		if err := json.Unmarshal(c.PrevResult, &prev); err != nil {
			return nil, fmt.Errorf("decode result of the plugin before portmap: %w", err)
		}
		f := portFile{ID: call.id, Ports: c.RuntimeConfig.PortMappings}
		for _, ip := range prev.IPs {
			if a, ok := netip.AddrFromSlice(ip.Address.IP); ok && a.Unmap().Is4() {
				f.IP = a.Unmap()
				break
			}
		}
		if !f.IP.IsValid() {
			return nil, errors.New("a pod with host ports needs an IPv4 address")
		}
		for _, p := range f.Ports {
			if at, err := netip.ParseAddr(p.HostIP); err == nil && at.Unmap().IsLinkLocalUnicast() {
				return nil, fmt.Errorf("host port %d at %s: a pod gets no port of a link-local address, since the cluster's names are answered at one", p.HostPort, p.HostIP)
			}
		}
		if err := b.ports.add(ctx, f); err != nil {
			return nil, err
		}
	}
	return c.PrevResult, nil
}

func (h *hostPorts) path(id string) string { return filepath.Join(h.dir, id+".json") }

func (h *hostPorts) add(ctx context.Context, f portFile) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := h.read()
	if err != nil {
		return err
	}
	for _, other := range all {
		for _, p := range f.Ports {
			if other.ID != f.ID && slices.ContainsFunc(other.Ports, p.overlaps) {
				return fmt.Errorf("host port %d/%s is taken by pod %s", p.HostPort, p.Protocol, other.ID)
			}
		}
	}
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode host ports: %w", err)
	}
	if err := replaceFile(h.path(f.ID), data); err != nil {
		return fmt.Errorf("write host ports: %w", err)
	}
	h.seen = ""
	var script strings.Builder
	h.elements(&script, "add", f)
	if err := nft(ctx, script.String()); err != nil {
		// Someone flushed the ruleset, or an interrupted call left an element.
		return h.rebuild(ctx)
	}
	return nil
}

func (h *hostPorts) remove(ctx context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := h.readFile(h.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	damaged := err != nil
	if err := os.Remove(h.path(id)); err != nil {
		return fmt.Errorf("remove host ports: %w", err)
	}
	h.seen = ""
	var script strings.Builder
	h.elements(&script, "delete", f)
	if damaged || nft(ctx, script.String()) != nil {
		return h.rebuild(ctx)
	}
	return nil
}

func (m mapping) overlaps(o mapping) bool {
	return m.HostPort == o.HostPort && m.protocol() == o.protocol() &&
		(m.HostIP == "" || o.HostIP == "" || m.HostIP == o.HostIP)
}

func (m mapping) protocol() string {
	if m.Protocol == "" {
		return "tcp"
	}
	return strings.ToLower(m.Protocol)
}

func (m mapping) known() bool {
	return m.HostPort > 0 && slices.Contains([]string{"tcp", "udp", "sctp"}, m.protocol())
}

// elements writes the commands that add or delete a pod's ports. Every word in
// it is a number, an address or one of three protocols.
func (h *hostPorts) elements(w *strings.Builder, verb string, f portFile) {
	fmt.Fprintf(w, "%s element ip %s hairpins { %s . %[3]s }\n", verb, h.table, f.IP)
	for _, p := range f.Ports {
		name, key := "ports", fmt.Sprintf("%s . %d", p.protocol(), p.HostPort)
		if p.HostIP != "" {
			name, key = "addrports", p.HostIP+" . "+key
		}
		fmt.Fprintf(w, "%s element ip %s %s { %s", verb, h.table, name, key)
		if verb == "add" {
			fmt.Fprintf(w, " : %s . %d", f.IP, p.ContainerPort)
		}
		w.WriteString(" }\n")
	}
}

// rebuild replaces the whole table in one transaction. A port of every address of the
// node is none of its link-local ones: at one of them the cluster's names are answered,
// also when a pod has the host port 53.
func (h *hostPorts) rebuild(ctx context.Context) error {
	all, err := h.read()
	if err != nil {
		return err
	}
	h.seen = ""
	var s strings.Builder
	fmt.Fprintf(&s, "table ip %s {}\ndelete table ip %[1]s\ntable ip %[1]s {\n", h.table)
	s.WriteString(` map ports { type inet_proto . inet_service : ipv4_addr . inet_service; }
 map addrports { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }
 set hairpins { type ipv4_addr . ipv4_addr; }
 chain hostports {
  ip daddr 169.254.0.0/16 return
  meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport map @addrports
  meta l4proto { tcp, udp, sctp } dnat ip to meta l4proto . th dport map @ports
 }
 chain prerouting { type nat hook prerouting priority -100; policy accept; fib daddr type local jump hostports; }
 chain output { type nat hook output priority -100; policy accept; fib daddr type local jump hostports; }
 chain postrouting { type nat hook postrouting priority 100; policy accept;
`)
	// From the node itself by its loopback address, and from a pod to itself by way
	// of the node: the answer must come back the same way. Where the kernel cannot
	// see the answers between two pods of the bridge, from a pod to its neighbours
	// too; this rule is also for Services.
	fmt.Fprintf(&s, "  ct status dnat oifname \"%s\" ip saddr 127.0.0.0/8 masquerade\n", h.bridge)
	if h.tracked {
		s.WriteString("  ct status dnat ip saddr . ip daddr @hairpins masquerade\n")
	} else {
		fmt.Fprintf(&s, "  ct status dnat ip saddr %s ip daddr %[1]s masquerade\n", h.subnet)
	}
	if h.masq {
		fmt.Fprintf(&s, "  ip saddr %s ip daddr != %[1]s oifname != \"%s\" ip daddr != 224.0.0.0/4 masquerade\n", h.subnet, h.bridge)
	}
	s.WriteString(" }\n}\n")
	for _, f := range all {
		h.elements(&s, "add", f)
	}
	return nft(ctx, s.String())
}

func (h *hostPorts) destroy(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return nft(ctx, fmt.Sprintf("table ip %s {}\ndelete table ip %[1]s\n", h.table))
}

func (h *hostPorts) ids() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := h.read()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, f := range all {
		ids = append(ids, f.ID)
	}
	return ids, nil
}

// read returns what all files say, sorted by id. A damaged file (a power loss)
// goes: its pod is connected anew after the boot.
func (h *hostPorts) read() ([]portFile, error) {
	paths, err := filepath.Glob(filepath.Join(h.dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list host ports: %w", err)
	}
	var all []portFile
	for _, path := range paths {
		f, err := h.readFile(path)
		if err != nil {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove damaged host ports: %w", err)
			}
			continue
		}
		all = append(all, f)
	}
	return all, nil
}

func (h *hostPorts) readFile(path string) (portFile, error) {
	var f portFile
	data, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("decode host ports: %w", err)
	}
	if h.path(f.ID) != path || !f.IP.Is4() {
		return f, errors.New("decode host ports: not what was written")
	}
	for _, p := range f.Ports {
		if !p.known() {
			return f, fmt.Errorf("host port %d with protocol %q", p.HostPort, p.Protocol)
		}
	}
	return f, nil
}

// nft runs a script as one transaction.
func nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
