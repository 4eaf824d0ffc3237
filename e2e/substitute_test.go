package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// substitute is an image of ours under the name that manifests use.
type substitute struct {
	ports   []string // that it answers at
	links   []string // absolute paths of programs that are /standin
	program bool     // args are arguments of /standin, not a command
	user    string
}

// substituteFor is what one container counts on from its image.
func substituteFor(pod *corev1.PodSpec, c *corev1.Container) substitute {
	s := substitute{program: len(c.Args) == 0 || strings.HasPrefix(c.Args[0], "-")}
	add := func(port string) {
		if port != "" && port != "0" && !slices.Contains(s.ports, port) {
			s.ports = append(s.ports, port)
		}
	}
	for _, p := range c.Ports {
		add(fmt.Sprint(p.ContainerPort))
	}
	number := func(p intstr.IntOrString) {
		if p.Type == intstr.Int {
			add(p.String())
		}
	}
	commands := [][]string{c.Command}
	if len(c.Command) == 0 && !s.program {
		commands = append(commands, c.Args)
	}
	handler := func(exec *corev1.ExecAction, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) {
		if exec != nil {
			commands = append(commands, exec.Command)
		}
		if get != nil {
			number(get.Port)
		}
		if socket != nil {
			number(socket.Port)
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			handler(p.Exec, p.HTTPGet, p.TCPSocket)
		}
	}
	for _, command := range commands {
		if len(command) == 0 || slices.Contains(shellTools, path.Base(command[0])) {
			continue
		}
		link := command[0]
		if !strings.Contains(link, "/") {
			link = "/bin/" + link
		}
		s.links = append(s.links, path.Clean("/"+link))
	}
	for _, sc := range []*bool{nonRoot(pod.SecurityContext), nonRootOf(c.SecurityContext)} {
		if sc != nil && *sc {
			s.user = "1000"
		}
	}
	return s
}

func nonRoot(s *corev1.PodSecurityContext) *bool {
	if s == nil {
		return nil
	}
	return s.RunAsNonRoot
}

func nonRootOf(s *corev1.SecurityContext) *bool {
	if s == nil {
		return nil
	}
	return s.RunAsNonRoot
}

// shellTools are busybox in every substitute. What hooks call within a shell, and is not
// busybox, is the stand-in.
var (
	shellTools = []string{"sh", "cat", "sleep", "sed", "date", "killall", "touch", "rm", "ls"}
	alsoCalled = []string{"/bin/nginx", "/bin/locust"}
)

// standinBinary is the program of package standin, built once.
var standinBinary = sync.OnceValues(func() ([]byte, error) {
	binary := filepath.Join(host.dir, "standin")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "./standin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build standin: %w: %s", err, out)
	}
	return os.ReadFile(binary)
})

// image builds the substitute.
func (s substitute) image() (v1.Image, error) {
	program, err := standinBinary()
	if err != nil {
		return nil, err
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, fmt.Errorf("busybox-static is not installed, scripts/test installs it: %w", err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"bin", "etc", "tmp", "usr", "usr/share", "var", "proc", "sys", "dev"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode}); err != nil {
			return nil, err
		}
	}
	for name, data := range map[string][]byte{"standin": program, "bin/busybox": busybox} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	links := map[string]string{}
	for _, tool := range shellTools {
		links["bin/"+tool] = "/bin/busybox"
	}
	for _, link := range append(slices.Clone(s.links), alsoCalled...) {
		links[strings.TrimPrefix(link, "/")] = "/standin"
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: links[name], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	config := v1.Config{Cmd: []string{"/standin"}, User: s.user, Env: []string{"PATH=/bin", "PORTS=" + strings.Join(s.ports, " ")}}
	if s.program {
		config.Entrypoint, config.Cmd = config.Cmd, nil
	}
	return imageOf(buf.Bytes(), config)
}

// serveSubstitutes starts a registry on loopback that has the images, and makes it the
// mirror of every registry that the cluster's node asks. An image that is named by its
// digest is not there: nobody can stand in for it.
func (c *cluster) serveSubstitutes(t *testing.T, images map[string]substitute) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for ref, s := range images {
		named, err := reference.ParseDockerRef(ref)
		if err != nil {
			t.Fatal(err)
		}
		tagged, ok := named.(reference.Tagged)
		if _, digested := named.(reference.Digested); !ok || digested {
			continue
		}
		image, err := s.image()
		if err != nil {
			t.Fatal(err)
		}
		to, err := name.ParseReference(host + "/" + reference.Path(named) + ":" + tagged.Tag())
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(to, image); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(c.data(), "registries", "_default")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", server.URL)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
