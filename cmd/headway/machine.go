package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/containerd"
	"headway.dev/headway/runtime/keeper"
	"headway.dev/headway/runtime/network"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/runtime/volume"
)

// defaultSocket is where a distribution's containerd listens.
const defaultSocket = "/run/containerd/containerd.sock"

// machineFlags are the node's flags.
type machineFlags struct {
	socket, node, address string
	labels                map[string]string
	maxPods               int
	maxPIDs               int64
	reserved              map[string]string
	evictHard, evictSoft  string
	evictGrace            string
	collect               agent.Collect
}

func (m *machineFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.socket, "containerd", "", "socket of containerd (default "+defaultSocket+" if one answers there, else one that headway starts)")
	f.StringVar(&m.node, "node-name", "", "name of this machine as a node (default its host name)")
	f.StringVar(&m.address, "node-ip", "", "address that other machines reach this one at (default that of the default route)")
	f.StringToStringVar(&m.labels, "node-label", nil, "label of this node, key=value; may be repeated")
	f.IntVar(&m.maxPods, "max-pods", 250, "how many pods this node takes")
	f.Int64Var(&m.maxPIDs, "pod-max-pids", -1, "how many processes and threads a pod may have; -1: as many as the machine bears")
	f.StringToStringVar(&m.reserved, "system-reserved", map[string]string{"cpu": "50m", "memory": "256Mi"}, "what of this machine pods do not get: cpu=…,memory=…,ephemeral-storage=…")
	f.StringVar(&m.evictHard, "eviction-hard", agent.DefaultEvictionHard, "how little may be free before pods are evicted at once; \"\": they never are")
	f.StringVar(&m.evictSoft, "eviction-soft", "", "how little may be free for a while before pods are evicted, with their own time to stop")
	f.StringVar(&m.evictGrace, "eviction-soft-grace-period", "", "for how long: signal=duration for each of --eviction-soft")
	f.IntVar(&m.collect.High, "image-gc-high", 85, "percent of the images' disk in use from which on images that nothing uses are removed; 100: never")
	f.IntVar(&m.collect.Low, "image-gc-low", 80, "percent of it that are aimed at then")
	f.DurationVar(&m.collect.MinAge, "image-min-age", 2*time.Minute, "how long an image stays at least")
}

// machineConfig is what the node's half of the process needs.
type machineConfig struct {
	machineFlags
	nets    networkConfig
	dir     dataDir
	keeper  string
	metrics prometheus.Registerer // nil: none are kept
	log     *slog.Logger

	kept       corev1.ResourceList // of --system-reserved
	thresholds []agent.Threshold
}

func (m machineFlags) config(dir dataDir, keeper string, nets networkConfig, log *slog.Logger) (machineConfig, error) {
	if err := m.collect.Validate(); err != nil {
		return machineConfig{}, fmt.Errorf("--image-gc-high, --image-gc-low, --image-min-age: %w", err)
	}
	if m.node == "" {
		var err error
		if m.node, err = nodeName(); err != nil {
			return machineConfig{}, err
		}
	}
	kept, err := agent.ParseReserved(m.reserved)
	if err != nil {
		return machineConfig{}, fmt.Errorf("--system-reserved: %w", err)
	}
	thresholds, err := agent.ParseThresholds(m.evictHard, m.evictSoft, m.evictGrace)
	if err != nil {
		return machineConfig{}, fmt.Errorf("--eviction-hard, --eviction-soft: %w", err)
	}
	if m.maxPods < 1 || m.maxPods > session.MaxPods {
		return machineConfig{}, fmt.Errorf("--max-pods %d: from 1 to %d", m.maxPods, session.MaxPods)
	}
	return machineConfig{machineFlags: m, dir: dir, keeper: keeper, nets: nets, log: log, kept: kept, thresholds: thresholds}, nil
}

// instance tells the clusters on one machine apart: by their data dirs. The
// default one has the plain name.
func (d dataDir) instance() (string, error) {
	path, err := filepath.Abs(string(d))
	if err != nil {
		return "", err
	}
	if path == defaultDataDir {
		return "headway", nil
	}
	sum := sha256.Sum256([]byte(path))
	return "headway-" + hex.EncodeToString(sum[:4]), nil
}

// machine is the node's half of a process.
type machine struct {
	cfg     machineConfig
	runtime *containerd.Runtime
	volumes *volume.Volumes
	daemon  *containerd.Daemon // that we started, now or earlier; nil: somebody else's
	engine  string             // containerd's version
	images  string             // where containerd keeps what it unpacks
	agent   *agent.Agent
	traffic *traffic
	dial    func() (agent.Conn, error) // set by run
}

