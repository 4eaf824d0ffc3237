package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"headway.dev/headway/internal/loopback"
)

// patience bounds every wait of these tests. It is far beyond what anything
// takes: a test fails by what it sees, never by how long it took.
const patience = 2 * time.Minute

// machine is what all tests share: the programs and one containerd.
type machine struct {
	headway, kubectl string
	dir              string
	socket           string // of the shared containerd
	engine           *exec.Cmd
}

var host machine

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if err := host.up(); err != nil {
			var skip skipError
			if errors.As(err, &skip) && os.Getenv("CI") == "" {
				fmt.Fprintln(os.Stderr, "e2e tests skipped:", err)
				return 0
			}
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		defer host.down()
		// Clusters mostly wait, so a few more run at once than there are processors.
		if err := flag.Set("test.parallel", strconv.Itoa(max(3, runtime.GOMAXPROCS(0)))); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		return m.Run()
	}())
}

// skipError is a machine that cannot run these tests; in CI it is a failure.
type skipError struct{ why string }

func (e skipError) Error() string { return e.why }

func (h *machine) up() error {
	if os.Geteuid() != 0 {
		return skipError{"they start containers: run as root"}
	}
	for _, program := range []string{"containerd", "runc", "git", "ip", "ctr"} {
		if _, err := exec.LookPath(program); err != nil {
			return skipError{program + " is not installed: run scripts/install-deps"}
		}
	}
	var err error
	if h.headway, err = filepath.Abs("../bin/headway"); err != nil {
		return err
	}
	if _, err := os.Stat(h.headway); err != nil {
		return fmt.Errorf("%s is not there: run make build (make test does)", h.headway)
	}
	if h.dir, err = os.MkdirTemp("", "headway-e2e-"); err != nil {
		return err
	}
	h.kubectl = filepath.Join(h.dir, "kubectl")
	if out, err := exec.Command("go", "build", "-ldflags", "-X k8s.io/component-base/version.gitVersion=v1.37.2", "-o", h.kubectl, "./kubectl").CombinedOutput(); err != nil {
		return fmt.Errorf("build kubectl: %w: %s", err, out)
	}
	return h.startContainerd()
}

func (h *machine) startContainerd() error {
	h.socket = filepath.Join(h.dir, "containerd.sock")
	config := filepath.Join(h.dir, "containerd.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\n  address = %q\n",
		filepath.Join(h.dir, "containerd"), filepath.Join(h.dir, "run"), h.socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(h.dir, "containerd.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	h.engine = exec.Command("containerd", "-c", config, "--log-level", "warn")
	h.engine.Stdout, h.engine.Stderr = log, log
	h.engine.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := h.engine.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	return waitFor("containerd to answer", func() error {
		return exec.Command("ctr", "-a", h.socket, "version").Run()
	})
}

func (h *machine) down() {
	if h.engine != nil && h.engine.Process != nil {
		h.engine.Process.Signal(syscall.SIGTERM)
		h.engine.Wait()
	}
	os.RemoveAll(h.dir)
}

// environment is this process's, without settings of git that belong to the
// machine, such as an authority that overrules the one a test configures.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GIT_") })
}

// waitFor calls check until it returns nil. The pause between two calls is not
// what is tested.
func waitFor(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", patience, what, err)
		case <-tick.C:
		}
	}
}

// eventually is waitFor for tests.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	if err := waitFor(what, check); err != nil {
		t.Fatal(err)
	}
}

// undisturbed is the flag of a node whose pods stay however full the machine is that the
// tests run on.
const undisturbed = "--eviction-hard="

// cluster is one headway up with its own data dir.
type cluster struct {
	t      *testing.T
	dir    string
	listen string
	args   []string
	env    []string // beside the test's own
	engine string   // containerd's socket, empty: the cluster's own
	work   string   // clone of the repository

	mu   sync.Mutex
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

// output collects what a process prints, for the test's log when it fails.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// newCluster starts headway up on a data dir and ports of its own and waits until
// its node is Ready. Everything it made is gone when the test ends.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := prepareCluster(t, args...)
	c.start()
	c.waitReady()
	return c
}

func prepareCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp(host.dir, "c")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, listen: loopback.Reserve(t, 2), engine: host.socket, out: &output{}, work: filepath.Join(dir, "work")}
	c.args = append([]string{"up", "--data-dir", c.data(), "--listen", c.listen, "--containerd", host.socket, undisturbed}, args...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("headway printed:\n%s", c.out)
		}
		c.sweep()
	})
	return c
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// start starts the process.
func (c *cluster) start() {
	c.t.Helper()
	cmd := exec.Command(host.headway, c.args...)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.Env = append(os.Environ(), c.env...)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	c.mu.Lock()
	c.cmd, c.done = cmd, done
	c.mu.Unlock()
	go func() {
		cmd.Wait()
		close(done)
	}()
}

// end sends a signal and waits for the process to be gone.
func (c *cluster) end(sig syscall.Signal) {
	c.t.Helper()
	c.mu.Lock()
	cmd, done := c.cmd, c.done
	c.mu.Unlock()
	if cmd == nil {
		return
	}
	cmd.Process.Signal(sig)
	select {
	case <-done:
	case <-time.After(patience):
		c.t.Fatalf("headway did not end %s after %v", patience, sig)
	}
}

// waitReady waits until the node is Ready.
func (c *cluster) waitReady() {
	c.t.Helper()
	eventually(c.t, "the node to be Ready", func() error {
		select {
		case <-c.done:
			return errors.New("headway has ended")
		default:
		}
		out, err := c.tryKubectl("get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		if err != nil {
			return err
		}
		if out != "True" {
			return fmt.Errorf("Ready is %q", out)
		}
		return nil
	})
}

// tryKubectl runs the real kubectl.
func (c *cluster) tryKubectl(args ...string) (string, error) {
	return c.run("", host.kubectl, append([]string{"--kubeconfig", filepath.Join(c.data(), "kubeconfig")}, args...)...)
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.tryKubectl(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// headway runs a verb of the program on this cluster.
func (c *cluster) headway(args ...string) (string, error) {
	return c.run("", host.headway, append(args, "--data-dir", c.data())...)
}

func (c *cluster) run(dir, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(environment(), "HOME="+c.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// get reads an object as JSON through kubectl.
func get[T any](c *cluster, args ...string) T {
	c.t.Helper()
	var v T
	out := c.kubectl(append(append([]string{"get"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		c.t.Fatalf("kubectl get %v: %v", args, err)
	}
	return v
}

// sweep ends the process and takes away every container, mount and interface that
// the cluster left, as it should: they outlive it.
func (c *cluster) sweep() {
	c.end(syscall.SIGTERM)
	if _, err := os.Stat(c.data()); errors.Is(err, fs.ErrNotExist) {
		return
	}
	args := []string{"reset", "--yes", "--data-dir", c.data()}
	if c.engine != "" {
		args = append(args, "--containerd", c.engine)
	}
	if out, err := c.run("", host.headway, args...); err != nil {
		c.t.Errorf("reset: %v: %s", err, out)
	}
}
