package image

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// https://kubernetes.io/docs/concepts/containers/images/#config-json
func TestWhereACredentialFits(t *testing.T) {
	for _, c := range []struct {
		key, image string
		want       bool
	}{
		{"my-registry.example/images", "my-registry.example/images", true},
		{"my-registry.example/images", "my-registry.example/images/my-image:1", true},
		{"my-registry.example/images", "my-registry.example/another/my-image:1", false},
		{"*.my-registry.example/images", "sub.my-registry.example/images/my-image:1", true},
		{"*.my-registry.example/images", "a.sub.my-registry.example/images/my-image:1", false},
		{"*.my-registry.example/images", "my-registry.example/images/my-image:1", false},
		{"*.*.kubernetes.io", "abc.def.kubernetes.io/a", true},
		{"*.*.kubernetes.io", "abc.kubernetes.io/a", false},
		{"prefix.*.io", "prefix.kubernetes.io/a", true},
		{"*-good.kubernetes.io", "prefix-good.kubernetes.io/a", true},
		{"registry.example", "registry.example:5000/a", false},
		{"registry.example:5000", "registry.example:5000/a@sha256:" + strings.Repeat("0", 64), true},
		{"https://registry.example/v2/", "registry.example/a", true},
		{"https://index.docker.io/v1/", "nginx", true},
		{"registry-1.docker.io", "docker.io/team/app:1", true},
		{"docker.io", "ghcr.io/team/app:1", false},
		{"[.example", "a.example/b", false},
	} {
		canonical, err := Canonical(c.image)
		if err != nil {
			t.Fatal(err)
		}
		ring, err := ParseKeyring(fmt.Appendf(nil, `{"auths":{%q:{"auth":"YTpi"}}}`, c.key), false)
		if err != nil {
			if c.want {
				t.Errorf("%s: %v", c.key, err)
			}
			continue
		}
		if got := len(ring.For(canonical)) == 1; got != c.want {
			t.Errorf("%s for %s: %v", c.key, c.image, got)
		}
	}
}

func TestParseKeyring(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("ana:se:cret"))
	ring, err := ParseKeyring([]byte(`{"auths":{"a.example":{"auth":"`+auth+`","username":"not","password":"these"},"b.example":{"username":"u","password":"p"},"c.example":{"identitytoken":"t"}},"credsStore":"x"}`), false)
	want := Keyring{{Registry: "c.example", IdentityToken: "t"}, {Registry: "b.example", Username: "u", Password: "p"}, {Registry: "a.example", Username: "ana", Password: "se:cret"}}
	if err != nil || len(ring) != 3 || ring[0] != want[0] || ring[1] != want[1] || ring[2] != want[2] {
		t.Errorf("%d credentials, %v", len(ring), err)
	}
	if ring, err := ParseKeyring([]byte(`{"auths":{"a.example":{"auth":"`+strings.TrimRight(auth, "=")+`"}}}`), false); err != nil || ring[0].Password != "se:cret" {
		t.Errorf("without padding: %v", err)
	}
	if ring, err := ParseKeyring([]byte(`{"a.example":{"auth":"`+auth+`"}}`), true); err != nil || len(ring) != 1 {
		t.Errorf("the old form: %d, %v", len(ring), err)
	}
	for text, want := range map[string]string{
		`{"auths":{"a":{"auth":"*geheim*"}}}`:    "auth of a is not base64",
		`{"auths":{"a":{"auth":"Z2VoZWlt"}}}`:    "auth of a is not username:password in base64",
		`{"auths":{"a":{"auth":geheim}}}`:        "it is not the JSON of Docker's configuration",
		`{"auths":{"https://":{"auth":"YTpi"}}}`: `"https://" names no registry`,
	} {
		_, err := ParseKeyring([]byte(text), false)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestR14_ACredentialDoesNotPrint(t *testing.T) {
	c := Credential{Registry: "a.example", Username: "ana", Password: "geheim", IdentityToken: "geheim"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, value := range []any{c, &c, Keyring{c}} {
			if text := fmt.Sprintf(format, value); strings.Contains(text, "geheim") {
				t.Errorf("%s: %s", format, text)
			}
		}
	}
}

// One credential is tried after the other, none when none fits.
func TestPullTriesEachCredential(t *testing.T) {
	s := newStore()
	s.registry["a.example/x/y:1"], s.registry["docker.io/library/free:1"] = "text", "text"
	var tried []string
	s.opens = func(c *Credential) error {
		if c == nil {
			tried = append(tried, "-")
			return nil
		}
		if tried = append(tried, c.Username); c.Username != "good" {
			return errors.New("denied for " + c.Username)
		}
		return nil
	}
	ring := Join(Keyring{{Registry: "a.example", Username: "good"}}, Keyring{{Registry: "a.example/x", Username: "bad"}, {Registry: "a.example", Username: "good"}, {Registry: "b.example", Username: "other"}})
	images := newImages(t, s, 1)
	if _, err := images.Ensure(t.Context(), Request{Name: "a.example/x/y:1", Keyring: ring}); err != nil || strings.Join(tried, " ") != "bad good" {
		t.Errorf("tried %v: %v", tried, err)
	}
	tried = nil
	if _, err := images.Ensure(t.Context(), Request{Name: "free:1", Keyring: ring}); err != nil || strings.Join(tried, " ") != "-" {
		t.Errorf("tried %v: %v", tried, err)
	}
	tried = nil
	_, err := images.Ensure(t.Context(), Request{Name: "a.example/x/y:1", Policy: Always, Keyring: Keyring{{Registry: "a.example", Username: "bad"}, {Registry: "a.example", Username: "worse"}}})
	if err == nil || !strings.Contains(err.Error(), "denied for bad") || !strings.Contains(err.Error(), "denied for worse") {
		t.Errorf("%v", err)
	}
}

// Nobody gets an image by the pull that another's credentials opened.
func TestPullsWithOtherCredentialsAreNotShared(t *testing.T) {
	s := newStore()
	s.registry["a.example/x:1"] = "text"
	var mu sync.Mutex
	seen := map[string]bool{}
	both := make(chan struct{})
	s.opens = func(c *Credential) error {
		mu.Lock()
		seen[c.Username] = true
		if len(seen) == 2 {
			close(both)
		}
		mu.Unlock()
		<-both
		return nil
	}
	images := newImages(t, s, 2)
	var group sync.WaitGroup
	for _, user := range []string{"one", "two"} {
		group.Go(func() {
			_, err := images.Ensure(t.Context(), Request{Name: "a.example/x:1", Policy: Always, Keyring: Keyring{{Registry: "a.example", Username: user}}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func FuzzParseKeyring(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"YTpi"}}}`), false, "nginx")
	f.Add([]byte(`{"*.example:5000/a":{"username":"u"}}`), true, "x.example:5000/a/b")
	f.Fuzz(func(t *testing.T, text []byte, old bool, name string) {
		ring, err := ParseKeyring(text, old)
		if err != nil {
			return
		}
		for _, c := range ring {
			if c.Registry == "" {
				t.Errorf("%q: a credential for every registry", text)
			}
		}
		if canonical, err := Canonical(name); err == nil {
			if n := len(ring.For(canonical)); n > len(ring) {
				t.Errorf("%d of %d", n, len(ring))
			}
		}
	})
}
