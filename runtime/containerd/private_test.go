package containerd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/image"
)

// A private image comes with the right credential only, and a mirror never sees it.
func TestPullWithCredentials(t *testing.T) {
	n := newNode(t)
	var told atomic.Int64 // credentials that the mirror saw
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); ok {
			told.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="mirror"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	defer mirror.Close()
	blobs := registry.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "ana" || password != "geheim" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		blobs.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	program, err := os.ReadFile(filepath.Join(n.shared.dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/team/private:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, programImage(t, program), remote.WithAuth(&authn.Basic{Username: "ana", Password: "geheim"})); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(n.Runtime.cfg.HostsDir, host)
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		t.Fatal(err)
	}
	toml := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", server.URL, mirror.URL)
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}

	pull := func(ring image.Keyring) error {
		_, err := n.EnsureImage(t.Context(), agent.ImageRequest{Reference: ref.Name(), Policy: corev1.PullAlways, Keyring: ring})
		return err
	}
	good := image.Credential{Registry: host, Username: "ana", Password: "geheim"}
	bad := image.Credential{Registry: host + "/team", Username: "ana", Password: "wrong"}
	for i, ring := range []image.Keyring{nil, {bad}, {{Registry: "elsewhere.example", Username: "ana", Password: "geheim"}}} {
		err := pull(ring)
		if err == nil || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := pull(image.Join(image.Keyring{good}, image.Keyring{bad})); err != nil {
		t.Error(err)
	}
	if told.Load() != 0 {
		t.Errorf("the mirror was shown credentials %d times", told.Load())
	}
}
