package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A wrong image fails the push with its reason and does not take down what runs;
// the next commit mends it, with an image from a registry.
func TestR13_WrongImageIsMendedByTheNextCommit(t *testing.T) {
	t.Parallel()
	c := probing(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	image, err := probeImage()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/team/probe:7")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	with := func(word, image string) string { return strings.Replace(web(word, 2), probeName, image, 1) }
	c.deploy("good", map[string]string{"web.yaml": web("one", 2)})

	c.write(map[string]string{"web.yaml": with("two", host+"/team/absent:1")})
	wrong := c.commit("wrong image")
	printed, err := c.push()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	contains(t, "the push", printed, "failed after", "Deployment default/web", "team/absent:1")
	out, err := c.headway("status", wrong, "--wait", "--timeout", patience.String())
	if err == nil {
		t.Error("status --wait says that it is well")
	}
	contains(t, "status", out, "Failed", "team/absent:1")
	eventually(t, "ImagePullBackOff", func() error {
		for _, p := range c.pods("app=web") {
			for _, s := range p.Status.ContainerStatuses {
				if w := s.State.Waiting; w != nil && (w.Reason == "ImagePullBackOff" || w.Reason == "ErrImagePull") {
					return nil
				}
			}
		}
		return fmt.Errorf("no pod says it")
	})
	// maxUnavailable is 1: one of the old ones still serves.
	alive := 0
	for _, p := range c.pods("app=web") {
		if word, err := ask(p.Status.PodIP); isReady(&p) && err == nil && word == "one" {
			alive++
		}
	}
	if alive < 1 {
		t.Error("the broken rollout took down what ran")
	}

	c.deploy("mended", map[string]string{"web.yaml": with("three", ref.String())})
	c.answers("three", 2)
}
