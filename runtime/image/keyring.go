package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Credential is what one registry lets somebody in with. It must never be printed
// (R14), so it prints as its registry.
type Credential struct {
	Registry           string // host, perhaps with a port and a path, perhaps with globs
	Username, Password string
	IdentityToken      string // instead of a password: traded for a token at each pull
}

func (c Credential) String() string   { return "credential of " + c.Registry }
func (c Credential) GoString() string { return c.String() }

// Keyring holds the credentials that one pod may pull with, those that say the most
// about where they fit first.
type Keyring []Credential

// maxCredentials bounds a keyring.
const maxCredentials = 1000

// dockerEntry is a registry's entry in Docker's configuration.
type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password
	IdentityToken string `json:"identitytoken"`
}

// ParseKeyring reads Docker's config.json, as in a Secret of type
// kubernetes.io/dockerconfigjson; old: its former kind, .dockercfg, which has the
// entries alone. No error holds a value.
func ParseKeyring(text []byte, old bool) (Keyring, error) {
	var file struct {
		Auths map[string]dockerEntry `json:"auths"`
	}
	into := any(&file)
	if old {
		into = &file.Auths
	}
	if json.Unmarshal(text, into) != nil { // its message could quote a value
		return nil, errors.New("it is not the JSON of Docker's configuration")
	}
	if len(file.Auths) > maxCredentials {
		return nil, fmt.Errorf("it has %d registries: at most %d are read", len(file.Auths), maxCredentials)
	}
	var ring Keyring
	for registry, e := range file.Auths {
		c := Credential{Registry: registryOf(registry), Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken}
		if e.Auth != "" {
			pair, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(e.Auth, "=\x00"))
			if err != nil {
				return nil, fmt.Errorf("auth of %s is not base64", registry)
			}
			user, password, ok := strings.Cut(string(pair), ":")
			if !ok {
				return nil, fmt.Errorf("auth of %s is not username:password in base64", registry)
			}
			c.Username, c.Password = user, strings.TrimRight(password, "\x00")
		}
		if c.Registry == "" {
			return nil, fmt.Errorf("%q names no registry", registry)
		}
		ring = append(ring, c)
	}
	ring.sort()
	return ring, nil
}

// Join puts keyrings together, each credential once.
func Join(rings ...Keyring) Keyring {
	out := Keyring(slices.Concat(rings...))
	out.sort()
	return slices.Compact(out)
}

func (k Keyring) sort() {
	slices.SortFunc(k, func(a, b Credential) int {
		return cmp.Or(cmp.Compare(b.Registry, a.Registry), cmp.Compare(a.Username, b.Username),
			cmp.Compare(a.Password, b.Password), cmp.Compare(a.IdentityToken, b.IdentityToken))
	})
}

// registryOf takes host and path out of a key of Docker's configuration, which may
// be a URL, and which for Docker's own registry has several spellings.
func registryOf(key string) string {
	if !strings.Contains(key, "://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil || u.Host == "" {
		return ""
	}
	// As in Docker, what the API's version stands for is no part of a path.
	p := strings.TrimRight(u.Path, "/")
	if p == "/v1" || p == "/v2" {
		p = ""
	}
	switch u.Host {
	case "index.docker.io", "registry-1.docker.io":
		u.Host = dockerHub
	}
	return u.Host + p
}

const dockerHub = "docker.io"

// For returns the credentials that fit an image, in the order to try them, by
// Kubernetes' rules: as many parts of the host, each part a glob that crosses no dot;
// the same port; the path a beginning of the image's.
// https://kubernetes.io/docs/concepts/containers/images/#config-json
func (k Keyring) For(canonical string) Keyring {
	host, rest, _ := strings.Cut(Repository(canonical), "/")
	var out Keyring
	for _, c := range k {
		pattern, prefix, _ := strings.Cut(c.Registry, "/")
		if fits(pattern, host) && strings.HasPrefix(rest, prefix) {
			out = append(out, c)
		}
	}
	return out
}

// Host is the registry that an image is pulled from, as it is named in the image.
func Host(canonical string) string {
	host, _, _ := strings.Cut(Repository(canonical), "/")
	return host
}

func fits(pattern, host string) bool {
	name, port, _ := strings.Cut(pattern, ":")
	hostName, hostPort, _ := strings.Cut(host, ":")
	globs, parts := strings.Split(name, "."), strings.Split(hostName, ".")
	if port != hostPort || len(globs) != len(parts) {
		return false
	}
	for i, glob := range globs {
		if ok, err := path.Match(glob, parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// fingerprint tells keyrings apart without holding what is in them.
func (k Keyring) fingerprint() string {
	h := sha256.New()
	for _, c := range k {
		for _, part := range []string{c.Registry, c.Username, c.Password, c.IdentityToken} {
			fmt.Fprintf(h, "%d:%s", len(part), part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
