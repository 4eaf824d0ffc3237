package forge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func testdata(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func eventOf(k Kind, content string) (Event, error) {
	p, err := decode(k, strings.NewReader(content))
	if err != nil {
		return Event{}, err
	}
	return p.event(k)
}

func TestPayloads(t *testing.T) {
	for _, c := range []struct {
		file string
		want Event
	}{
		{"github-push.json", Event{GitHub, []string{"https://github.com/Acme/Shop.git", "git@github.com:Acme/Shop.git", "https://github.com/Acme/Shop"}, "refs/heads/main", aCommit}},
		{"gitlab-push.json", Event{GitLab, []string{"https://gitlab.acme.example/team/sub/shop.git", "ssh://git@gitlab.acme.example:2222/team/sub/shop.git", "https://gitlab.acme.example/team/sub/shop"}, "refs/heads/main", aCommit}},
		{"gitlab-tag.json", Event{GitLab, []string{"https://gitlab.acme.example/team/sub/shop.git", "ssh://git@gitlab.acme.example:2222/team/sub/shop.git", "https://gitlab.acme.example/team/sub/shop"}, "refs/tags/v1", aCommit}},
		{"gitea-push.json", Event{Gitea, []string{"https://git.acme.example/acme/shop.git", "ssh://git@git.acme.example:2222/acme/shop.git", "https://git.acme.example/acme/shop"}, "refs/heads/main", aCommit}},
	} {
		got, err := eventOf(c.want.Forge, testdata(t, c.file))
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if got.Ref != c.want.Ref || got.Commit != c.want.Commit || !slices.Equal(got.Repository, c.want.Repository) || got.Forge != c.want.Forge {
			t.Errorf("%s: %+v", c.file, got)
		}
	}
}

func TestPayloadOfADeletedRef(t *testing.T) {
	content := strings.ReplaceAll(testdata(t, "github-push.json"), aCommit, strings.Repeat("0", 40))
	e, err := eventOf(GitHub, content)
	if err != nil || e.Commit != "" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestPayloadsThatAreRefused(t *testing.T) {
	head := `{"ref":"refs/heads/main","after":"` + aCommit + `",`
	for _, c := range []struct{ content, want string }{
		{"", "ends too early"},
		{"{", "ends too early"},
		{`{"ref":"refs/heads/main"`, "ends too early"},
		{"[]", "not a JSON object"},
		{"null", "not a JSON object"},
		{"nonsense", "not JSON"},
		{`{"a":1,}`, "not JSON"},
		{"{}", "ref"},
		{"{} {}", "more than one"},
		{head + `"repository":{}}`, "no URL"},
		{head + `"repository":null}`, "no URL"},
		{head + `"repository":"https://x/a/b"}`, "no URL"},
		{head + `"repository.clone_url":"https://x/a/b"}`, "no URL"},
		{head + `"repository":{"owner":{"clone_url":"https://x/a/b"}}}`, "no URL"},
		{head + `"repository":{"clone_url":["https://x/a/b"]}}`, "clone_url of the payload is not a string"},
		{head + `"repository":{"clone_url":7}}`, "clone_url of the payload is not a string"},
		{head + `"repository":{"clone_url":"` + strings.Repeat("x", maxField+1) + `"}}`, "too long"},
		{head + `"repository":{"clone_url":"https://x/a\r\nb"}}`, "control character"},
		{head + `"deep":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`, "nested deeper"},
		{head + `"repository":{"x":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat("}", 100) + `}}`, "nested deeper"},
		{`{"ref":"main","after":"` + aCommit + `","repository":{"clone_url":"https://x/a/b"}}`, "full name of a ref"},
		{`{"ref":"refs/heads/main","after":"HEAD","repository":{"clone_url":"https://x/a/b"}}`, "name of a commit"},
	} {
		e, err := eventOf(GitHub, c.content)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s: %+v, %v; want %q", c.content, e, err, c.want)
		}
	}
}

// Numbers beyond all bounds are not ours to mind.
func TestPayloadWithAHugeNumber(t *testing.T) {
	content := strings.Replace(testdata(t, "gitea-push.json"), `"id": 7`, `"id": 1e99999`, 1)
	if _, err := eventOf(Gitea, content); err != nil {
		t.Error(err)
	}
}

func fuzzPayload(f *testing.F, k Kind, files ...string) {
	for _, name := range files {
		f.Add(testdata(f, name))
	}
	f.Add(`{"ref":"refs/heads/x","after":"","project":{"web_url":null},"repository":{"clone_url":"\ud800"}}`)
	f.Add(`{"a":{"b":{"c":[[[{}]]]}},"ref":{}}`)
	f.Fuzz(func(t *testing.T, content string) {
		e, err := eventOf(k, content)
		if err != nil {
			return
		}
		if !json.Valid([]byte(content)) {
			t.Errorf("%q is no JSON, but is %+v", content, e)
		}
		if len(e.Repository) == 0 || len(e.Repository) > 6 || !strings.HasPrefix(e.Ref, "refs/") || e.Commit != "" && !isCommit(e.Commit) {
			t.Errorf("%+v", e)
		}
		for _, s := range append(e.Repository, e.Ref) {
			if len(s) > maxField || strings.ContainsAny(s, "\r\n\x00\x1b") {
				t.Errorf("field %q", s)
			}
		}
	})
}

func FuzzGitHub(f *testing.F) { fuzzPayload(f, GitHub, "github-push.json", "github-ping.json") }
func FuzzGitLab(f *testing.F) { fuzzPayload(f, GitLab, "gitlab-push.json", "gitlab-tag.json") }
func FuzzGitea(f *testing.F)  { fuzzPayload(f, Gitea, "gitea-push.json") }
