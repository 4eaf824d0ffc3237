package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

// badRegistry is a registry that goes wrong as a test says.
type badRegistry struct {
	*httptest.Server
	host string

	mu     sync.Mutex
	bad    func(w http.ResponseWriter, r *http.Request) bool // true: it has answered; nil: all is well
	asked  []string                                          // method, path and range of each request
	layers map[string][]byte                                 // by the path of their blobs
}

func newBadRegistry(t *testing.T, start func(http.Handler) *httptest.Server) *badRegistry {
	b := &badRegistry{layers: map[string][]byte{}}
	good := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	b.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.asked = append(b.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
		bad, layer := b.bad, b.layers[r.URL.Path]
		b.mu.Unlock()
		switch {
		case bad != nil && bad(w, r):
		case r.Method == http.MethodGet && layer != nil: // with ranges
			w.Header().Set("Content-Type", "application/octet-stream")
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(layer))
		default:
			good.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(b.Close)
	_, b.host, _ = strings.Cut(b.URL, "://")
	return b
}

// be has the registry go wrong from now on, and forgets what it was asked.
func (b *badRegistry) be(bad func(w http.ResponseWriter, r *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad, b.asked = bad, nil
}

func (b *badRegistry) count(prefix string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// put pushes a new image with one layer that no other has, and returns its reference and
// the path of the layer.
func (b *badRegistry) put(t *testing.T, repository string, size int) (ref, layer string, content []byte) {
	t.Helper()
	img := randomImage(t, size, runtime.GOARCH)
	tag, err := name.ParseReference(b.host + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, img, remote.WithTransport(b.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	l := must(img.Layers())[0]
	r := must(l.Compressed())
	content = must(io.ReadAll(r))
	layer = "/v2/" + tag.Context().RepositoryStr() + "/blobs/" + must(l.Digest()).String()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.layers[layer] = content
	return tag.Name(), layer, content
}

func randomImage(t *testing.T, size int, arch string) v1.Image {
	t.Helper()
	data := make([]byte, size)
	rand.Read(data)
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "data", Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg}), second(w.Write(data)), w.Close()); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: must(img.ConfigFile()).RootFS})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func second(_ int, err error) error { return err }

func (n *node) pull(ctx context.Context, ref string) error {
	_, err := n.EnsureImage(ctx, agent.ImageRequest{Reference: ref, Policy: corev1.PullIfNotPresent})
	return err
}

// Whatever a registry does wrong, a pull of it fails with a reason and without a hang,
// and succeeds when the registry is well again.
func TestBadRegistries(t *testing.T) {
	n := newNode(t)
	b := newBadRegistry(t, httptest.NewServer)
	const size = 1 << 20
	raw := func(w http.ResponseWriter, text string, body []byte) bool { // beyond what net/http lets a server say
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		_, _ = io.WriteString(c, text)
		_, _ = c.Write(body)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return true
	}
	for _, tc := range []struct {
		name string
		bad  func(layer string, content []byte) func(w http.ResponseWriter, r *http.Request) bool
		says string
	}{
		{"cut off", func(layer string, content []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				return r.URL.Path == layer && raw(w, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(content)), content[:len(content)/2])
			}
		}, ""},
		{"cut off at once", func(layer string, _ []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool { return r.URL.Path == layer && raw(w, "", nil) }
		}, "EOF"},
		{"another content", func(layer string, content []byte) func(http.ResponseWriter, *http.Request) bool {
			other := bytes.Repeat([]byte{'x'}, len(content))
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != layer {
					return false
				}
				_, err := w.Write(other)
				return err == nil || true
			}
		}, "digest"},
		{"too short", func(layer string, content []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				return r.URL.Path == layer && raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n", content[:100])
			}
		}, ""},
		{"too long", func(layer string, content []byte) func(http.ResponseWriter, *http.Request) bool {
			more := append(bytes.Clone(content), content...)
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != layer {
					return false
				}
				_, err := w.Write(more)
				return err == nil || true
			}
		}, ""},
		{"no such manifest length", func(string, []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				return strings.Contains(r.URL.Path, "/manifests/") && r.Method == http.MethodGet && raw(w, "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.distribution.manifest.v2+json\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", []byte("{\"a\":"))
			}
		}, ""},
		{"broken", func(string, []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, "no", http.StatusInternalServerError)
				return true
			}
		}, "500 Internal Server Error"},
		{"away", func(layer string, _ []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == layer {
					http.Error(w, "no", http.StatusBadGateway)
				}
				return r.URL.Path == layer
			}
		}, "502"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref, layer, content := b.put(t, "team/"+strings.ReplaceAll(tc.name, " ", "-")+":1", size)
			b.be(tc.bad(layer, content))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := n.pull(ctx, ref)
			var e *agent.ImageError
			if !errors.As(err, &e) || e.Reason != "ErrImagePull" || !strings.Contains(err.Error(), tc.says) || ctx.Err() != nil {
				t.Errorf("bad: %v", err)
			}
			if b.count("") > 20 {
				t.Errorf("%d requests for one try", b.count(""))
			}
			b.be(nil)
			if err := n.pull(ctx, ref); err != nil {
				t.Errorf("well again: %v", err)
			}
		})
	}
}

