package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxAlloc bounds each piece of memory that a git program takes. A pack of a few
// kilobytes can hold a delta, or the name of a size, that asks for any number of
// bytes; git believes it. Nothing that fits into a push needs more (Config.MaxPush),
// and blobs beyond core.bigFileThreshold pass through in parts.
const maxAlloc = 512 << 20

// maxOutput bounds what one short git command may print.
const maxOutput = 64 << 20

// program runs git on one repository with an environment of our own: neither
// the configuration of the machine nor of its user changes what we do.
type program struct {
	path string   // of the git program
	dir  string   // the repository
	env  []string // more variables, such as those of a quarantine
}

// find returns the path of git; an empty wish means the one on PATH.
func find(wish string) (string, error) {
	if wish == "" {
		wish = "git"
	}
	path, err := exec.LookPath(wish)
	if err != nil {
		return "", fmt.Errorf("find the git program: %w; install git 2.36 or newer", err)
	}
	return filepath.Abs(path)
}

func (p program) environ() []string {
	return append([]string{
		"PATH=" + filepath.Dir(p.path) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"GIT_DIR=" + p.dir,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_NO_REPLACE_OBJECTS=1", // a commit is what its hash says
		"GIT_ALLOC_LIMIT=" + strconv.Itoa(maxAlloc),
		"LC_ALL=C",
		// The repository may belong to another user than ours, root for one.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}, p.env...)
}

// command prepares git with args in a process group of its own: a Ctrl-C meant
// for us must not end it in the middle of a write.
func (p program) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = p.environ()
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs git and returns what it printed. When ctx ends git is asked to stop,
// so that it removes its lock files, and killed when it does not.
func (p program) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	out := head{max: maxOutput}
	if err := p.runTo(ctx, stdin, &out, args...); err != nil {
		return nil, err
	}
	if out.cut {
		return nil, fmt.Errorf("git %s printed more than %d bytes", args[0], maxOutput)
	}
	return out.Bytes(), nil
}

// runTo is run with what git prints in out.
func (p program) runTo(ctx context.Context, stdin io.Reader, out io.Writer, args ...string) error {
	errs := head{max: 4 << 10}
	cmd := p.command(p.path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, out, &errs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("git %s: %w", args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), stop(cmd, ended))
	}
	if err != nil {
		return fmt.Errorf("git %s: %w%s", args[0], err, errs.suffix())
	}
	return nil
}

// stop ends the process group of cmd, first politely.
func stop(cmd *exec.Cmd, ended <-chan error) error {
	signal(cmd, syscall.SIGTERM)
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
	}
	signal(cmd, syscall.SIGKILL)
	return <-ended
}

// signal sends s to the process group of cmd. A group that is gone is fine.
func signal(cmd *exec.Cmd, s syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s)
}

// exitCode returns the exit status in err, or -1 when err is not one.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// head keeps the first max bytes that are written to it and drops the rest.
type head struct {
	bytes.Buffer
	max int
	cut bool
}

func (t *head) Write(b []byte) (int, error) {
	keep := b
	if room := t.max - t.Len(); len(keep) > room {
		keep, t.cut = keep[:max(room, 0)], true
	}
	t.Buffer.Write(keep)
	return len(b), nil
}

// suffix returns what was written as ": text" for the end of an error.
func (t *head) suffix() string {
	s := strings.TrimSpace(t.String())
	if s == "" {
		return ""
	}
	return ": " + printable(s)
}
