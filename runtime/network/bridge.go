package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// bridge is one that exists.
type bridge struct {
	conf      bridgeConf
	index     atomic.Int64 // of the link; a bridge that was deleted is made anew with another
	addresses *addresses
}

// ensureBridge makes the bridge with the gateway's address, up and forwarding,
// and returns its index.
func ensureBridge(c bridgeConf) (int, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = c.Bridge
	attrs.MTU = c.MTU
	// Without one of its own it takes the lowest of its ports, and every pod that
	// comes or goes could change what the others have in their ARP caches.
	attrs.HardwareAddr = hardwareAddr(c.gateway())
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return 0, fmt.Errorf("make bridge %s: %w", c.Bridge, err)
	}
	link, err := netlink.LinkByName(c.Bridge)
	if err != nil {
		return 0, fmt.Errorf("find bridge %s: %w", c.Bridge, err)
	}
	if link.Type() != "bridge" {
		return 0, fmt.Errorf("interface %s exists and is no bridge but %s: give another bridge name", c.Bridge, link.Type())
	}
	addr := &netlink.Addr{IPNet: ipNet(c.gateway(), c.subnet().Bits())}
	if err := netlink.AddrAdd(link, addr); err != nil && !errors.Is(err, syscall.EEXIST) {
		return 0, fmt.Errorf("give bridge %s the address %s: %w", c.Bridge, addr.IPNet, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return 0, fmt.Errorf("bring bridge %s up: %w", c.Bridge, err)
	}
	if err := trackBridged(link.Attrs().Index); err != nil {
		return 0, fmt.Errorf("track connections on bridge %s: %w", c.Bridge, err)
	}
	// route_localnet lets 127.0.0.1:<host port> reach a pod.
	for _, s := range []string{"net/ipv4/ip_forward", "net/ipv4/conf/" + c.Bridge + "/route_localnet"} {
		if err := sysctl(s, "1"); err != nil {
			return 0, err
		}
	}
	return link.Attrs().Index, nil
}

func sysctl(name, value string) error {
	path := filepath.Join("/proc/sys", name)
	if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if missing(err) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !missing(err) {
		return fmt.Errorf("remove interface %s: %w", name, err)
	}
	return nil
}

// missing reports whether an error says that a link is not there.
func missing(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none) || errors.Is(err, syscall.ENODEV)
}

// hostEnd names the host's end of a pod's link: from its id, so that it is found
// again without being remembered.
func hostEnd(network, id string) string {
	sum := sha256.Sum256([]byte(network + "/" + id))
	return "hw" + hex.EncodeToString(sum[:])[:12]
}

// hardwareAddr derives a MAC from an address, so that an address that is used
// again needs no ARP entry renewed.
func hardwareAddr(ip netip.Addr) net.HardwareAddr {
	b := ip.As4()
	return net.HardwareAddr{0x0a, 0x58, b[0], b[1], b[2], b[3]}
}

func ipNet(ip netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, 32)}
}

// bridge performs the plugin "bridge".
func (b *builtin) bridge(_ context.Context, c bridgeConf, call call) ([]byte, error) {
	br, err := b.find(c)
	if err != nil {
		return nil, err
	}
	if call.command == "DEL" {
		if err := removeLink(hostEnd(c.Name, call.id)); err != nil {
			return nil, err
		}
		return nil, br.addresses.release(call.id)
	}
	ip, err := br.addresses.reserve(call.id, call.ifname)
	if err != nil {
		return nil, err
	}
	if err := br.plug(call, ip); err != nil {
		return nil, err
	}
	inside := 1
	return json.Marshal(&types100.Result{
		CNIVersion: c.CNIVersion,
		Interfaces: []*types100.Interface{
			{Name: hostEnd(c.Name, call.id)},
			{Name: call.ifname, Mac: hardwareAddr(ip).String(), Sandbox: call.netns},
		},
		IPs: []*types100.IPConfig{{
			Interface: &inside, Address: *ipNet(ip, c.subnet().Bits()), Gateway: c.gateway().AsSlice(),
		}},
		Routes: []*types.Route{{Dst: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}}},
	})
}

// plug makes a pod's link and configures both its ends.
func (br *bridge) plug(call call, ip netip.Addr) error {
	ns, err := netns.GetFromPath(call.netns)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", call.netns, err)
	}
	defer ns.Close()
	if err := br.addLink(call, ip, ns); err != nil {
		return err
	}
	in, err := netlink.NewHandleAt(ns, syscall.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", call.netns, err)
	}
	defer in.Close()
	link, err := in.LinkByName(call.ifname)
	if err != nil {
		return fmt.Errorf("find %s in pod: %w", call.ifname, err)
	}
	loopback := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1}} // always the first of a namespace
	if err := in.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("bring loopback of pod up: %w", err)
	}
	if err := in.AddrAdd(link, &netlink.Addr{IPNet: ipNet(ip, br.conf.subnet().Bits())}); err != nil {
		return fmt.Errorf("give pod the address %s: %w", ip, err)
	}
	if err := in.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s of pod up: %w", call.ifname, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: br.conf.gateway().AsSlice()}
	if err := in.RouteAdd(route); err != nil {
		return fmt.Errorf("give pod its default route: %w", err)
	}
	return nil
}

// addLink makes the pair of ends, the one a port of the bridge, the other in the
// pod. What an interrupted try left goes first.
func (br *bridge) addLink(call call, ip netip.Addr, ns netns.NsHandle) error {
	name := hostEnd(br.conf.Name, call.id)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.MTU = br.conf.MTU
	attrs.Flags = net.FlagUp
	attrs.MasterIndex = int(br.index.Load())
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: call.ifname, PeerHardwareAddr: hardwareAddr(ip), PeerNamespace: netlink.NsFd(ns),
	}
	for try := 0; ; try++ {
		err := netlink.LinkAdd(veth)
		if err == nil {
			break
		}
		if try > 0 {
			return fmt.Errorf("make link of pod: %w", err)
		}
		switch {
		case errors.Is(err, syscall.EEXIST):
			err = removeLink(name)
		default: // perhaps someone deleted the bridge
			var index int
			if index, err = ensureBridge(br.conf); err == nil {
				br.index.Store(int64(index))
				veth.MasterIndex = index
				err = removeLink(name)
			}
		}
		if err != nil {
			return err
		}
	}
	if !br.conf.HairpinMode {
		return nil
	}
	if err := netlink.LinkSetHairpin(veth, true); err != nil {
		return fmt.Errorf("let pod reach its own host port: %w", err)
	}
	return nil
}
