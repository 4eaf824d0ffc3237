package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func hash(digit string) string { return strings.Repeat(digit, 40) }

func someLog() []syncer.LogEntry {
	entry := func(digit string, ago time.Duration, subject string, r *api.ReceiptContent) syncer.LogEntry {
		return syncer.LogEntry{Commit: hash(digit), Author: "Ada Lovelace <ada@example.org>", Authored: noon.Add(-ago), Subject: subject, Receipt: r}
	}
	applied := noon.Add(-time.Hour)
	with := entry("d", 3*time.Hour, "half", nil)
	with.With = hash("c")
	unread := entry("f", 72*time.Hour, "old", nil)
	unread.Unread = "version 9"
	return []syncer.LogEntry{
		entry("a", 30*time.Second, "typo\x1b[31m", &api.ReceiptContent{Result: api.ResultRefused, Reason: "2 problems", Problems: []string{"web.yaml:6:3: spec.replica: unknown field", "x"}}),
		entry("b", 5*time.Minute, "break it", &api.ReceiptContent{Result: api.ResultFailed, Reason: "Job default/a: failed", Applied: applied, Seconds: 12.345}),
		entry("c", 2*time.Hour, "feature", &api.ReceiptContent{Result: api.ResultHealthy, Commit: hash("c"), Applied: applied, Seconds: 4.2}),
		with,
		entry("e", 47*time.Hour, "before", nil),
		unread,
	}
}

func TestPrintLog(t *testing.T) {
	var out bytes.Buffer
	if err := printLog(&out, someLog(), noon, "", false); err != nil {
		t.Fatal(err)
	}
	want := `COMMIT      AGE  AUTHOR        RESULT           TOOK   SUBJECT
aaaaaaaaaa  30s  Ada Lovelace  Refused                 typo\x1b[31m: web.yaml:6:3: spec.replica: unknown field
bbbbbbbbbb  5m   Ada Lovelace  Failed           12.3s  break it: Job default/a: failed
cccccccccc  2h   Ada Lovelace  Healthy          4.2s   feature
dddddddddd  3h   Ada Lovelace  with cccccccccc         half
eeeeeeeeee  47h  Ada Lovelace  -                       before
ffffffffff  3d   Ada Lovelace  ?                       old: its note cannot be read: version 9
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := printLog(&out, someLog()[2:4], noon, "", true); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"commit " + hash("c") + "\n", "    feature\n", "    headway-receipt: 1\n", "    seconds: 4.2\n", "    applied with commit " + hash("c") + "\n"} {
		if !strings.Contains(out.String(), w) {
			t.Errorf("no %q in\n%s", w, out.String())
		}
	}
	out.Reset()
	var none []syncer.LogEntry
	if err := printLog(&out, nil, noon, "json", false); err != nil || json.Unmarshal(out.Bytes(), &none) != nil || none == nil {
		t.Errorf("%v %q", err, out.String())
	}
	out.Reset()
	if err := printLog(&out, nil, noon, "", false); err != nil || out.String() != "no commit yet\n" {
		t.Errorf("%v %q", err, out.String())
	}
}

func TestPrintThen(t *testing.T) {
	then := syncer.Then{
		Commit: hash("a"), Author: "Ada <a@b>", Subject: "feature",
		Receipt: &api.ReceiptContent{Result: api.ResultHealthy, Applied: noon, Server: "node-1"},
		Objects: []syncer.ThenObject{
			{Object: "ConfigMap default/a", Path: "a.yaml", Line: 1},
			{Object: "Deployment default/web", Path: "web.yaml", Line: 3, State: "Healthy", Images: []api.Ran{
				{Container: "log", Image: "log:1", Digest: "log@sha256:bb"}, {Container: "web", Image: "web:1", Digest: "web@sha256:aa"}}},
		},
	}
	var out bytes.Buffer
	if err := printThen(&out, then, ""); err != nil {
		t.Fatal(err)
	}
	want := `commit   ` + hash("a") + `
author   Ada <a@b>
subject  feature
applied  ` + noon.Local().Format(time.DateTime) + ` by node-1
result   Healthy

OBJECT                  DECLARED AT  STATE    RAN
ConfigMap default/a     a.yaml:1              
Deployment default/web  web.yaml:3   Healthy  log: log:1 = log@sha256:bb
                                              web: web:1 = web@sha256:aa
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestAtQuery(t *testing.T) {
	now := noon.In(time.FixedZone("CET", 3600))
	for text, want := range map[string]string{
		"3f2a1c9":                   "commit=3f2a1c9",
		hash("a"):                   "commit=" + hash("a"),
		"2026-03-01T11:00:00Z":      "time=2026-03-01T11:00:00Z",
		"2026-03-01T11:00:00+02:00": "time=2026-03-01T09:00:00Z",
		"2026-03-01 12:30":          "time=2026-03-01T11:30:00Z",
		"2026-03-01 12:30:05":       "time=2026-03-01T11:30:05Z",
		"2026-03-01":                "time=2026-02-28T23:00:00Z",
		"2h ago":                    "time=2026-03-01T10:00:00Z",
		"1h30m ago":                 "time=2026-03-01T10:30:00Z",
		"3d ago":                    "time=2026-02-26T12:00:00Z",
		"3f2a1":                     "commit=3f2a1",
		"-2h ago":                   "neither a commit",
		"HEAD~1":                    "commit=HEAD~1",
		"team/a^2":                  "commit=team%2Fa%5E2",
		"12:00":                     "neither a commit",
		"in a while":                "neither a commit",
		"":                          "neither a commit",
		"2027-01-01":                "in the future",
	} {
		got, err := atQuery(text, now)
		said := strings.NewReplacer("%3A", ":").Replace(got.Encode())
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%q: %s, want %s", text, said, want)
		}
	}
}

func TestForgeFlags(t *testing.T) {
	for _, try := range []struct {
		url  string
		f    forgeConfig
		want string
	}{
		{"", forgeConfig{}, ""},
		{"https://x/a/b", forgeConfig{token: "t", secret: "s", kind: "Forgejo", api: "https://x"}, ""},
		{"", forgeConfig{token: "t"}, "--forge-token is for --repo"},
		{"", forgeConfig{secret: "t"}, ""}, // a further source may be on a forge
		{"", forgeConfig{kind: "github"}, "--forge is for --repo"},
		{"", forgeConfig{api: "https://x"}, "--forge-api is for --repo"},
		{"https://x/a/b", forgeConfig{kind: "bitbucket", token: "t"}, `--forge: no such forge as "bitbucket"`},
		{"https://x/a/b", forgeConfig{kind: "github"}, "give --forge-token too"},
	} {
		err := try.f.check(try.url)
		if try.want == "" && err != nil || try.want != "" && (err == nil || !strings.Contains(err.Error(), try.want)) {
			t.Errorf("%+v: %v", try, err)
		}
	}
}
