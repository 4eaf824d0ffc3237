package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
)

// loadConfig reads the first configuration list, by name, of the directory. It
// writes one where there is none.
func loadConfig(cfg Config) (*libcni.NetworkConfigList, error) {
	dir := filepath.Join(cfg.Dir, "net.d")
	files, err := libcni.ConfFiles(dir, []string{".conflist"})
	if err != nil {
		return nil, fmt.Errorf("list network configurations: %w", err)
	}
	if len(files) == 0 {
		path := filepath.Join(dir, "10-headway.conflist")
		if err := writeConfig(cfg, path); err != nil {
			return nil, err
		}
		files = []string{path}
	}
	slices.Sort(files)
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("read network configuration %s: %w", files[0], err)
	}
	if len(list.Plugins) == 0 {
		return nil, fmt.Errorf("network configuration %s has no plugins", files[0])
	}
	return list, nil
}

// writeConfig writes the first configuration. Instances that start for the first
// time at once on one machine choose one after the other.
func writeConfig(cfg Config, path string) error {
	lock, err := os.OpenFile(filepath.Join("/run", "headway-network.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock of subnets: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock subnets: %w", err)
	}
	subnet := cfg.Subnet
	if !subnet.IsValid() {
		if subnet, err = freeSubnet(cfg.Dir); err != nil {
			return err
		}
	}
	if cfg.Bridge == "" || len(cfg.Bridge) > 15 {
		return fmt.Errorf("bridge name %q must have 1 to 15 characters", cfg.Bridge)
	}
	conf := map[string]any{
		"cniVersion": "1.0.0",
		"name":       cfg.Bridge,
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": cfg.Bridge, "isGateway": true, "ipMasq": true, "hairpinMode": true,
				"ipam": map[string]any{
					"type": "host-local", "dataDir": filepath.Join(cfg.Dir, "ipam"),
					"ranges": []any{[]any{map[string]any{"subnet": subnet.Masked().String()}}},
					"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
				},
			},
			map[string]any{"type": "portmap", "snat": true, "capabilities": map[string]bool{"portMappings": true}},
		},
	}
	data, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return fmt.Errorf("encode network configuration: %w", err)
	}
	if err := replaceFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("write network configuration: %w", err)
	}
	// While we hold the lock: the bridge's address is how others see that the
	// subnet is taken.
	b, ok := decodeBridge(mustPlugin(data), cfg.Bridge)
	if !ok {
		return errors.New("the configuration just written is not understood")
	}
	_, err = ensureBridge(b)
	return err
}

// mustPlugin returns the first plugin's part of a list that we encoded.
func mustPlugin(list []byte) []byte {
	l, err := libcni.NetworkConfFromBytes(list)
	if err != nil || len(l.Plugins) == 0 {
		return nil
	}
	return l.Plugins[0].Bytes
}

// freeSubnet finds a /24 that no route or address of this machine touches. It
// begins at a place that depends on the directory, so that two instances keep
// apart even when one of them is not running now.
func freeSubnet(dir string) (netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list routes: %w", err)
	}
	var used []netip.Prefix
	for _, r := range routes {
		if r.Dst != nil {
			if p, ok := prefixOf(r.Dst); ok && p.Bits() > 0 {
				used = append(used, p)
			}
		}
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok {
			used = append(used, p)
		}
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	first := h.Sum32()
	for i := range uint32(256) {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(first + i), 0}), 24)
		if !slices.ContainsFunc(used, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("no free /24 in 10.42.0.0/16: give a subnet")
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits != 32 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a.Unmap(), ones).Masked(), true
}

// replaceFile writes a file so that it is there whole or not at all.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
