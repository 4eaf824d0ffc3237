package dns

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// EnsureInterface makes the interface that carries the address, or puts right what
// is there of it. It leads nowhere: a dummy, or where the kernel has none, a bridge
// without ports, which the pods' network needs anyway.
func EnsureInterface(name string, addr netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if missing(err) {
		if err := addLink(name); err != nil {
			return fmt.Errorf("make interface %s for DNS: %w", name, err)
		}
		link, err = netlink.LinkByName(name)
	}
	if err != nil {
		return fmt.Errorf("find interface %s for DNS: %w", name, err)
	}
	if t := link.Type(); t != "dummy" && t != "bridge" {
		return fmt.Errorf("interface %s exists and is no dummy but %s: rename it", name, t)
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", name, err)
	}
	want := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	found := false
	for _, old := range have {
		if old.IPNet.String() == want.IPNet.String() {
			found = true
			continue
		}
		// Of an earlier data dir; somebody else may have taken it away since we looked.
		if err := netlink.AddrDel(link, &old); err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return fmt.Errorf("take address %s from %s: %w", old.IPNet, name, err)
		}
	}
	if !found {
		if err := netlink.AddrAdd(link, want); err != nil && !errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("give %s the address %s: %w", name, addr, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}

func addLink(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}
	if errors.Is(err, syscall.EEXIST) { // somebody was faster
		return nil
	}
	return err
}

// RemoveInterface takes it away; one that is not there is fine.
func RemoveInterface(name string) error {
	link, err := netlink.LinkByName(name)
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

// Address returns the link-local address of an instance: the one in the file, else
// one derived from the instance's name that no interface of this machine has,
// which is then in the file. It stays, since running pods have it in their
// resolv.conf.
func Address(file, instance string) (netip.Addr, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		addr, err := netip.ParseAddr(strings.TrimSpace(string(text)))
		if err != nil || !addr.Is4() || !addr.IsLinkLocalUnicast() {
			return netip.Addr{}, fmt.Errorf("%s: no IPv4 address of 169.254.0.0/16 in it: write the one of the pods' resolv.conf there, or delete the file and the pods", file)
		}
		return addr, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return netip.Addr{}, fmt.Errorf("read the address of DNS: %w", err)
	}
	taken, err := localAddresses()
	if err != nil {
		return netip.Addr{}, err
	}
	addr, err := choose(instance, taken)
	if err != nil {
		return netip.Addr{}, err
	}
	return addr, record(file, addr.String()+"\n")
}

// localAddresses are those that interfaces of this machine have.
func localAddresses() (map[netip.Addr]bool, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	taken := map[netip.Addr]bool{}
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			taken[addr.Unmap()] = true
		}
	}
	return taken, nil
}

// choose derives an address from a name, the next one when it is taken.
func choose(instance string, taken map[netip.Addr]bool) (netip.Addr, error) {
	for try := range uint32(64) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", instance, try))
		n := binary.BigEndian.Uint32(sum[:])
		addr := netip.AddrFrom4([4]byte{169, 254, byte(n >> 8), byte(n)})
		if !taken[addr] && !reserved(addr) {
			return addr, nil
		}
	}
	return netip.Addr{}, errors.New("no free address in 169.254.0.0/16 for DNS: this machine has too many of them")
}

// reserved are the addresses that mean something to others: the first and last 256
// (RFC 3927), what clouds use for their metadata and time (169.254.169 to 171),
// Kubernetes' cache of names (169.254.20.10), and ends that old programs take for
// a network.
func reserved(addr netip.Addr) bool {
	b := addr.As4()
	switch {
	case b[2] == 0 || b[2] == 255 || b[2] == 20 || b[2] >= 169 && b[2] <= 171:
		return true
	}
	return b[3] == 0 || b[3] == 255
}

// record writes a file whole or not at all.
func record(file, text string) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep the address of DNS: %w", err)
	}
	temp, err := os.CreateTemp(dir, ".dns-*")
	if err != nil {
		return fmt.Errorf("keep the address of DNS: %w", err)
	}
	_, err = temp.WriteString(text)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep the address of DNS: %w", err), os.Remove(temp.Name()))
	}
	return nil
}
