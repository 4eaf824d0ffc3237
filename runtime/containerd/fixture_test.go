package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/keeper"
	"headway.dev/headway/runtime/network"
)

// shared is what all tests of the package use: one containerd, one keeper.
type shared struct {
	dir    string
	keeper string // binary
	daemon *Daemon
}

var once = sync.OnceValues(func() (*shared, error) {
	dir, err := os.MkdirTemp("", "headway-containerd-")
	if err != nil {
		return nil, err
	}
	s := &shared{dir: dir, keeper: filepath.Join(dir, "headway-keeper")}
	for out, pkg := range map[string]string{
		s.keeper:                      "headway.dev/headway/cmd/headway-keeper",
		filepath.Join(dir, "program"): "./testdata/program",
	} {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", pkg, err, text)
		}
	}
	s.daemon, err = StartDaemon(context.Background(), DaemonConfig{Dir: filepath.Join(dir, "d"), Log: slog.New(slog.DiscardHandler)})
	return s, err
})

// used says that a test asked for the shared things, so they are to be ended.
var used atomic.Bool

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		if err := victim(text); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(unifiedEnv) != "" {
		if err := unify(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
				os.Exit(notUnified)
			}
			os.Exit(1)
		}
	}
	code := m.Run()
	if used.Load() {
		if s, err := once(); err == nil {
			if code != 0 {
				log, _ := os.ReadFile(filepath.Join(s.dir, "d", "containerd.log"))
				fmt.Fprintf(os.Stderr, "containerd said:\n%s\n", log)
			}
			if err := s.daemon.Destroy(); err != nil {
				fmt.Fprintln(os.Stderr, "stop containerd:", err)
				code = 1
			}
			if err := os.RemoveAll(s.dir); err != nil {
				fmt.Fprintln(os.Stderr, "clean up:", err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// needs says what is missing to run containers.
func needs() string {
	if os.Getuid() != 0 {
		return "root"
	}
	for _, program := range []string{"containerd", "runc", "nft", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return program
		}
	}
	return ""
}

// node is a Runtime with everything around it, of one test.
type node struct {
	*Runtime
	t      testing.TB
	shared *shared
	cfg    Config
	netCfg network.Config
	keep   *keeper.Client
	events <-chan types.UID
	cancel context.CancelFunc
}

func newNode(t testing.TB) *node {
	t.Helper()
	if missing := needs(); missing != "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("this test needs %s, and CI is set", missing)
		}
		t.Skipf("this test needs %s", missing)
	}
	used.Store(true)
	s, err := once()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(s.dir, "n")
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Base(dir)
	n := &node{t: t, shared: s}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	n.keep, err = keeper.Start(t.Context(), s.keeper, filepath.Join(dir, "keeper"))
	if err != nil {
		t.Fatal(err)
	}
	bridge := "hw" + short
	if len(bridge) > 15 {
		bridge = bridge[:15]
	}
	n.netCfg = network.Config{Dir: filepath.Join(dir, "network"), Bridge: bridge, PluginDirs: network.DefaultPluginDirs(), Log: log}
	n.cfg = Config{
		Socket: s.daemon.Socket, Namespace: "headway-" + short, CgroupParent: "/headway-test/" + short, Dir: filepath.Join(dir, "state"),
		Keeper: n.keep, Pause: s.keeper, HostsDir: filepath.Join(dir, "hosts"), Now: time.Now, Log: log,
		Archives: []fs.FS{testImages(t, s)},
	}
	n.open()
	t.Cleanup(n.destroy)
	return n
}

// open makes the Runtime, as a starting agent does.
func (n *node) open() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	var err error
	n.cfg.Network, err = network.New(ctx, n.netCfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Runtime, err = New(ctx, n.cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.events = n.Events(ctx)
}

// close ends it, as an agent that is killed does.
func (n *node) close() {
	n.t.Helper()
	n.cancel()
	if err := n.Close(); err != nil {
		n.t.Error(err)
	}
}

func (n *node) destroy() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all, err := n.List(ctx)
	if err != nil {
		n.t.Error(err)
	}
	for _, sb := range all {
		if err := n.RemoveSandbox(ctx, sb.UID); err != nil {
			n.t.Error(err)
		}
	}
	n.close()
	if err := n.cfg.Network.Destroy(ctx); err != nil {
		n.t.Error(err)
	}
	if id, err := n.keep.Hello(ctx); err == nil {
		if p, err := os.FindProcess(id.PID); err == nil {
			_ = p.Kill() // of this test alone
		}
	}
	if err := n.cgroups.remove(n.cfg.CgroupParent); err != nil {
		n.t.Error(err)
	}
}

// wait returns when the condition on a pod holds. It looks after every event.
func (n *node) wait(uid types.UID, what string, ok func(agent.SandboxState) bool) agent.SandboxState {
	n.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		all, err := n.List(context.Background(), uid)
		if err != nil {
			n.t.Fatal(err)
		}
		if len(all) == 1 && ok(all[0]) {
			return all[0]
		}
		select {
		case <-n.events:
		case <-deadline:
			n.t.Fatalf("waited for %s, but: %+v", what, all)
		}
	}
}

