package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is one headway up on a data dir of its own.
type cluster struct {
	program, dir, socket string
	cmd                  *exec.Cmd
	log                  *journal
	ended                chan struct{}
	client               *kubernetes.Clientset
}

// journal keeps what headway prints, by line, and wakes who waits for a line.
type journal struct {
	mu      sync.Mutex
	lines   []string
	rest    []byte
	changed chan struct{}
}

func newJournal() *journal { return &journal{changed: make(chan struct{})} }

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rest = append(j.rest, p...)
	for {
		line, rest, ok := bytes.Cut(j.rest, []byte{'\n'})
		if !ok {
			break
		}
		j.lines, j.rest = append(j.lines, string(line)), bytes.Clone(rest)
	}
	close(j.changed)
	j.changed = make(chan struct{})
	return len(p), nil
}

// find is the last line that has all the words.
func (j *journal) find(words ...string) (line string, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.lines) - 1; i >= 0 && line == ""; i-- {
		line = j.lines[i]
		for _, w := range words {
			if !strings.Contains(line, w) {
				line = ""
				break
			}
		}
	}
	return line, j.changed
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// startCluster starts headway up and waits until its node is Ready; took is the
// time from the start of the process until then. Without a socket it starts its
// own containerd, even if the machine has one.
func startCluster(ctx context.Context, program, dir, socket string) (c *cluster, took time.Duration, err error) {
	c = &cluster{program: program, dir: dir, socket: socket, log: newJournal(), ended: make(chan struct{})}
	args := []string{"up", "--data-dir", dir, "--listen", "127.0.0.1:0"}
	if socket != "" {
		args = append(args, "--containerd", socket)
	} else if err := os.MkdirAll(filepath.Join(dir, "containerd"), 0o711); err != nil {
		return nil, 0, err // the folder says that the containerd of this data dir is its own
	}
	c.cmd = exec.Command(program, args...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	begin := time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, 0, err
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in its journal
		close(c.ended)
	}()
	if _, err := c.await(ctx, "Headway is ready"); err != nil {
		return nil, 0, errors.Join(err, c.remove())
	}
	took = time.Since(begin)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err == nil {
		c.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, 0, errors.Join(err, c.remove())
	}
	return c, took, nil
}

// await waits for a line with all the words.
func (c *cluster) await(ctx context.Context, words ...string) (string, error) {
	for {
		line, changed := c.log.find(words...)
		if line != "" {
			return line, nil
		}
		select {
		case <-changed:
		case <-c.ended:
			return "", fmt.Errorf("headway has ended:\n%s", c.log)
		case <-ctx.Done():
			return "", fmt.Errorf("waited for headway to print %q: %w\n%s", words, context.Cause(ctx), c.log)
		}
	}
}

// remove ends headway and takes away everything that it made.
func (c *cluster) remove() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		return errors.Join(errors.New("headway did not end within a minute of SIGTERM"), c.cmd.Process.Kill())
	}
	args := []string{"reset", "--yes", "--data-dir", c.dir}
	if c.socket != "" {
		args = append(args, "--containerd", c.socket)
	}
	if out, err := exec.Command(c.program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("headway reset: %w: %s", err, out)
	}
	return nil
}

// repository is a working clone that pushes to a cluster.
type repository struct{ dir, remote string }

func newRepository(ctx context.Context, dir string, c *cluster) (*repository, error) {
	remote, err := os.ReadFile(filepath.Join(c.dir, "remote"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	r := &repository{dir: dir, remote: strings.TrimSpace(string(remote))}
	return r, r.git(ctx, "init", "--quiet", "--initial-branch=main")
}

func (r *repository) git(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.org", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// head is the commit of the working clone.
func (r *repository) head(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "rev-parse", "HEAD")
	cmd.Dir = r.dir
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// push commits the files (empty content removes one) and pushes. It returns when
// the push begins; wait ends when git does, which shows the whole rollout.
func (r *repository) push(ctx context.Context, files map[string]string) (begin time.Time, wait func() error, err error) {
	for name, content := range files {
		path := filepath.Join(r.dir, name)
		if content == "" {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			return time.Time{}, nil, err
		}
	}
	if err := r.git(ctx, "add", "-A"); err != nil {
		return time.Time{}, nil, err
	}
	if err := r.git(ctx, "commit", "--quiet", "--allow-empty", "-m", "bench"); err != nil {
		return time.Time{}, nil, err
	}
	done := make(chan error, 1)
	begin = time.Now()
	go func() { done <- r.git(ctx, "push", r.remote, "main") }()
	return begin, func() error { return <-done }, nil
}
