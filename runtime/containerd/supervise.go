package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Run starts the daemon again whenever it ends, and bounds its log, until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	var bounded sync.WaitGroup
	defer bounded.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bounded.Go(func() { d.boundLog(ctx) })
	for wait := time.Duration(0); ; wait = min(2*wait+50*time.Millisecond, 10*time.Second) {
		began := time.Now()
		if err := d.ended(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > time.Minute {
			wait = 0
		}
		d.cfg.Log.Warn("containerd ended, starting it again", "log", filepath.Join(d.cfg.Dir, "containerd.log"))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if _, err := StartDaemon(ctx, d.cfg); err != nil && ctx.Err() == nil {
			d.cfg.Log.Error("containerd not started", "err", err)
		}
	}
}

// logPause is between two looks at the size of containerd's log, which grows by a
// few lines for each container.
const logPause = time.Hour

// boundLog keeps containerd's log from filling the disk: what is in it becomes the
// previous log. containerd appends, so the file can be emptied under it.
func (d *Daemon) boundLog(ctx context.Context) {
	tick := time.NewTicker(logPause)
	defer tick.Stop()
	for {
		if err := rotate(filepath.Join(d.cfg.Dir, "containerd.log")); err != nil {
			d.cfg.Log.Warn("containerd's log not bounded", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// rotate copies a log that is too long to <path>.1 and empties it.
func rotate(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= maxDaemonLog {
		return nil
	}
	if err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close() // opened for reading: nothing to lose
	out, err := os.OpenFile(path+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// process opens the daemon's process, nil when it does not run. The pid is from
// the file that its start wrote, if it still is that process.
func (d *Daemon) process() (*os.File, error) {
	data, err := os.ReadFile(filepath.Join(d.cfg.Dir, "containerd.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read containerd's pid: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("read containerd's pid: %w", err)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open containerd's process: %w", err)
	}
	p := os.NewFile(uintptr(fd), "containerd")
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(cmdline), filepath.Join(d.cfg.Dir, "config.toml")) {
		return nil, p.Close() // somebody else by now
	}
	return p, nil
}

// ended returns when the daemon's process is over, or ctx.
func (d *Daemon) ended(ctx context.Context) error {
	p, err := d.process()
	if err != nil || p == nil {
		return err
	}
	defer p.Close() // a descriptor of a process: nothing to lose
	return waitOver(ctx, p)
}

// waitOver returns when a process is over, or ctx. A pidfd is readable then.
func waitOver(ctx context.Context, p *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = p.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := p.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return err == nil && n > 0
		})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch containerd: %w", err)
	}
	return nil
}

// Kill ends the daemon; containers run on. It returns when the process is over.
func (d *Daemon) Kill() error {
	p, err := d.process()
	if err != nil || p == nil {
		return err
	}
	defer p.Close() // a descriptor of a process: nothing to lose
	raw, err := p.SyscallConn()
	if err == nil {
		var sent error
		err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
		if !errors.Is(sent, unix.ESRCH) {
			err = errors.Join(err, sent)
		}
	}
	if err != nil {
		return fmt.Errorf("kill containerd: %w", err)
	}
	return waitOver(context.Background(), p)
}

// Destroy ends the daemon and deletes what it keeps outside of its directory. No
// container may be left.
func (d *Daemon) Destroy() error {
	if err := d.Kill(); err != nil {
		return err
	}
	state, err := stateDir(d.cfg.Dir)
	if err != nil {
		return err
	}
	return os.RemoveAll(state)
}
