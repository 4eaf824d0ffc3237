package network

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// addresses are the reservations of one network, in the files that the plugin
// host-local keeps: one per address, named for it, that holds the id and the
// interface of its holder; last_reserved_ip.0; and a lock.
type addresses struct {
	dir     string
	subnet  netip.Prefix
	gateway netip.Addr

	mu   sync.Mutex
	held map[string]netip.Addr // by id; nil: not read yet
	last netip.Addr
}

const lastReserved = "last_reserved_ip.0"

// reserve returns the address that the holder has, or the next free one after
// the last given, so that an address rests as long as possible before its reuse.
func (a *addresses) reserve(id, ifname string) (netip.Addr, error) {
	unlock, err := a.lock()
	if err != nil {
		return netip.Addr{}, err
	}
	defer unlock()
	if ip, ok := a.held[id]; ok {
		return ip, nil
	}
	ip := a.last
	for range 1 << min(32-a.subnet.Bits(), 16) {
		if ip = a.after(ip); ip == a.gateway {
			continue
		}
		f, err := os.OpenFile(filepath.Join(a.dir, ip.String()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return netip.Addr{}, fmt.Errorf("reserve address: %w", err)
		}
		_, err = f.WriteString(id + "\r\n" + ifname)
		if err := errors.Join(err, f.Close()); err != nil {
			return netip.Addr{}, fmt.Errorf("reserve address: %w", err)
		}
		if err := os.WriteFile(filepath.Join(a.dir, lastReserved), []byte(ip.String()), 0o600); err != nil {
			return netip.Addr{}, fmt.Errorf("reserve address: %w", err)
		}
		a.held[id], a.last = ip, ip
		return ip, nil
	}
	return netip.Addr{}, fmt.Errorf("no free address in %s: %d are taken", a.subnet, len(a.held))
}

// after returns the next host address of the subnet, round and round.
func (a *addresses) after(ip netip.Addr) netip.Addr {
	next := ip.Next()
	if !a.subnet.Contains(next) || !a.subnet.Contains(next.Next()) { // the last is the broadcast address
		return a.subnet.Addr().Next()
	}
	return next
}

// release frees what the holder has.
func (a *addresses) release(id string) error {
	unlock, err := a.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := a.held[id]; !ok {
		// Perhaps the program host-local reserved it.
		if err := a.read(); err != nil {
			return err
		}
	}
	ip, ok := a.held[id]
	if !ok {
		return nil
	}
	if err := os.Remove(filepath.Join(a.dir, ip.String())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release address: %w", err)
	}
	delete(a.held, id)
	return nil
}

// holders lists the ids that hold an address, sorted.
func (a *addresses) holders() ([]string, error) {
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := a.read(); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(a.held)), nil
}

// read takes from the files who holds what. A file that a power loss left empty
// belongs to nobody and goes.
func (a *addresses) read() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("read reservations: %w", err)
	}
	held := make(map[string]netip.Addr, len(entries))
	for _, e := range entries {
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue
		}
		path := filepath.Join(a.dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read reservation: %w", err)
		}
		id, _, _ := strings.Cut(string(data), "\r\n")
		if id = strings.TrimSpace(id); id == "" {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("release address of nobody: %w", err)
			}
			continue
		}
		held[id] = ip
	}
	last := a.gateway
	if data, err := os.ReadFile(filepath.Join(a.dir, lastReserved)); err == nil {
		if ip, err := netip.ParseAddr(strings.TrimSpace(string(data))); err == nil && a.subnet.Contains(ip) {
			last = ip
		}
	}
	a.held, a.last = held, last
	return nil
}

// lock is the one that host-local takes, on the file "lock" of the network. What
// it guards is read at the first time.
func (a *addresses) lock() (func(), error) {
	a.mu.Lock()
	f, err := a.lockFile()
	if err != nil {
		a.mu.Unlock()
		return nil, err
	}
	unlock := func() {
		_ = f.Close() // closing unlocks; nothing was written to it
		a.mu.Unlock()
	}
	if a.held == nil {
		if err := a.read(); err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

func (a *addresses) lockFile() (*os.File, error) {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of reservations: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(a.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of reservations: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock reservations: %w", err), f.Close())
	}
	return f, nil
}
