package forge

import (
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"https://github.com/acme/shop.git", "https://github.com/acme/shop"},
		{"https://user:s3cret@GitHub.com:443/acme/shop/", "https://github.com/acme/shop"},
		{"ssh://git@github.com/acme/shop.git", "https://github.com/acme/shop"},
		{"git@github.com:acme/shop.git", "https://github.com/acme/shop"},
		{"github.com:acme/shop", "https://github.com/acme/shop"},
		{"ssh://git@ssh.github.com:443/acme/shop.git", "https://github.com/acme/shop"},
		{"git@altssh.gitlab.com:acme/shop.git", "https://gitlab.com/acme/shop"},
		{"ssh://git@git.example.com:2222/a/b/c/shop.git", "https://git.example.com/a/b/c/shop"},
		{"https://git.example.com:8443/acme/shop", "https://git.example.com:8443/acme/shop"},
		{"http://git.example.com:3000/acme/shop", "http://git.example.com:3000/acme/shop"},
		{"git@[2001:db8::1]:acme/shop.git", "https://[2001:db8::1]/acme/shop"},
		{"https://[2001:db8::1]:3000/acme/shop.git", "https://[2001:db8::1]:3000/acme/shop"},
		{"git+ssh://git@git.example.com./acme/shop.git", "https://git.example.com/acme/shop"},
	} {
		l, err := locate(c.url)
		if err != nil || l.String() != c.want {
			t.Errorf("%s: %s, %v; want %s", c.url, l, err, c.want)
		}
	}
	for _, bad := range []string{
		"", "/srv/git/shop.git", "./shop", "shop", "file:///srv/shop.git", "https://", "https:///acme/shop", "https://github.com",
		"https://github.com/acme/../shop", "https://github.com/acme//shop", "https://s3cret@exa mple.com/a/b", "ftp://s3cret@host/a/b",
		"https://github.com/acme/s3cret\x01", "https://github.com/acme/s%00cret", "git@github.com:", "https://host/" + strings.Repeat("s3cret", 1000),
	} {
		l, err := locate(bad)
		if err == nil {
			t.Errorf("%.80q is taken as %s", bad, l)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("R14: the error shows the URL: %v", err)
		}
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://github.com/acme/shop", "https://github.com/acme/shop.git", true},
		{"https://github.com/Acme/Shop/", "git@GITHUB.com:acme/shop.git", true},
		{"https://u:p@github.com/acme/shop", "ssh://git@github.com:22/acme/shop.git", true},
		{"http://git.example.com/acme/shop", "https://git.example.com/acme/shop", true}, // TLS ends before the forge
		{"https://git.example.com:443/acme/shop", "https://git.example.com/acme/shop", true},
		{"https://git.example.com:8443/acme/shop", "ssh://git@git.example.com:2222/acme/shop", true},
		{"https://git.example.com:8443/acme/shop", "https://git.example.com/acme/shop", false},
		{"ssh://git@git.example.com:2222/acme/shop", "git@git.example.com:acme/shop", false},
		{"ssh://git@git.example.com:2222/acme/shop", "ssh://other@git.example.com:2222/acme/shop.git", true},
		{"https://gitlab.com/a/b/c/shop", "git@gitlab.com:a/b/c/shop.git", true},
		{"https://gitlab.com/a/b/c/shop", "https://gitlab.com/a/b/shop", false},
		{"https://github.com/acme/shop", "https://github.com/acme/shop2", false},
		{"https://github.com/acme/shop", "https://github.com.evil.example/acme/shop", false},
		{"https://github.com/acme/shop", "https://evil.example/github.com/acme/shop", false},
		{"/srv/git/shop.git", "/srv/git/shop.git", false},
		{"", "", false},
	} {
		if got := Same(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
		if got := Same(c.b, c.a); got != c.want {
			t.Errorf("%s and %s: %v", c.b, c.a, got)
		}
	}
}