// exit waits for a container's end.
func (n *node) exit(uid types.UID, id string) agent.ContainerState {
	n.t.Helper()
	var out agent.ContainerState
	n.wait(uid, "exit", func(s agent.SandboxState) bool {
		for _, c := range s.Containers {
			if c.ID == id && c.Phase == agent.Exited {
				out = c
				return true
			}
		}
		return false
	})
	return out
}

func (n *node) logs(req agent.LogRequest) string {
	n.t.Helper()
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := n.Logs(ctx, req, &b); err != nil {
		n.t.Fatal(err)
	}
	return b.String()
}

const testImage = "headway.local/test:1"

// testPod is a pod with one container that runs the test program.
func testPod(args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: uuid.NewUUID()},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: testImage, Args: args, TerminationMessagePath: "/dev/termination-log",
		}}},
	}
}

// specOf is what the agent makes of a container of a pod.
func (n *node) specOf(pod *corev1.Pod, index, attempt int) agent.ContainerSpec {
	n.t.Helper()
	c := &pod.Spec.Containers[index]
	img, err := n.EnsureImage(context.Background(), agent.ImageRequest{Reference: c.Image, Policy: corev1.PullIfNotPresent})
	if err != nil {
		n.t.Fatal(err)
	}
	spec := agent.ContainerSpec{Pod: pod, Container: c, Attempt: attempt, Image: img, Command: c.Command, Args: c.Args, Hash: "h"}
	for _, e := range c.Env {
		spec.Env = append(spec.Env, e.Name+"="+e.Value)
	}
	return spec
}

// start makes the sandbox and starts the first container.
func (n *node) start(pod *corev1.Pod) agent.ContainerState {
	n.t.Helper()
	if _, err := n.EnsureSandbox(context.Background(), agent.SandboxSpec{Pod: pod}); err != nil {
		n.t.Fatal(err)
	}
	c, err := n.StartContainer(context.Background(), n.specOf(pod, 0, 0))
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// testImages is a folder with an archive of the test images.
func testImages(t testing.TB, s *shared) fs.FS {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(s.dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"test.tar": {Data: ociArchive(t, testImage, programImage(t, program))}}
}

func programImage(t testing.TB, program []byte) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range []struct {
		name, text string
		mode       int64
	}{
		{"program", string(program), 0o755},
		{"etc/passwd", "root:x:0:0::/:\nana:x:1000:1000::/home:\n", 0o644},
		{"etc/group", "root:x:0:\nana:x:1000:\nwheel:x:2000:ana\n", 0o644},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"work/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Name: d, Mode: 0o777, Typeflag: tar.TypeDir}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: "amd64", RootFS: must(img.ConfigFile()).RootFS,
		Config: v1.Config{Entrypoint: []string{"/program"}, Cmd: []string{"echo", "default"}, Env: []string{"FROM=image", "BOTH=image"}, WorkingDir: "/work"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// ociArchive packs images as an OCI layout in a tar.
func ociArchive(t testing.TB, ref string, img v1.Image) []byte {
	t.Helper()
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{"io.containerd.image.name": must(name.ParseReference(ref)).Name()})); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func contains(t testing.TB, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q is not in %q", want, text)
	}
}
