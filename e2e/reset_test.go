package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// After a reset nothing that headway made is left on the machine.
func TestResetLeavesNothing(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.ownEngine()
	c.addProbe()
	c.start()
	c.waitReady()
	c.deploy("web", map[string]string{
		"web.yaml":    web("one", 2),
		"secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: v}\n",
	})
	c.end(syscall.SIGKILL)

	traces := c.traces(t)
	if len(traces) < 5 {
		t.Fatalf("the test does not see what headway made: %q", traces)
	}
	if out, err := c.headway("reset", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := c.traces(t); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if _, err := os.Stat(c.data()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data dir: %v", err)
	}
}

// traces are the mounts, interfaces, control groups, packet rules and processes
// of a cluster.
func (c *cluster) traces(t *testing.T) []string {
	t.Helper()
	sum := sha256.Sum256([]byte(c.data()))
	hash := hex.EncodeToString(sum[:4])
	instance := "headway-" + hash
	var found []string
	note := func(kind, text string, marks ...string) {
		for line := range strings.Lines(text) {
			for _, mark := range marks {
				if strings.Contains(line, mark) {
					found = append(found, kind+": "+strings.TrimSpace(line))
					break
				}
			}
		}
	}
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}
	engine, err := os.ReadDir("/run/headway")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	inside := sha256.Sum256([]byte(filepath.Join(c.data(), "containerd")))
	for _, e := range engine {
		note("state", e.Name(), hex.EncodeToString(inside[:6]))
	}
	note("mount", read("/proc/self/mountinfo"), c.data(), instance, hex.EncodeToString(inside[:6]))
	note("interface", run("ip", "-o", "link"), "hw"+hash)
	note("rule", run("iptables-save"), "hw"+hash, instance)
	note("rule", run("nft", "list", "tables"), "hw"+hash, instance)
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // of somebody else, just ended
		}
		if err == nil && d.IsDir() && d.Name() == instance {
			found = append(found, "cgroup: "+path)
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if data, err := os.ReadFile(p); err == nil {
			note("process", strings.ReplaceAll(string(data), "\x00", " "), c.data(), instance, hex.EncodeToString(inside[:6]))
		}
	}
	if _, err := os.Stat(filepath.Join("/run", instance)); err == nil {
		found = append(found, "folder: /run/"+instance)
	}
	return found
}
