package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ownEngine makes the cluster start a containerd of its own.
func (c *cluster) ownEngine() {
	c.t.Helper()
	at := slices.Index(c.args, "--containerd")
	c.args = slices.Delete(c.args, at, at+2)
	c.engine = ""
	// One that the machine runs is taken unless there has been one of ours.
	if err := os.MkdirAll(filepath.Join(c.data(), "containerd"), 0o700); err != nil {
		c.t.Fatal(err)
	}
}

// enginePID is the process of the cluster's own containerd.
func (c *cluster) enginePID() int {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.data(), "containerd", "containerd.pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// killEngine kills it and waits for its end.
func (c *cluster) killEngine() {
	c.t.Helper()
	pid := c.enginePID()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		c.t.Fatal(err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			c.t.Fatalf("containerd did not end: %v", err)
		}
		return
	}
}

// Containers outlive headway and containerd, one and both, by kill and by Ctrl-C,
// and are adopted as they are; and what adopted them is in charge.
func TestR8_RestartsAdoptContainers(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.ownEngine()
	c.addProbe()
	c.start()
	c.waitReady()
	c.deploy("one", map[string]string{"web.yaml": web("one", 2)})
	before := c.lives("app=web", 2)
	ips := map[string]string{}
	for _, p := range c.pods("app=web") {
		ips[p.Name] = p.Status.PodIP
	}
	answering := func(when string) {
		t.Helper()
		if words, problem := round(ips); len(words) != 2 {
			t.Errorf("%s: %v answer: %s", when, words, problem)
		}
	}

	first := c.enginePID()
	c.killEngine()
	answering("containerd is dead")
	eventually(t, "containerd to be started again", func() error {
		if c.enginePID() == first {
			return errors.New("not yet")
		}
		return nil
	})
	c.inCharge("after containerd's end")
	c.same("after containerd's end", "app=web", before)

	c.end(syscall.SIGKILL)
	c.killEngine()
	answering("headway and containerd are dead")
	c.start()
	c.waitReady()
	c.inCharge("after the end of both")
	c.same("after the end of both", "app=web", before)

	c.end(syscall.SIGINT)
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("Ctrl-C ends headway with %d", code)
	}
	answering("after Ctrl-C")
	c.start()
	c.waitReady()
	c.inCharge("after Ctrl-C")
	c.same("after Ctrl-C", "app=web", before)

	c.deploy("two", map[string]string{"web.yaml": web("two", 2)})
	c.answers("two", 2)
}

// inCharge deploys a Job of its own, which shows that the agent and containerd
// have taken up their work.
func (c *cluster) inCharge(when string) {
	c.t.Helper()
	name := strings.ReplaceAll(strings.ToLower(when), " ", "-")
	name = strings.ReplaceAll(name, "'", "")
	c.deploy(when, map[string]string{name + ".yaml": job(name, "", "exit", "0")})
}