// A registry that asks for fewer requests gets no more in that pull, and says when to
// come again.
func TestRegistryThatIsBusy(t *testing.T) {
	n := newNode(t)
	b := newBadRegistry(t, httptest.NewServer)
	for _, tc := range []struct {
		code  int
		after string
		want  time.Duration
	}{{429, "7", 7 * time.Second}, {429, "", 0}, {503, "30", 30 * time.Second}} {
		ref, layer, _ := b.put(t, "team/busy:"+strconv.Itoa(tc.code)+tc.after, 1000)
		b.be(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != layer {
				return false
			}
			if tc.after != "" {
				w.Header().Set("Retry-After", tc.after)
			}
			http.Error(w, "slowly", tc.code)
			return true
		})
		err := n.pull(t.Context(), ref)
		var e *agent.ImageError
		if !errors.As(err, &e) || e.RetryAfter != tc.want || !strings.Contains(err.Error(), b.host+" asks for fewer requests") {
			t.Errorf("%d %q: %v", tc.code, tc.after, err)
		}
		if got := b.count("GET " + layer); got != 1 {
			t.Errorf("%d %q: it was asked %d times", tc.code, tc.after, got)
		}
		b.be(nil)
		if err := n.pull(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
}

// A pull that is given up keeps what came, and the next one goes on from there.
func TestPullGoesOn(t *testing.T) {
	n := newNode(t)
	b := newBadRegistry(t, httptest.NewServer)
	ref, layer, content := b.put(t, "team/large:1", 4<<20)
	sent := make(chan struct{})
	b.be(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != layer {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:3<<20])
		_ = http.NewResponseController(w).Flush()
		close(sent)
		<-r.Context().Done()
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- n.pull(ctx, ref) }()
	<-sent
	for { // until it has all that there is, so that something is kept
		parts, err := n.client.ContentStore().ListStatuses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) > 0 && parts[0].Offset > 1<<20 {
			break
		}
		select {
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.be(nil)
	if err := n.pull(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if got := b.count("GET " + layer + " bytes="); got == 0 {
		t.Errorf("it began anew: %q", b.asked)
	}
}

// Of an index this machine's image is taken; one that has none names what it has.
func TestPlatforms(t *testing.T) {
	n := newNode(t)
	b := newBadRegistry(t, httptest.NewServer)
	push := func(tag string, platforms ...string) {
		t.Helper()
		var index v1.ImageIndex = empty.Index
		for _, p := range platforms {
			arch, variant, _ := strings.Cut(p, "/")
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: randomImage(t, 1000, arch),
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch, Variant: variant}}})
		}
		if err := remote.WriteIndex(must(name.ParseReference(b.host+"/team/many:"+tag)), index); err != nil {
			t.Fatal(err)
		}
	}
	push("all", "s390x", runtime.GOARCH, "arm/v7")
	if err := n.pull(t.Context(), b.host+"/team/many:all"); err != nil {
		t.Error(err)
	}
	push("other", "s390x", "arm/v6", "s390x")
	err := n.pull(t.Context(), b.host+"/team/many:other")
	if err == nil || !strings.Contains(err.Error(), "platform linux/"+runtime.GOARCH+", only for linux/arm/v6, linux/s390x") {
		t.Errorf("%v", err)
	}
}

