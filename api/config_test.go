package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
)

const configHead = "apiVersion: headway.dev/v1\nkind: Config\n"

func decodeConfig(t *testing.T, text string) api.Config {
	t.Helper()
	c, problems := api.DecodeConfig(".headway.yaml", []byte(text))
	for _, p := range problems {
		t.Error(p)
	}
	return c
}

func TestConfigDefaults(t *testing.T) {
	c := decodeConfig(t, configHead)
	if got, want := string(encode(t, c)), string(encode(t, api.DefaultConfig())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := c.DriftAt("a/b.yaml"); got != api.DriftHeal {
		t.Errorf("drift %s", got)
	}
	c = decodeConfig(t, configHead+"deletionLimit: {percent: 50}\n")
	if c.DeletionLimit != (api.DeletionLimit{Objects: 10, Percent: 50}) {
		t.Errorf("a bound that is left out has its default: %+v", c.DeletionLimit)
	}
}

func TestConfigReadsEverything(t *testing.T) {
	c := decodeConfig(t, configHead+`
drift: report
defaultNamespace: web
ignore: ["*.bak", /docs/]
deletionLimit: {objects: 0, percent: 100}
allowedSigners: {ssh: ./.headway/signers, openpgp: keys.asc}
pollInterval: 1m
paths:
- {path: ./base/, drift: heal}
- {path: base/db, defaultNamespace: db, ignore: [scratch]}
- {path: base/lab, drift: report}
sources:
- name: team-a
  repository: https://git.example.org/team-a.git
  ref: release
  path: deploy/
  namespaces: [team-a, team-a-test]
  pollInterval: 5m
- {name: team-b, repository: "git@git.example.org:b.git", namespaces: ["*"]}
- {name: tags, repository: ssh://git@git.example.org:22/c, ref: refs/tags/v1, namespaces: [c]}
- {name: local, repository: /srv/d.git, namespaces: [d]}
`)
	if c.Drift != api.DriftReport || c.DefaultNamespace != "web" || c.DeletionLimit != (api.DeletionLimit{Percent: 100}) || c.PollInterval.Duration != time.Minute {
		t.Errorf("settings %+v", c)
	}
	if c.AllowedSigners != (api.AllowedSigners{SSH: ".headway/signers", OpenPGP: "keys.asc"}) {
		t.Errorf("signers %+v", c.AllowedSigners)
	}
	every := func(d time.Duration) *api.Duration { return &api.Duration{Duration: d} }
	want := []api.SourceConfig{
		{Name: "team-a", Repository: "https://git.example.org/team-a.git", Ref: "refs/heads/release", Path: "deploy", Namespaces: []string{"team-a", "team-a-test"}, PollInterval: every(5 * time.Minute)},
		{Name: "team-b", Repository: "git@git.example.org:b.git", Ref: "refs/heads/main", Namespaces: []string{"*"}, PollInterval: every(time.Minute)},
		{Name: "tags", Repository: "ssh://git@git.example.org:22/c", Ref: "refs/tags/v1", Namespaces: []string{"c"}, PollInterval: every(time.Minute)},
		{Name: "local", Repository: "/srv/d.git", Ref: "refs/heads/main", Namespaces: []string{"d"}, PollInterval: every(time.Minute)},
	}
	if !reflect.DeepEqual(c.Sources, want) {
		t.Errorf("sources\n got %+v\nwant %+v", c.Sources, want)
	}
	for file, want := range map[string]api.Drift{
		"a.yaml": api.DriftReport, "base/a.yaml": api.DriftHeal, "base/db/x/a.yaml": api.DriftHeal, "base/lab/a.yaml": api.DriftReport, "baseline/a.yaml": api.DriftReport,
	} {
		if got := c.DriftAt(file); got != want {
			t.Errorf("DriftAt(%s) = %s, want %s", file, got, want)
		}
	}
	if !slices.Equal(c.Ignore, []string{"*.bak", "/docs/"}) || c.Paths[0].Path != "base" || !slices.Equal(c.Paths[1].Ignore, []string{"scratch"}) {
		t.Errorf("patterns %v, paths %v", c.Ignore, c.Paths)
	}
	if s := c.Sources[0].Spec(); !s.WritesTo("team-a") || s.WritesTo("other") || s.WritesTo("") {
		t.Error("team-a may write elsewhere")
	}
	if s := c.Sources[1].Spec(); !s.WritesTo("team-a") || !s.WritesTo("") {
		t.Error("team-b may not write everywhere")
	}
}

// TestConfigBelowTheRoot: a source's root may be a folder of the repository.
func TestConfigBelowTheRoot(t *testing.T) {
	c, problems := api.DecodeConfig("clusters/a/.headway.yaml", []byte(configHead+"paths: [{path: db, drift: report}]\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for file, want := range map[string]api.Drift{"clusters/a/x.yaml": api.DriftHeal, "clusters/a/db/x.yaml": api.DriftReport, "db/x.yaml": api.DriftHeal} {
		if got := c.DriftAt(file); got != want {
			t.Errorf("%s: drift %s, want %s", file, got, want)
		}
	}
}

func TestR2_EveryProblemOfAConfigIsNamed(t *testing.T) {
	_, problems := api.DecodeConfig(".headway.yaml", []byte(`apiVersion: headway.dev/v2
kind: Confg
metadata: {name: a}
drift: fix
drift: heal
defaultNamespace: Web
ignores: [a]
ignore: ["", "a[", "ok", 7]
deletionLimit:
  objects: -1
  percent: 101
allowedSigners: {ssh: /etc/signers, openpgp: ../keys}
pollInterval: 100ms
paths:
- {drift: never}
- {path: a, defaultNamespace: A}
- {path: ./a/}
sources:
- {}
- name: main
  repository: ftp://example.org/x
  ref: a..b
  path: ../x
  namespaces: ["*", a]
- name: b
  repository: example.org/x
  ref: headway/main/live
  namespaces: [B, c, c]
  pollInterval: 25h
- {name: b, repository: "http://example.org/x", ref: HEAD, namespaces: [], pollInterval: 10}
`))
	const label = "a lowercase RFC 1123 label must consist of"
	want := []string{
		"1: apiVersion: must be headway.dev/v1",
		"2: kind: must be Config",
		"3: metadata: unknown field",
		"5: drift: key already set in line 4",
		"6: defaultNamespace: " + label,
		`7: ignores: unknown field: did you mean "ignore"?`,
		"8: ignore[3]: must be a string, not a number: put it in quotes",
		"10: deletionLimit.objects: must be 0 or more",
		"11: deletionLimit.percent: must be from 0 to 100",
		"12: allowedSigners.ssh: starts at the repository's root: leave the leading / out",
		`12: allowedSigners.openpgp: must not hold ".."`,
		"13: pollInterval: must be from 1s to 24h0m0s",
		"15: paths[0].path: must name a folder or a file below the source's root",
		"15: paths[0].drift: must be heal or report",
		"16: paths[1].defaultNamespace: " + label,
		`17: paths[2].path: "a" is named already by paths[1]`,
		"30: sources[3].pollInterval: must be a length of time such as 10s or 5m",
	}
	compare(t, problems, want)

	_, problems = api.DecodeConfig(".headway.yaml", []byte(configHead+`ignore: ["", "a[", "ok", "#x", "a\\", "!/ ", "[]a]", "[![:alpha:]x]", "\\[", "[a\\]"]
sources:
- {}
- name: main
  repository: ftp://example.org/x
  ref: a..b
  path: ../x
  namespaces: ["*", a]
- name: b
  repository: example.org/x
  ref: headway/main/live
  namespaces: [B, c, c]
  pollInterval: 25h
- {name: b, repository: "http://example.org/x", ref: HEAD, namespaces: []}
- {name: A, repository: "https://example.org", ref: refs/heads/x.lock, namespaces: [a], pollInterval: 0s}
`))
	compare(t, problems, []string{
		"3: ignore[0]: is empty",
		"3: ignore[1]: has a bracket that is not closed",
		`3: ignore[3]: is a comment to git`,
		"3: ignore[4]: ends with a backslash",
		"3: ignore[5]: is empty",
		"3: ignore[9]: has a bracket that is not closed",
		"5: sources[0].name: missing: every source has a name of its own",
		"5: sources[0].repository: missing: name the repository by an https or ssh URL",
		"5: sources[0].namespaces: missing: name the namespaces",
		`6: sources[1].name: "main" is the source that this file stands in`,
		"7: sources[1].repository: must be https or ssh",
		"8: sources[1].ref: must be a branch such as main, or a full ref such as refs/tags/v1",
		`9: sources[1].path: must not hold ".."`,
		`10: sources[1].namespaces[0]: "*" means every namespace: write it alone`,
		"12: sources[2].repository: must be an https or ssh URL, user@host:path, or an absolute path",
		"13: sources[2].ref: is written by Headway itself and cannot be followed",
		"14: sources[2].namespaces[0]: " + label,
		"14: sources[2].namespaces[2]: is named already by sources[2].namespaces[1]",
		"15: sources[2].pollInterval: must be from 1s to 24h0m0s",
		`16: sources[3].name: "b" is the name of sources[2] already`,
		"16: sources[3].repository: must be https or ssh: over http",
		"16: sources[3].ref: must name a branch or a tag",
		"16: sources[3].namespaces: missing",
		"17: sources[4].name: " + label,
		"17: sources[4].repository: names no repository on the host",
		"17: sources[4].ref: must be a branch",
		"17: sources[4].pollInterval: must be from 1s to 24h0m0s",
	})
}

// TestConfigPatternsThatNeverMatch: git would pass over them in silence.
func TestConfigPatternsThatNeverMatch(t *testing.T) {
	for pattern, want := range map[string]string{
		"[z-a]": "has a range whose end comes before", "x[b-bz-y]": "has a range whose end", "[é-e]": "has a range whose end", `[a-\]]`: "has a range whose end",
		"[[:foo:]]": "has a class of characters that git does not know: it knows alnum,", "[[::]]": "has a class", "[[:a]": `has "[:" without`, "[a-[:digit:]]": "has a range that ends with a class",
		"[/]": "has a bracket that matches nothing but a slash", "[--/]": "has a range that starts or ends with a slash", "[a-": "has a bracket that is not closed", `a\/`: "ends with a backslash", `[\`: "has a bracket that is not closed", "!a[": "has a bracket",
		"[a-z]": "", "[z-z]": "", "[é-ü]x": "", "[[:alpha:]-z]": "", "[a-c-e]": "", "[--a]": "", "[a-]": "", "[-a]": "", "[!/]": "", `[\a-\z]`: "", "[]-a]": "", "[!]]": "", "[[:punct:][:digit:]]": "", `a\ `: "", `\/a`: "",
	} {
		_, problems := api.DecodeConfig(".headway.yaml", []byte(configHead+"ignore: ["+quoted(pattern)+"]\n"))
		if want == "" {
			compare(t, problems, nil)
		} else {
			compare(t, problems, []string{"3: ignore[0]: " + want})
		}
	}
}

// compare holds problems against "line: field: start of the reason".
func compare(t *testing.T, problems []api.Problem, want []string) {
	t.Helper()
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d: %s: %s", p.Line, p.Field, p.Reason))
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestConfigIsOneDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "0: : the file says nothing: write apiVersion: headway.dev/v1 and kind: Config",
		"# nothing\n---\n":                "0: : the file says nothing",
		"null":                            "0: : the file says nothing",
		"- a":                             "1: : must be a map with apiVersion, kind and settings, not a list",
		"drift: heal":                     "1: apiVersion: must be headway.dev/v1",
		configHead + "drift: [":           "3: : cannot be read",
		configHead + "---\n" + configHead: "4: : the file holds one document, and this is another: remove it",
		strings.Repeat("#", api.MaxConfigBytes+1):                    "0: : the file has 1048577 bytes; at most 1048576 can be read",
		configHead + "ignore: [" + strings.Repeat("a, ", 1001) + "]": "3: ignore: holds 1001 entries; at most 1000 can be read",
		configHead + "ignore: [" + strings.Repeat("a", 1001) + "]":   "3: ignore[0]: is too long",
		configHead + "ignore: [" + strings.Repeat("a, ", 600) + "]\npaths: [{path: x, ignore: [" + strings.Repeat("a, ", 400) + "]}, {path: b, ignore: [a]}, {path: c, ignore: [a]}]": "4: paths[1].ignore: brings the patterns of this file to more than 1000, all lists taken together",
		configHead + "paths: [" + strings.Repeat("{path: a}, ", 1001) + "]":   "3: paths: holds 1001 entries",
		configHead + "sources: [" + strings.Repeat("{name: a}, ", 1001) + "]": "3: sources: holds 1001 entries",
	} {
		_, problems := api.DecodeConfig(".headway.yaml", []byte(text))
		if len(problems) == 0 || !strings.HasPrefix(fmt.Sprintf("%d: %s: %s", problems[0].Line, problems[0].Field, problems[0].Reason), want) {
			t.Errorf("%.60q\n got %v\nwant %s", text, problems, want)
		}
	}
}

// TestConfigElsewhereIsRefused: the kind stands in one file only.
func TestConfigElsewhereIsRefused(t *testing.T) {
	_, problems := decode(configHead + "drift: heal\n")
	if len(problems) != 1 || problems[0].Line != 2 || problems[0].Field != "kind" || !strings.Contains(problems[0].Reason, "Config stands in the file .headway.yaml at the source's root and nowhere else") {
		t.Errorf("got %v", problems)
	}
	for _, c := range []struct{ root, file, want string }{
		{"", ".headway.yaml", ""},
		{"", "a/headway.yaml", ""},
		{"", "a.yaml", ""},
		{"deploy", "deploy/.headway.yaml", ""},
		{"/deploy/", "deploy/.headway.yaml", ""},
		{"deploy", "other/.headway.yaml", ""},
		{"deploy", "deployed/.headway.yaml", ""},
		{"", "a/b/.headway.yaml", "write this in .headway.yaml, below paths, with path: a/b"},
		{"deploy", "deploy/a/.headway.yaml", "write this in deploy/.headway.yaml, below paths, with path: a"},
		{"deploy/a", ".headway.yaml", "move the configuration to deploy/a/.headway.yaml"},
		{"deploy/a", "deploy/.headway.yaml", "move the configuration to deploy/a/.headway.yaml"},
		{"", ".headway.yml", "rename the file"},
		{"deploy", "deploy/headway.yaml", "rename the file"},
		{"deploy", "headway.yaml", ""},
	} {
		p, misplaced := api.MisplacedConfig(c.root, c.file)
		if misplaced != (c.want != "") || !strings.HasSuffix(p.Reason, c.want) || misplaced && p.Path != c.file {
			t.Errorf("%s in %q: %v, want %q", c.file, c.root, p, c.want)
		}
	}
}

// TestR14_NoCredentialOfAConfigIsRepeated spoils every text with one.
func TestR14_NoCredentialOfAConfigIsRepeated(t *testing.T) {
	const secret = "hunter2verysecret"
	for _, repository := range []string{
		"https://me:" + secret + "@git.example.org/a.git",
		"https://" + secret + "@git.example.org/a.git",
		"https://me:" + secret + "@git.example.org:x/%zz",
		"ssh://git:" + secret + "@git.example.org/a.git",
		"http://me:" + secret + "@git.example.org/a.git",
		"ftp://me:" + secret + "@git.example.org/a.git",
		"git:" + secret + "@git.example.org:a.git",
		"https://git.example.org/a.git?token=" + secret,
		"https://git.example.org/a.git#" + secret,
		"ext::sh -c " + secret,
		"-oProxyCommand=" + secret + ":x",
		"git@-o" + secret + ":x",
		"ssh://-o" + secret + "/x",
		"ssh://-o" + secret + "@host/x",
		secret,
	} {
		_, problems := api.DecodeConfig("f", []byte(configHead+"sources: [{name: a, namespaces: [a], repository: "+quoted(repository)+"}]"))
		if len(problems) != 1 || problems[0].Field != "sources[0].repository" {
			t.Errorf("%s: %v", repository, problems)
		}
		for _, p := range problems {
			if strings.Contains(p.String(), secret) {
				t.Errorf("the credential is told: %s", p)
			}
		}
	}
	for _, field := range []string{"ref", "path", "name", "pollInterval", "drift", "nonsense"} {
		_, problems := api.DecodeConfig("f", []byte(configHead+"drift: "+secret+"\ndefaultNamespace: "+secret+"@\nsources: [{name: a, namespaces: [@"+secret+"], repository: /a, "+field+": '../@ "+secret+"'}]\nignore: ['["+secret+"']\nallowedSigners: {ssh: ../"+secret+"}\n"))
		if len(problems) == 0 {
			t.Error("accepted")
		}
		for _, p := range problems {
			if strings.Contains(p.String(), secret) {
				t.Errorf("the credential is told: %s", p)
			}
		}
	}
}

func quoted(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// TestConfigNamesFilesThatAreThere: what a field names is missed at the field.
func TestConfigNamesFilesThatAreThere(t *testing.T) {
	c := decodeConfig(t, configHead+"allowedSigners:\n  ssh: keys/signers\n  openpgp: keys/pgp.asc\n")
	if problems := c.Missing(func(file string) bool { return file == "keys/signers" || file == "keys/pgp.asc" }); len(problems) > 0 {
		t.Error(problems)
	}
	problems := c.Missing(func(file string) bool { return file == "keys/signers" })
	if len(problems) != 1 || problems[0].String() != ".headway.yaml:5:3: allowedSigners.openpgp: no such file in the repository: the path is from its root" {
		t.Errorf("got %v", problems)
	}
	if problems := api.DefaultConfig().Missing(func(string) bool { return false }); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestDeletionLimit(t *testing.T) {
	for _, c := range []struct {
		limit             api.DeletionLimit
		deleted, declared int
		want              bool
	}{
		{api.DeletionLimit{Objects: 10, Percent: 30}, 0, 0, false},
		{api.DeletionLimit{Objects: 10, Percent: 30}, 10, 1000, false},
		{api.DeletionLimit{Objects: 10, Percent: 30}, 11, 1000, true},
		{api.DeletionLimit{Objects: 10, Percent: 30}, 3, 10, false},
		{api.DeletionLimit{Objects: 10, Percent: 30}, 4, 10, true},
		{api.DeletionLimit{Objects: 0, Percent: 100}, 1, 1000, true},
		{api.DeletionLimit{Objects: 100, Percent: 0}, 1, 1000, true},
		{api.DeletionLimit{Objects: 100, Percent: 100}, 100, 100, false},
		{api.DeletionLimit{Objects: 10, Percent: 30}, 3, 5, false}, // few may always go
		{api.DeletionLimit{Objects: 10, Percent: 30}, 4, 5, true},
		{api.DeletionLimit{Objects: 2, Percent: 30}, 3, 5, true},
		{api.DeletionLimit{Objects: 10, Percent: 30}, 3, 0, false},
	} {
		if got := c.deleted > c.limit.Most(c.declared); got != c.want {
			t.Errorf("%+v: %d of %d: %v", c.limit, c.deleted, c.declared, got)
		}
	}
}

func FuzzDecodeConfig(f *testing.F) {
	for _, seed := range []string{
		"", configHead, configHead + "drift: report\nignore: ['!a/**/b', '[!x]*', '**']\n",
		configHead + "paths: [{path: a, ignore: [b]}, {path: a/b, drift: heal}]\n",
		configHead + "sources: [{name: a, repository: 'git@h:p', ref: x, path: y, namespaces: ['*'], pollInterval: 1h}]\n",
		configHead + "sources: [{repository: 'https://a:b@c'}, {repository: 'ssh://[::1]:22/x'}]\n",
		configHead + "---\n" + configHead, "a: &a [*a]", "{\"apiVersion\": \"headway.dev/v1\", \"kind\": \"Config\"}",
		configHead + "pollInterval: 1e9\ndeletionLimit: {objects: 99999999999999999999}\n", "x: {{ y }}\n",
	} {
		f.Add([]byte(seed), "a/b.yaml")
	}
	f.Fuzz(func(t *testing.T, data []byte, file string) {
		c, problems := api.DecodeConfig(".headway.yaml", data)
		for _, p := range problems {
			if p.Path != ".headway.yaml" || p.Reason == "" || p.Line < 0 {
				t.Errorf("problem %+v", p)
			}
		}
		if len(problems) > 0 {
			return
		}
		if d := c.DriftAt(file); d != api.DriftHeal && d != api.DriftReport || c.DefaultNamespace == "" {
			t.Errorf("drift %s, namespace %q", d, c.DefaultNamespace)
		}
		for _, s := range c.Sources {
			if s.Name == "" || s.Repository == "" || !strings.HasPrefix(s.Ref, "refs/") || len(s.Namespaces) == 0 || s.PollInterval == nil {
				t.Errorf("source %+v", s)
			}
		}
		text := encode(t, c)
		if again, problems := api.DecodeConfig(".headway.yaml", text); len(problems) > 0 || !bytes.Equal(encode(t, again), text) {
			t.Errorf("does not survive being written: %v", problems)
		}
	})
}