func TestEndpoint(t *testing.T) {
	commit := strings.Repeat("ab", 20)
	for _, c := range []struct {
		kind           Kind
		url, api, want string
	}{
		{GitHub, "git@github.com:acme/shop.git", "", "https://api.github.com/repos/acme/shop/statuses/"},
		{GitHub, "https://octo.ghe.com/acme/shop", "", "https://api.octo.ghe.com/repos/acme/shop/statuses/"},
		{GitHub, "ssh://git@github.example.com:2222/acme/shop.git", "", "https://github.example.com/api/v3/repos/acme/shop/statuses/"},
		{GitHub, "https://github.example.com:8443/acme/shop.git", "", "https://github.example.com:8443/api/v3/repos/acme/shop/statuses/"},
		{GitHub, "https://github.example.com/acme/shop.git", "https://api.example.com/v3", "https://api.example.com/v3/repos/acme/shop/statuses/"},
		{GitLab, "https://gitlab.com/acme/shop.git", "", "https://gitlab.com/api/v4/projects/acme%2Fshop/statuses/"},
		{GitLab, "git@gitlab.example.com:acme/team/sub/shop.git", "", "https://gitlab.example.com/api/v4/projects/acme%2Fteam%2Fsub%2Fshop/statuses/"},
		{GitLab, "https://example.com/gitlab/acme/shop.git", "https://example.com/gitlab/api/v4", "https://example.com/gitlab/api/v4/projects/acme%2Fshop/statuses/"},
		{GitLab, "git@example.com:acme/shop.git", "https://example.com/gitlab/api/v4", "https://example.com/gitlab/api/v4/projects/acme%2Fshop/statuses/"},
		{Gitea, "https://codeberg.org/acme/shop", "", "https://codeberg.org/api/v1/repos/acme/shop/statuses/"},
		{Gitea, "http://git.example.com:3000/acme/shop.git", "", "http://git.example.com:3000/api/v1/repos/acme/shop/statuses/"},
		{Gitea, "https://example.com/git/acme/my shop.git", "", "https://example.com/git/api/v1/repos/acme/my%20shop/statuses/"},
	} {
		l, err := locate(c.url)
		if err != nil {
			t.Fatal(err)
		}
		e, err := endpointOf(c.kind, l, c.api)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.statusURL(commit); got != c.want+commit {
			t.Errorf("%s %s %s: %s", c.kind, c.url, c.api, got)
		}
	}
	l, err := locate("https://github.com/shop.git")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := endpointOf(GitHub, l, ""); err == nil || !strings.Contains(err.Error(), "owner/repo") {
		t.Errorf("a path without an owner: %v", err)
	}
}

func TestBase(t *testing.T) {
	got, err := checkBase("https://git.example.com/api/v4//")
	if err != nil || got != "https://git.example.com/api/v4" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"git.example.com", "ftp://x/y", "https://", "https://u:s3cret@x/api", "https://x/api?token=s3cret", "https://s3cret x/"} {
		if got, err := checkBase(bad); err == nil {
			t.Errorf("%q is taken as %q", bad, got)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("R14: %v", err)
		}
	}
}

func TestKinds(t *testing.T) {
	for word, want := range map[string]Kind{"": "", "GitHub": GitHub, "gitlab": GitLab, "gitea": Gitea, "forgejo": Gitea} {
		if got, err := ParseKind(word); err != nil || got != want {
			t.Errorf("%q: %q, %v", word, got, err)
		}
	}
	if _, err := ParseKind("bitbucket"); err == nil || !strings.Contains(err.Error(), "forgejo") {
		t.Errorf("an unknown forge: %v", err)
	}
	for host, want := range map[string]Kind{"github.com": GitHub, "x.ghe.com": GitHub, "gitlab.com": GitLab, "codeberg.org": Gitea, "git.example.com": "", "notgithub.com": ""} {
		if got := kindOf(host); got != want {
			t.Errorf("%s: %q", host, got)
		}
	}
}

func FuzzLocate(f *testing.F) {
	for _, s := range []string{"https://u:p@h:1/a/b.git", "git@h:a/b", "ssh://git@[::1]:22/a/b", "a:b@c:d/e", "https://h/%2e%2e/a", "[x]:a/b", "://", "git@[::1:a/b]:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		l, err := locate(raw)
		if err != nil {
			return
		}
		if !Same(raw, raw) {
			t.Errorf("%q is not the same as itself", raw)
		}
		if strings.HasSuffix(l.path, "/") || strings.Contains("/"+l.path+"/", "/../") || l.host != strings.ToLower(l.host) {
			t.Errorf("%q: %+v", raw, l)
		}
		for _, k := range []Kind{GitHub, GitLab, Gitea} {
			e, err := endpointOf(k, l, "")
			if err == nil && strings.ContainsAny(e.project, " ?#") {
				t.Errorf("%q: project %q", raw, e.project)
			}
		}
	})
}