// hosts.toml: a mirror with a CA of its own and a path of its own, which may pull but not
// resolve, and one that is away.
func TestMirrors(t *testing.T) {
	n := newNode(t)
	b := newBadRegistry(t, httptest.NewTLSServer)
	_, layer, _ := b.put(t, "team/mirrored:1", 1000)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := func(text string) {
		t.Helper()
		dir := filepath.Join(n.cfg.HostsDir, "registry.example")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	pull := func() error {
		_, err := n.EnsureImage(t.Context(), agent.ImageRequest{Reference: "registry.example/team/mirrored:1", Policy: corev1.PullAlways})
		return err
	}
	const nobody = "server = \"http://127.0.0.1:1\"\n"
	hosts(nobody + fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", b.URL))
	if err := pull(); err == nil {
		t.Error("a mirror with a certificate that nobody knows was believed")
	}
	hosts(nobody + fmt.Sprintf("[host.\"http://127.0.0.1:2\"]\n  capabilities = [\"pull\", \"resolve\"]\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = %q\n", b.URL, ca))
	if err := pull(); err != nil {
		t.Errorf("mirror with a CA: %v", err)
	}
	if b.count("GET "+layer) != 1 {
		t.Errorf("%q", b.asked)
	}
	b.be(nil)
	hosts(nobody + fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\"]\n  ca = %q\n", b.URL, ca))
	if err := pull(); err == nil {
		t.Error("a mirror that may not say which image a tag is did")
	}
	b.be(func(_ http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = "/v2" + strings.TrimPrefix(r.URL.Path, "/proxy/of/it")
		return false
	})
	hosts(nobody + fmt.Sprintf("[host.\"%s/proxy/of/it\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n  ca = %q\n", b.URL, ca))
	if err := pull(); err != nil {
		t.Errorf("mirror with a path: %v", err)
	}
	if b.count("HEAD /proxy/of/it/team/mirrored/manifests/1") == 0 {
		t.Errorf("%q", b.asked)
	}
}

// An image that nothing uses goes with its layers; a container runs on without its image.
func TestRemoveImage(t *testing.T) {
	n := newNode(t)
	b := newBadRegistry(t, httptest.NewServer)
	ref, layer, _ := b.put(t, "team/unused:1", 4<<20)
	if err := n.pull(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	find := func() (found agent.PresentImage) {
		t.Helper()
		all, err := n.Runtime.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			if len(i.Names) > 0 && strings.HasPrefix(i.Names[0], b.host) {
				found = i
			}
			if strings.HasPrefix(i.Names[0], "headway.local/") != i.Kept {
				t.Errorf("%+v", i)
			}
		}
		return found
	}
	before, err := n.ImageDisk(t.Context())
	if err != nil || before.Capacity <= before.Available || before.Available <= 0 {
		t.Errorf("%+v, %v", before, err)
	}
	id := find().ID
	for range 2 {
		if err := n.RemoveImage(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := find(); got.ID != "" {
			t.Errorf("it is still there: %+v", got)
		}
	}
	b.be(nil)
	if err := n.pull(t.Context(), ref); err != nil || b.count("GET "+layer) != 1 {
		t.Errorf("pulled again: %v, %q", err, b.asked)
	}
}