// openMachine makes this machine ready to run pods: containerd, the keeper, the
// pod network, and what is known of earlier pods. It starts no pod.
func openMachine(ctx context.Context, cfg machineConfig) (_ *machine, err error) {
	m := &machine{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	demo, err := fs.Sub(embedded, "embedded")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.dir.images(), 0o755); err != nil {
		return nil, err
	}
	if m.daemon, err = openEngine(ctx, &cfg); err != nil {
		return nil, err
	}
	if m.runtime, m.traffic, _, err = openRuntime(ctx, cfg, demo, os.DirFS(cfg.dir.images())); err != nil {
		return nil, err
	}
	if m.engine, err = m.runtime.Version(ctx); err != nil {
		return nil, err
	}
	if m.images, err = m.runtime.ImageDir(ctx); err != nil {
		return nil, err
	}
	instance, err := cfg.dir.instance()
	if err != nil {
		return nil, err
	}
	secrets := filepath.Join("/run", instance, "secrets")
	if err := secretsFolder(secrets); err != nil {
		return nil, err
	}
	if m.volumes, err = openVolumes(cfg.dir); err != nil {
		return nil, err
	}
	m.agent, err = agent.New(agent.Config{
		Runtime:    m.runtime,
		Volumes:    m.volumes,
		Traffic:    m.traffic,
		Explain:    m.traffic.explain,
		Dial:       func(context.Context) (agent.Conn, error) { return m.dial() },
		Node:       m.facts,
		Host:       func() (agent.Host, error) { return agent.ReadHost(string(m.cfg.dir), m.images) },
		Busy:       agent.Busy,
		Thresholds: m.cfg.thresholds,
		Dir:        cfg.dir.agent(),
		Secrets:    secrets,
		Log:        cfg.log.With("component", "agent"),
		Collect:    cfg.collect,
	})
	return m, err
}

// openRuntime connects to the containerd of cfg.socket, and starts what it needs
// beside it. Images are imported from the archives.
func openRuntime(ctx context.Context, cfg machineConfig, archives ...fs.FS) (*containerd.Runtime, *traffic, *network.Network, error) {
	instance, err := cfg.dir.instance()
	if err != nil {
		return nil, nil, nil, err
	}
	output, err := keeper.Start(ctx, cfg.keeper, cfg.dir.keeper())
	if err != nil {
		return nil, nil, nil, err
	}
	log := cfg.log.With("component", "runtime")
	memory, err := agent.MemoryOfPods(cfg.kept)
	if err != nil {
		return nil, nil, nil, err
	}
	pods, err := network.New(ctx, network.Config{
		Dir: cfg.dir.network(), Bridge: bridgeName(instance), PluginDirs: network.DefaultPluginDirs(), Log: log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	roads, names, err := openTraffic(cfg, pods, output)
	if err != nil {
		return nil, nil, nil, err
	}
	runtime, err := containerd.New(ctx, containerd.Config{
		Socket: cfg.socket, Namespace: instance, CgroupParent: "/" + instance, Dir: cfg.dir.node(),
		Keeper: output, Network: pods, HostsDir: cfg.dir.registries(), SeccompDir: cfg.dir.seccomp(),
		Archives: archives, DNS: names, Memory: memory, PIDs: cfg.maxPIDs, Pause: cfg.keeper, Log: log,
	})
	return runtime, roads, pods, err
}

// openVolumes makes the folders of the pods' volumes: on the disk in the data dir, in
// memory under /run, and those that outlive their pods.
func openVolumes(dir dataDir) (*volume.Volumes, error) {
	instance, err := dir.instance()
	if err != nil {
		return nil, err
	}
	persistent, err := filepath.Abs(dir.persistent())
	if err != nil {
		return nil, err
	}
	return volume.New(volume.Config{
		Disk: dir.volumes(), Memory: filepath.Join("/run", instance, "volumes"), Persistent: persistent, Made: dir.made(),
	})
}

// openEngine sets cfg.socket to where the containerd of this node listens: the one
// that is named; else our own if there has been one, since the pods are there;
// else the machine's; else our own, started. The daemon is nil unless it is ours.
func openEngine(ctx context.Context, cfg *machineConfig) (*containerd.Daemon, error) {
	if cfg.socket != "" {
		if _, ok := containerd.Find(ctx, cfg.socket); !ok {
			return nil, fmt.Errorf("--containerd: nothing answers at %s: start it, or leave the flag out", cfg.socket)
		}
		return nil, nil
	}
	if _, err := os.Stat(cfg.dir.engine()); errors.Is(err, fs.ErrNotExist) {
		if socket, ok := containerd.Find(ctx, defaultSocket); ok {
			cfg.socket = socket
			return nil, nil
		}
	}
	daemon, err := containerd.StartDaemon(ctx, containerd.DaemonConfig{Dir: cfg.dir.engine(), Log: cfg.log.With("component", "runtime")})
	if err != nil {
		return nil, err
	}
	cfg.socket = daemon.Socket
	return daemon, nil
}

// bridgeName is the pod network's bridge: hw0, or hw and a part of the instance's
// hash; an interface's name has at most 15 characters.
func bridgeName(instance string) string {
	if _, hash, ok := strings.Cut(instance, "-"); ok {
		return "hw" + hash
	}
	return "hw0"
}

func (m *machine) facts() (*corev1.Node, error) {
	return agent.Facts(agent.FactsConfig{
		Name: m.cfg.node, Address: m.cfg.address, Labels: m.cfg.labels, MaxPods: m.cfg.maxPods,
		Engine: "containerd://" + m.engine, Version: version,
		Reserved: m.cfg.kept, Disk: m.cfg.dir.node(), Thresholds: m.cfg.thresholds,
	})
}

// run drives the pods until ctx ends, and keeps a containerd of ours running; they
// run on.
func (m *machine) run(ctx context.Context, server string, creds credentials.TransportCredentials) error {
	m.dial = func() (agent.Conn, error) {
		return grpc.NewClient(server, grpc.WithTransportCredentials(creds))
	}
	group, ctx := errgroup.WithContext(ctx)
	if m.daemon != nil {
		group.Go(func() error { return m.daemon.Run(ctx) })
	}
	group.Go(func() error { return m.traffic.run(ctx) })
	group.Go(func() error { return m.agent.Run(ctx) })
	return group.Wait()
}

func (m *machine) close() error {
	if m.runtime == nil {
		return nil
	}
	return m.runtime.Close()
}
