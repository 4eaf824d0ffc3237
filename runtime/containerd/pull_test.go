package containerd

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
)

func TestPullFromRegistry(t *testing.T) {
	n := newNode(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	program, err := os.ReadFile(filepath.Join(n.shared.dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	img := programImage(t, program)
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	var said []string
	req := agent.ImageRequest{Reference: ref.Name(), Policy: corev1.PullIfNotPresent, Progress: func(reason, message string) {
		said = append(said, reason)
	}}
	got, err := n.EnsureImage(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != host+"/team/app@"+digest.String() || got.Reference != ref.Name() {
		t.Errorf("%+v", got)
	}
	if strings.Join(said, " ") != "Pulling Pulled" {
		t.Errorf("said %v", said)
	}
	pod := testPod("echo", "pulled")
	pod.Spec.Containers[0].Image = ref.Name()
	if c := n.exit(pod.UID, n.start(pod).ID); c.ExitCode != 0 || c.ImageID != got.Digest {
		t.Errorf("%+v", c)
	}

	// By digest, and what is not there.
	if _, err := n.EnsureImage(t.Context(), agent.ImageRequest{Reference: got.Digest, Policy: corev1.PullAlways}); err != nil {
		t.Error(err)
	}
	for reference, reason := range map[string]string{
		host + "/team/none:1":      "ErrImagePull",
		"127.0.0.1:1/nobody/home":  "ErrImagePull",
		"NOT A NAME":               "InvalidImageName",
		"headway.local/elsewhere:": "InvalidImageName",
	} {
		_, err := n.EnsureImage(t.Context(), agent.ImageRequest{Reference: reference, Policy: corev1.PullIfNotPresent})
		var e *agent.ImageError
		if !errors.As(err, &e) || e.Reason != reason {
			t.Errorf("%s: %v", reference, err)
		}
	}
	_, err = n.EnsureImage(t.Context(), agent.ImageRequest{Reference: host + "/team/none:1", Policy: corev1.PullNever})
	var e *agent.ImageError
	if !errors.As(err, &e) || e.Reason != "ErrImageNeverPull" {
		t.Errorf("never: %v", err)
	}
}
