package containerd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/keeper"
	"headway.dev/headway/runtime/network"
)

// victimEnv tells this test binary to be the process that gets killed.
const victimEnv = "HEADWAY_TEST_VICTIM"

// victimConfig is what it needs to use the node of its test.
type victimConfig struct {
	Socket, Namespace, Cgroup, Dir, Keeper, KeeperDir, Network, Bridge string
	UIDs                                                               []types.UID
}

// victim is this binary's life as the process that TestKilledAtAnyMoment kills.
func victim(text string) error {
	var v victimConfig
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return err
	}
	ctx := context.Background()
	log := slog.New(slog.DiscardHandler)
	keep, err := keeper.Start(ctx, v.Keeper, v.KeeperDir)
	if err != nil {
		return err
	}
	pods, err := network.New(ctx, network.Config{Dir: v.Network, Bridge: v.Bridge, PluginDirs: network.DefaultPluginDirs(), Log: log})
	if err != nil {
		return err
	}
	r, err := New(ctx, Config{Socket: v.Socket, Namespace: v.Namespace, CgroupParent: v.Cgroup, Dir: v.Dir, Keeper: keep, Pause: v.Keeper, Network: pods, Log: log})
	if err != nil {
		return err
	}
	img, err := r.EnsureImage(ctx, agent.ImageRequest{Reference: testImage, Policy: corev1.PullIfNotPresent})
	if err != nil {
		return err
	}
	fmt.Println("begin")
	for _, uid := range v.UIDs {
		pod := victimPod(uid)
		if _, err := r.EnsureSandbox(ctx, agent.SandboxSpec{Pod: pod}); err != nil {
			return err
		}
		c, err := r.StartContainer(ctx, agent.ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0], Image: img, Args: pod.Spec.Containers[0].Args, Hash: "h"})
		if err != nil {
			return err
		}
		if err := r.StopContainer(ctx, c.ID, 0); err != nil {
			return err
		}
		if err := r.RemoveSandbox(ctx, uid); err != nil {
			return err
		}
	}
	fmt.Println("end")
	return nil
}

// sharingVictim ends the uid of one whose containers share their processes.
const sharingVictim = "-sharing"

func victimPod(uid types.UID) *corev1.Pod {
	pod := testPod("sleep")
	pod.ObjectMeta = metav1.ObjectMeta{Name: "victim", Namespace: "default", UID: uid}
	pod.Spec.ShareProcessNamespace = new(strings.HasSuffix(string(uid), sharingVictim))
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 28222, Protocol: corev1.ProtocolTCP}}
	return pod
}

// A process that makes and removes a pod is killed somewhere. The next one makes
// the same pod whole, or removes it, and nothing is left of it.
func TestKilledAtAnyMoment(t *testing.T) {
	n := newNode(t)
	n.specOf(testPod(), 0, 0) // the image is there
	n.close()
	const rounds = 16
	random := rand.New(rand.NewPCG(7, 8))
	for round := range rounds {
		uid := types.UID(fmt.Sprintf("victim-%d", round))
		if round%4 >= 2 {
			uid += sharingVictim
		}
		v := victimConfig{
			Socket: n.cfg.Socket, Namespace: n.cfg.Namespace, Cgroup: n.cfg.CgroupParent, Dir: n.cfg.Dir, Keeper: n.shared.keeper,
			KeeperDir: filepath.Join(filepath.Dir(n.cfg.Dir), "keeper"), Network: n.netCfg.Dir, Bridge: n.netCfg.Bridge, UIDs: []types.UID{uid},
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(out)
		for s.Scan() && s.Text() != "begin" {
			if strings.Contains(s.Text(), "FAIL") {
				t.Fatal("the victim could not begin")
			}
		}
		began := time.Now()
		limit := time.Duration(random.Int64N(int64(2 * time.Second)))
		timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
		for s.Scan() && s.Text() != "end" {
		}
		timer.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		t.Logf("round %d: killed after %s", round, time.Since(began))

		n.open()
		if round%2 == 0 {
			// The pod is wanted still: it is made whole. (An attempt that is over is over.)
			pod := victimPod(uid)
			sb, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: pod})
			if err != nil {
				t.Fatal(err)
			}
			attempt := 0
			for _, c := range sb.Containers {
				if c.Phase == agent.Exited {
					attempt = c.Attempt + 1
				}
			}
			c, err := n.StartContainer(t.Context(), n.specOf(pod, 0, attempt))
			if err != nil || c.Phase != agent.Running {
				t.Fatalf("round %d: %+v, %v", round, c, err)
			}
		}
		if err := n.RemoveSandbox(t.Context(), uid); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		n.nothingOf(uid)
		n.close()
	}
	n.open()
}

// nothingOf fails if anything of a pod is left.
func (n *node) nothingOf(uid types.UID) {
	n.t.Helper()
	if _, err := os.Stat(string(n.pod(uid))); !errors.Is(err, fs.ErrNotExist) {
		n.t.Errorf("files stay: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	if strings.Contains(string(mounts), "/"+string(uid)+"/") {
		n.t.Error("mounts stay")
	}
	if got := n.linkCount(); got != 0 {
		n.t.Errorf("%d ports on the bridge", got)
	}
	for _, root := range n.cgroups.roots {
		if _, err := os.Stat(filepath.Join(root, n.cgroup(uid, ""))); !errors.Is(err, fs.ErrNotExist) {
			n.t.Errorf("cgroup stays in %s: %v", root, err)
		}
	}
	found, err := n.client.ContainerService().List(context.Background())
	if err != nil || len(found) > 0 {
		n.t.Errorf("containers stay: %v, %v", found, err)
	}
	if open, err := n.keep.List(context.Background()); err != nil || len(open) > 0 {
		n.t.Errorf("output stays open: %v, %v", open, err)
	}
	for _, pattern := range []string{"ipam/*/10.*", "ports/*", "results/results/*"} {
		left, err := filepath.Glob(filepath.Join(n.netCfg.Dir, pattern))
		if err != nil || len(left) > 0 {
			n.t.Errorf("network files stay: %v, %v", left, err)
		}
	}
	rules, err := exec.Command("nft", "list", "table", "ip", "headway-"+n.netCfg.Bridge).Output()
	if err != nil || strings.Contains(string(rules), "28222") {
		n.t.Errorf("host port stays: %v: %s", err, rules)
	}
}
