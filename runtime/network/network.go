package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// interfaceName is the pod's interface, inside.
const interfaceName = "eth0"

// Config says how pods are connected.
type Config struct {
	Dir    string       // configuration, reservations, results; ours alone
	Bridge string       // for the first configuration; at most 15 characters
	Subnet netip.Prefix // for the first configuration; zero: a free /24 of 10.42.0.0/16
	// PluginDirs are searched for plugins that are not built in.
	PluginDirs []string
	Log        *slog.Logger
}

// DefaultPluginDirs is where distributions put CNI plugins.
func DefaultPluginDirs() []string {
	return []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
}

// Network connects and disconnects pods. Safe for concurrent use.
type Network struct {
	cfg   Config
	list  *libcni.NetworkConfigList
	cni   *libcni.CNIConfig
	built *builtin

	mu   sync.Mutex
	busy map[string]chan struct{} // pods being added or removed
}

// Port is a port of the node that leads to one of the pod.
type Port struct {
	HostIP        netip.Addr // zero: every address of the node
	HostPort      uint16
	ContainerPort uint16
	Protocol      string // tcp, udp, sctp
}

// Pod is what is to be connected.
type Pod struct {
	ID    string // unique on this node; the pod's UID
	NetNS string // path of its network namespace; "" when it is gone
	Ports []Port
}

// New reads the configuration, writing it first where there is none, and puts
// back what a reboot took: bridge and host ports of the pods that are connected.
func New(ctx context.Context, cfg Config) (*Network, error) {
	for _, d := range []string{"net.d", "ipam", "ports"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("make network directory: %w", err)
		}
	}
	list, err := loadConfig(cfg)
	if err != nil {
		return nil, err
	}
	built, err := newBuiltin(cfg)
	if err != nil {
		return nil, err
	}
	n := &Network{
		cfg: cfg, list: list, built: built, busy: map[string]chan struct{}{},
		cni: libcni.NewCNIConfigWithCacheDir(cfg.PluginDirs, filepath.Join(cfg.Dir, "results"), built),
	}
	for _, p := range list.Plugins {
		if conf, ok := decodeBridge(p.Bytes, list.Name); ok {
			if err := built.prepare(ctx, conf); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// Add connects a pod and returns its addresses. A pod that is half connected
// must be removed first.
func (n *Network) Add(ctx context.Context, p Pod) ([]netip.Addr, error) {
	unlock, err := n.lock(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := n.cni.AddNetworkList(ctx, n.list, runtimeConf(p))
	if err != nil {
		return nil, fmt.Errorf("connect pod %s: %w", p.ID, err)
	}
	res, err := types100.GetResult(r)
	if err != nil {
		return nil, fmt.Errorf("connect pod %s: %w", p.ID, err)
	}
	ips := make([]netip.Addr, 0, len(res.IPs))
	for _, ip := range res.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			ips = append(ips, a.Unmap())
		}
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("connect pod %s: the network %s gave no address", p.ID, n.list.Name)
	}
	return ips, nil
}

// Remove disconnects a pod; one that is not connected is fine.
func (n *Network) Remove(ctx context.Context, p Pod) error {
	unlock, err := n.lock(ctx, p.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.cni.DelNetworkList(ctx, n.list, runtimeConf(p)); err != nil {
		return fmt.Errorf("disconnect pod %s: %w", p.ID, err)
	}
	return nil
}

// Reconcile frees what belongs to no pod of live, the ids that exist.
func (n *Network) Reconcile(ctx context.Context, live map[string]bool) error {
	attachments, err := n.cni.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("list connected pods: %w", err)
	}
	dead := map[string]Pod{}
	for _, a := range attachments {
		if !live[a.ContainerID] {
			dead[a.ContainerID] = Pod{ID: a.ContainerID}
		}
	}
	more, err := n.built.known()
	if err != nil {
		return err
	}
	for _, id := range more {
		if !live[id] {
			dead[id] = Pod{ID: id}
		}
	}
	ids := make([]string, 0, len(dead))
	for id := range dead {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var errs []error
	for _, id := range ids {
		n.cfg.Log.Info("network of a pod that is gone freed", "pod", id)
		errs = append(errs, n.Remove(ctx, dead[id]))
	}
	return errors.Join(errs...)
}

// checkPeriod is how often the rules are looked at.
const checkPeriod = 10 * time.Second

// Run looks at the host ports' rules on a period until ctx is done, and puts back
// what somebody else took away.
func (n *Network) Run(ctx context.Context) error {
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := n.check(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("rules of host ports not checked", "error", err)
		}
	}
}

func (n *Network) check(ctx context.Context) error {
	repaired, err := n.built.ports.check(ctx)
	if repaired && err == nil {
		n.cfg.Log.Warn("rules of host ports were not as they should be, put back")
	}
	return err
}

// Destroy takes away everything that New and Add made in the kernel. Pods must
// be gone.
func (n *Network) Destroy(ctx context.Context) error {
	return n.built.destroy(ctx)
}

// Bridge is the interface that the pods are behind, and their addresses; nothing
// where the operator's configuration connects them in another way.
func (n *Network) Bridge() (name string, pods netip.Prefix) {
	h := n.built.ports
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bridge, h.subnet
}

// lock serialises what happens to one pod.
func (n *Network) lock(ctx context.Context, id string) (func(), error) {
	for {
		n.mu.Lock()
		wait := n.busy[id]
		if wait == nil {
			mine := make(chan struct{})
			n.busy[id] = mine
			n.mu.Unlock()
			return func() {
				n.mu.Lock()
				delete(n.busy, id)
				n.mu.Unlock()
				close(mine)
			}, nil
		}
		n.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// mapping is a host port as CNI's capability "portMappings" has it.
type mapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

func runtimeConf(p Pod) *libcni.RuntimeConf {
	ports := make([]mapping, 0, len(p.Ports))
	for _, port := range p.Ports {
		m := mapping{HostPort: port.HostPort, ContainerPort: port.ContainerPort, Protocol: port.Protocol}
		if port.HostIP.IsValid() && !port.HostIP.IsUnspecified() {
			m.HostIP = port.HostIP.String()
		}
		ports = append(ports, m)
	}
	return &libcni.RuntimeConf{
		ContainerID: p.ID, NetNS: p.NetNS, IfName: interfaceName,
		CapabilityArgs: map[string]any{"portMappings": ports},
	}
}
