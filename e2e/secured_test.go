package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/internal/loopback"
)

// A pod with the node's network is refused at the push where the namespace forbids it,
// with file and line, and runs with the node's address where it does not.
func TestPodSecurityAtThePush(t *testing.T) {
	t.Parallel()
	c := probing(t)
	_, port, err := net.SplitHostPort(loopback.Reserve(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	pod := func(namespace string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: near, namespace: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    args: [serve]
    env: [{name: PORT, value: %q}, {name: ANSWER, value: near}]
`, namespace, probeName, port)
	}
	const shielded = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shielded, labels: {pod-security.kubernetes.io/enforce: baseline}}\n"
	c.write(map[string]string{"shielded.yaml": shielded, "near.yaml": pod("shielded")})
	c.commit("not here")
	printed, err := c.push()
	if err == nil {
		t.Error("the push was taken")
	}
	contains(t, "the push", printed, "near.yaml:4:1: spec: ", `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)

	c.deploy("elsewhere", map[string]string{"near.yaml": pod("default")})
	near := c.pods("")[0]
	if near.Status.PodIP != near.Status.HostIP || near.Status.HostIP == "" {
		t.Errorf("its address is %s, the node's %s", near.Status.PodIP, near.Status.HostIP)
	}
	if out, err := fetch("http://" + net.JoinHostPort(near.Status.PodIP, port) + "/"); err != nil || out != "near" {
		t.Errorf("%q, %v", out, err)
	}
}

// A private image comes with the pod's pull secret; a pod without one does not get it,
// although it is on the node.
func TestPrivateImages(t *testing.T) {
	t.Parallel()
	c := probing(t)
	blobs := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "ana" || password != "geheim" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		blobs.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	image, err := probeImage()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/team/private:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithAuth(&authn.Basic{Username: "ana", Password: "geheim"})); err != nil {
		t.Fatal(err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte("ana:geheim"))
	c.kubectl("create", "secret", "generic", "hub", "--type=kubernetes.io/dockerconfigjson", fmt.Sprintf(`--from-literal=.dockerconfigjson={"auths":{%q:{"auth":%q}}}`, host, auth))
	pod := func(name, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers: [{name: main, image: %q, args: [sleep], imagePullPolicy: IfNotPresent}]\n%s", name, ref.Name(), more)
	}
	c.deploy("with the secret", map[string]string{"with.yaml": pod("with", "  imagePullSecrets: [{name: hub}]\n")})
	c.write(map[string]string{"without.yaml": pod("without", "")})
	c.commit("without the secret")
	printed, err := c.push()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	eventually(t, "the pod without the secret is refused the image", func() error {
		for _, p := range c.pods("") {
			if p.Name != "without" || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			switch s := p.Status.ContainerStatuses[0].State; {
			case s.Running != nil:
				t.Fatal("a pod without the secret runs a private image")
			case s.Waiting != nil && (s.Waiting.Reason == "ErrImagePull" || s.Waiting.Reason == "ImagePullBackOff"):
				if strings.Contains(s.Waiting.Message, "geheim") {
					t.Error("its message has the password (R14)")
				}
				return nil
			}
		}
		return errors.New("not yet")
	})
	eventually(t, "the pod with the secret runs", func() error {
		for _, p := range c.pods("") {
			if p.Name == "with" && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("not yet")
	})
}
