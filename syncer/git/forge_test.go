package git

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/internal/loopback"
)

func openForge(t *testing.T, c ForgeConfig) *Forge {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "clone.git")
	}
	c.Cluster = "main"
	f, err := OpenForge(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestForgeFetch(t *testing.T) {
	ctx := context.Background()
	h := startHost(t, nil)
	w := newWork(t)
	w.commit("a", "1")
	w.git("push", h.url, "main")
	netrc := filepath.Join(t.TempDir(), "netrc")
	host := strings.TrimPrefix(h.web.URL, "http://")
	content := "# ours\nmachine other.example login a password b\nmachine " + host + "\n  login x\n  password " + token + "\n"
	if err := os.WriteFile(netrc, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "theirs", "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	chown := func(id int) {
		if os.Getuid() == 0 { // a repository of somebody else
			if err := os.Chown(bare, id, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]ForgeConfig{
		"token in the URL": {URL: h.url},
		"credentials file": {URL: h.web.URL + "/main.git", Netrc: netrc},
		"local path":       {URL: bare},
		"local URL":        {URL: "file://" + bare},
	} {
		t.Run(name, func(t *testing.T) {
			f := openForge(t, c)
			fetch := func(want string) {
				t.Helper()
				chown(0)
				w.git("push", "-q", "--force", bare, "main")
				chown(12345)
				if got, err := f.Fetch(ctx, "main", 0); err != nil || got != want {
					t.Fatalf("fetched %s, want %s: %v", got, want, err)
				}
				tree, err := f.Tree(ctx, want, "")
				if err != nil {
					t.Fatal(err)
				}
				if files, err := tree.Files(ctx); err != nil || len(files) == 0 {
					t.Fatalf("files %v: %v", files, err)
				}
			}
			fetch(w.git("rev-parse", "HEAD"))
			fetch(w.git("rev-parse", "HEAD"))
			w.commit("b", name)
			w.git("push", "-q", h.url, "main")
			fetch(w.git("rev-parse", "HEAD"))
			packs, err := filepath.Glob(filepath.Join(f.config.Dir, "objects", "pack", "*.pack"))
			if err != nil || len(packs) != 2 {
				t.Errorf("packs %v: %v", packs, err)
			}
			if f.config.URL != "" || strings.Contains(f.address, token) {
				t.Error("the token is kept in the URL")
			}
		})
	}
}

func TestForgeRewrittenHistoryAndTags(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.commit("a", "1")
	old := w.commit("a", "2")
	f := openForge(t, ForgeConfig{URL: w.dir})
	if got, err := f.Fetch(ctx, "refs/heads/main", 0); err != nil || got != old {
		t.Fatalf("fetched %s: %v", got, err)
	}
	w.git("reset", "-q", "--hard", "HEAD~")
	rewritten := w.commit("a", "3")
	if got, err := f.Fetch(ctx, "refs/heads/main", 0); err != nil || got != rewritten {
		t.Fatalf("fetched %s: %v", got, err)
	}
	if ok, err := f.IsAncestor(ctx, old, rewritten); err != nil || ok {
		t.Errorf("%v %v", ok, err)
	}
	w.git("reset", "-q", "--hard", old) // known already
	if got, err := f.Fetch(ctx, "refs/heads/main", 0); err != nil || got != old {
		t.Errorf("fetched %s: %v", got, err)
	}
	w.git("tag", "-a", "-m", "one", "v1")
	if got, err := f.Fetch(ctx, "refs/tags/v1", 0); err != nil || got != old {
		t.Errorf("the tag: %s %v", got, err)
	}
	w.git("tag", "tree", "HEAD^{tree}")
	if got, err := f.Fetch(ctx, "refs/tags/tree", 0); err == nil || !strings.Contains(err.Error(), "does not name a commit") {
		t.Errorf("a tag of a tree: %s %v", got, err)
	}
}

func TestForgeErrors(t *testing.T) {
	ctx := context.Background()
	h := startHost(t, nil)
	w := newWork(t)
	w.commit("a", "1")
	w.git("push", h.url, "main", "main:other")
	empty := startHost(t, nil)

	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/html/info/refs":
			w.Write([]byte("<html>Sign in</html>"))
		case "/forbidden/info/refs":
			http.Error(w, "no", http.StatusForbidden)
		case "/broken/info/refs":
			http.Error(w, "no", http.StatusBadGateway)
		default:
			http.NotFound(w, r)
		}
	}))
	defer page.Close()
	closed := loopback.Reserve(t, 1)
	sha256 := filepath.Join(t.TempDir(), "sha256")
	if out, err := exec.Command("git", "init", "-q", "-b", "main", "--object-format=sha256", sha256).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	long := &work{t: t, dir: sha256}
	long.commit("a", "1")
	notGit := t.TempDir()
	secret := "wr0ng-secret"
	with := func(user string) string {
		return strings.Replace(h.web.URL, "http://", "http://"+user+"@", 1) + "/main.git"
	}

	for name, c := range map[string]struct {
		config ForgeConfig
		want   string
		ref    string
		class  error
	}{
		"no token":          {config: ForgeConfig{URL: h.web.URL + "/main.git"}, want: "authentication failed", class: ErrNotAllowed},
		"wrong token":       {config: ForgeConfig{URL: with("x:" + secret)}, want: "authentication failed", class: ErrNotAllowed},
		"wrong user":        {config: ForgeConfig{URL: with(secret)}, want: "authentication failed", class: ErrNotAllowed},
		"missing ref":       {config: ForgeConfig{URL: h.url}, want: "no such ref, but refs/heads/main, refs/heads/other", ref: "refs/heads/none", class: ErrNotFound},
		"missing tag":       {config: ForgeConfig{URL: h.url}, want: "no such ref", ref: "refs/tags/none", class: ErrNotFound},
		"wrong path":        {config: ForgeConfig{URL: page.URL + "/none.git"}, want: "no such repository", class: ErrNotFound},
		"forbidden":         {config: ForgeConfig{URL: page.URL + "/forbidden"}, want: "authorization failed", class: ErrNotAllowed},
		"status":            {config: ForgeConfig{URL: page.URL + "/broken"}, want: "status 502", class: ErrUnreachable},
		"web page":          {config: ForgeConfig{URL: page.URL + "/html"}, want: "not a git repository"},
		"unreachable":       {config: ForgeConfig{URL: "http://x:" + secret + "@" + closed + "/a.git"}, want: "unreachable", class: ErrUnreachable},
		"empty":             {config: ForgeConfig{URL: empty.url}, want: "empty", class: ErrNotFound},
		"no such path":      {config: ForgeConfig{URL: filepath.Join(notGit, "none")}, want: "no such"},
		"folder of no git":  {config: ForgeConfig{URL: notGit}, want: "not a git repository", class: ErrNotFound},
		"sha256":            {config: ForgeConfig{URL: sha256}, want: "uses sha256"},
		"too large":         {config: ForgeConfig{URL: h.url, MaxFetch: 100}, want: "too large"},
		"no credentials":    {config: ForgeConfig{URL: h.web.URL + "/main.git", Netrc: filepath.Join(notGit, "none")}, want: "credentials file"},
		"silent for long":   {config: ForgeConfig{URL: silent(t), Patience: 50 * time.Millisecond}, want: "nothing came for 50ms", class: ErrUnreachable},
		"local and too big": {config: ForgeConfig{URL: w.dir, MaxFetch: 100}, want: "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			f := openForge(t, c.config)
			got, err := f.Fetch(ctx, cmp.Or(c.ref, "main"), 0)
			if err == nil {
				t.Fatalf("fetched %s", got)
			}
			t.Log(err)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q", c.want)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), token) {
				t.Error("a secret is shown")
			}
			if c.class != nil && !errors.Is(err, c.class) {
				t.Errorf("it is not of the class %v", c.class)
			}
			if refs, err := f.refs(ctx, "refs/"); err != nil || len(refs) > 0 {
				t.Errorf("refs %v: %v", refs, err)
			}
		})
	}
	for _, url := range []string{"git@github.com:a/b.git", "ssh://x:" + secret + "@host/a", "ftp://x:" + secret + "@host/a", "http://x:" + secret + "@/a", "http://x:%zz" + secret + "@h/a"} {
		if _, err := OpenForge(ctx, ForgeConfig{URL: url, Dir: t.TempDir(), Cluster: "main"}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// silent is a server that takes connections and says nothing.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String() + "/a.git"
}

func TestNetrc(t *testing.T) {
	content := "machine a.example login ann password one\n# machine b.example password no\nmachine b.example password two default login d password three"
	for host, want := range map[string]string{"a.example": "ann one", "b.example": " two", "c.example": "d three"} {
		if login, password := parseNetrc(content, []string{host}); login+" "+password != want {
			t.Errorf("%s: %q %q", host, login, password)
		}
	}
}
