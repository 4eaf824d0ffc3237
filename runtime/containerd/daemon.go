package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
)

// DaemonConfig says how to run a containerd of our own.
type DaemonConfig struct {
	Dir    string // its data, configuration and log; its socket is <Dir>/containerd.sock
	Binary string // "": containerd from the path
	Log    *slog.Logger
}

// Daemon is a containerd that we started, now or in an earlier life.
type Daemon struct {
	Socket string
	cfg    DaemonConfig
}

// stateDir holds what must not survive a reboot: mounts and shims' sockets. A
// path in it must fit into a socket address, so it is short.
func stateDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("find containerd's directory: %w", err)
	}
	sum := sha256.Sum256([]byte(abs))
	return "/run/headway/containerd-" + hex.EncodeToString(sum[:6]), nil
}

// answers reports whether a containerd serves on a socket. A connection alone
// says nothing: that of one which is just dying is accepted, too.
func answers(ctx context.Context, socket string) bool {
	if _, err := os.Stat(socket); err != nil {
		return false
	}
	c, err := client.New(socket, client.WithTimeout(answerTime))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err = c.Version(ctx)
	return errors.Join(err, c.Close()) == nil
}

// Find returns the socket of a containerd that runs already, out of candidates.
func Find(ctx context.Context, candidates ...string) (socket string, ok bool) {
	for _, c := range candidates {
		if answers(ctx, c) {
			return c, true
		}
	}
	return "", false
}

// answerTime is how long a containerd that runs may need to say its version.
const answerTime = 5 * time.Second

// startPatience bounds the wait for the socket.
const startPatience = 15 * time.Second

// StartDaemon returns the containerd of a directory, started in a session of its
// own when it does not run. It survives us, and its containers survive it.
func StartDaemon(ctx context.Context, cfg DaemonConfig) (*Daemon, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make containerd's directory: %w", err)
	}
	d := &Daemon{Socket: filepath.Join(cfg.Dir, "containerd.sock"), cfg: cfg}
	if answers(ctx, d.Socket) {
		return d, nil
	}
	binary := cfg.Binary
	if binary == "" {
		binary = "containerd"
	}
	binary, err := exec.LookPath(binary)
	if err != nil {
		return nil, fmt.Errorf("find containerd: %w: install it, or name the socket of one that runs", err)
	}
	if len(d.Socket) > 100 {
		return nil, fmt.Errorf("the path %s is too long for a socket: take a shorter data directory", d.Socket)
	}
	state, err := stateDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(cfg.Dir, "config.toml")
	if err := os.WriteFile(config, daemonConfig(cfg.Dir, state, d.Socket), 0o600); err != nil {
		return nil, fmt.Errorf("write containerd's configuration: %w", err)
	}
	pid, err := spawn(binary, config, filepath.Join(cfg.Dir, "containerd.log"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, "containerd.pid"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return nil, fmt.Errorf("write containerd's pid: %w", err)
	}
	cfg.Log.Info("containerd started", "pid", pid, "socket", d.Socket)
	return d, d.await(ctx, pid)
}

// await returns when the socket answers.
func (d *Daemon) await(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if answers(ctx, d.Socket) {
			return nil
		}
		if err := syscall.Kill(pid, 0); err != nil {
			return fmt.Errorf("containerd ended at once, see %s", filepath.Join(d.cfg.Dir, "containerd.log"))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer, see %s: %w", filepath.Join(d.cfg.Dir, "containerd.log"), ctx.Err())
		case <-time.After(wait):
		}
	}
}

// maxDaemonLog is how long containerd's log may be.
const maxDaemonLog = 8 << 20

// spawn starts containerd detached: in its own session, and not as our child, so
// that nobody needs to wait for it. A shell that ends at once is its parent.
func spawn(binary, config, logPath string) (int, error) {
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open containerd's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", "-c", `"$0" --config "$1" </dev/null >&2 & echo $!`, binary, config)
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("start containerd: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, fmt.Errorf("start containerd: its pid: %w", err)
	}
	return pid, nil
}

// daemonConfig leaves out what we do not use: the CRI plugin alone is half of
// containerd's memory. It is version 2, which containerd 1.6 to 2.x read.
func daemonConfig(dir, state, socket string) []byte {
	return fmt.Appendf(nil, `# Written by Headway at every start.
version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.nri.v1.nri",
]

[grpc]
  address = %q

[debug]
  level = "warn"

[metrics]
  address = ""

[plugins."io.containerd.monitor.v1.cgroups"]
  no_prometheus = true
`, filepath.Join(dir, "root"), state, socket)
}
