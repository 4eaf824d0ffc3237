package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func FuzzDecodeCheckpoint(f *testing.F) {
	good, err := encodeCheckpoint(planPod())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(nil))
	f.Add([]byte(checkpointHead + strings.Repeat("0", 64) + "\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var pod corev1.Pod
		if err := decodeCheckpoint(raw, &pod); err != nil {
			return
		}
		again, err := encodeCheckpoint(&pod)
		if err != nil {
			t.Fatal(err)
		}
		var read corev1.Pod
		if err := decodeCheckpoint(again, &read); err != nil {
			t.Fatal(err)
		}
	})
}

// Every cut and every flipped bit of a file is noticed.
func TestCheckpointCorruption(t *testing.T) {
	good, err := encodeCheckpoint(planPod())
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if err := decodeCheckpoint(good[:n], &corev1.Pod{}); err == nil {
			t.Fatalf("cut to %d of %d bytes, and read", n, len(good))
		}
		flipped := bytes.Clone(good)
		flipped[n] ^= 1
		if err := decodeCheckpoint(flipped, &corev1.Pod{}); err == nil {
			t.Fatalf("bit flipped at %d, and read", n)
		}
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	tmpfs := "/dev/shm"
	if ok, err := isTmpfs(tmpfs); err != nil || !ok {
		t.Fatalf("%s is no tmpfs (%v): every Linux machine has it", tmpfs, err)
	}
	secrets, err := os.MkdirTemp(tmpfs, "headway-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(secrets) })
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	open := func() (*checkpoint, saved) {
		k, err := openCheckpoint(dir, secrets, log)
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.load()
		if err != nil {
			t.Fatal(err)
		}
		return k, s
	}
	k, _ := open()
	long := strings.Repeat("n", 250)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	evil := planPod()
	evil.UID = types.UID("../../evil")
	k.savePod(evil)
	k.savePod(planPod())
	k.saveConfigMap(&corev1.ConfigMap{ObjectMeta: meta(long)})
	k.saveConfigMap(&corev1.ConfigMap{ObjectMeta: meta("../x")})
	k.saveSecret(&corev1.Secret{ObjectMeta: meta("s")})
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pods", "half.new"), []byte("cut short"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, s := open()
	if len(s.pods) != 1 || len(s.configMaps) != 2 || len(s.secrets) != 1 || s.pods[0].Name != "web" {
		t.Fatalf("read back %+v", s)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "pods")); err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	k.dropPod("u")
	k.dropPod("../../evil")
	k.dropConfigMap("default", long)
	k.dropSecret("default", "s")
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	if _, s := open(); len(s.pods) != 0 || len(s.configMaps) != 1 || len(s.secrets) != 0 {
		t.Fatalf("read back %+v", s)
	}
}

// The mark that all Services are there stands for a disk that has them: it comes after
// what it speaks of, and goes when that cannot be written or read.
func TestCheckpointKnowsWhetherItIsWhole(t *testing.T) {
	dir := t.TempDir()
	open := func(what string, whole bool) *checkpoint {
		t.Helper()
		k, err := openCheckpoint(dir, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.load()
		if err != nil {
			t.Fatal(err)
		}
		if s.all != whole {
			t.Errorf("%s: whole is %v", what, s.all)
		}
		return k
	}
	flush := func(k *checkpoint, fails bool) {
		t.Helper()
		if err := k.flush(); (err != nil) != fails {
			t.Errorf("flush: %v", err)
		}
	}
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	k := open("nothing", false)
	k.saveService(service("a"))
	flush(k, false)
	k = open("before the session was synced", false)
	k.saveService(service("b"))
	k.saveAll()
	open("not written yet", false)
	flush(k, false)
	k = open("synced", true)

	// What cannot be written is no longer whole, until it can.
	path := k.objectPath(k.services(), "default", "c")
	if err := os.MkdirAll(filepath.Join(path+".new", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	k.saveAll()
	k.saveService(service("c"))
	flush(k, true)
	if err := os.RemoveAll(path + ".new"); err != nil {
		t.Fatal(err)
	}
	open("one is missing", false)
	flush(k, false)
	k = open("written after all", true)

	// Nor is what is damaged, until the session has sent it again.
	if err := os.WriteFile(k.objectPath(k.services(), "default", "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open("one is damaged", false)
	k = open("one was damaged", false)
	k.saveService(service("a"))
	k.saveAll()
	flush(k, false)
	open("sent again", true)

	// After another boot some files may be missing.
	if err := os.WriteFile(k.mark(), []byte("11111111-2222-4333-8444-555555555555\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open("another boot", false)
}

func TestSecretsNeverGoToADisk(t *testing.T) {
	if ok, err := isTmpfs("."); err != nil || ok {
		if os.Getenv("CI") != "" {
			t.Fatalf("this checkout is on a tmpfs (%v), and CI is set", err)
		}
		t.Skipf("this checkout is on a tmpfs itself (%v)", err)
	}
	dir, err := os.MkdirTemp(".", "test-secrets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var said bytes.Buffer
	k, err := openCheckpoint(t.TempDir(), dir, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	k.saveSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	if !strings.Contains(said.String(), "not on a tmpfs") {
		t.Fatal(said.String())
	}
}

func TestFacts(t *testing.T) {
	node, err := Facts(FactsConfig{Name: "n1", Labels: map[string]string{"zone": "a"}, Version: "v1", Engine: "containerd://2"})
	if err != nil {
		t.Fatal(err)
	}
	c, free := node.Status.Capacity, node.Status.Allocatable
	if c.Cpu().Value() < 1 || c.Memory().Value() < 64<<20 || c.Pods().Value() != 250 || free.Cpu().Cmp(*c.Cpu()) >= 0 || free.Memory().Cmp(*c.Memory()) >= 0 {
		t.Fatalf("capacity %v, allocatable %v", c, free)
	}
	i := node.Status.NodeInfo
	if i.KernelVersion == "" || i.OSImage == "" || i.BootID == "" || i.OperatingSystem != "linux" || i.KubeletVersion != "v1" {
		t.Fatalf("info %+v", i)
	}
	if node.Labels["kubernetes.io/hostname"] != "n1" || node.Labels["zone"] != "a" || len(node.Status.Addresses) != 2 || node.Status.Addresses[0].Address == "" {
		t.Fatalf("node %+v", node)
	}
	if node.Labels["beta.kubernetes.io/os"] != "linux" || node.Labels["beta.kubernetes.io/arch"] != i.Architecture {
		t.Errorf("manifests that select by the old names find no node: %v", node.Labels)
	}
	if one, two := bootTime(), bootTime(); one <= 0 || two < one {
		t.Fatal("the boot clock stands still or runs backwards")
	}
}
