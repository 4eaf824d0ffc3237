package syncer

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
)

var someTime = time.Date(2026, 3, 1, 12, 30, 0, 120e6, time.UTC)

func someReceipt() api.ReceiptContent {
	return api.ReceiptContent{
		Result: api.ResultFailed, Reason: `Job default/migrate: failed: "no" #1`, Commit: strings.Repeat("ab", 20), Source: "main", Path: "deploy/prod",
		Server: "node-1/12ab34cd", Started: someTime, Applied: someTime.Add(190 * time.Millisecond), Ended: someTime.Add(4213 * time.Millisecond), Seconds: 4.213,
		Objects: 12, Created: 1, Updated: 1, Deleted: 1,
		Changes: []api.Changed{{Verb: "create", Object: "Deployment default/web"}, {Verb: "replace", Object: "Job default/migrate"}, {Verb: "delete", Object: "Namespace old"}},
		Rollout: []api.Rollout{
			{Object: "Job default/migrate", State: "Failed", Message: "failed: BackoffLimitExceeded: it's\n: - {a}, [b] & *c !d %e @f `g` | > ' \" \\ \u2028\u0085\x7f\x00é"},
			{Object: "Deployment default/web", State: "Healthy", Seconds: 3.5, Message: "3/3 ready", Images: []api.Ran{{Container: "web", Image: "nginx:1.27", Digest: "docker.io/library/nginx@sha256:" + strings.Repeat("0e", 32)}}},
		},
		MoreRuns: 3,
		Allowed:  &api.Allowed{Rewind: true, Unsigned: true, By: "admin", Why: "keys: {lost}, \"all\" of them", At: someTime},
		Problems: []string{"web.yaml:3:5: spec.replica: unknown field", "no", "1.5", "2026-03-01", "~", "", " x ", "- y", "0x10", "null"},
		Done:     []api.DoneJob{{Kind: "Job", Namespace: "default", Name: "migrate", Hash: strings.Repeat("7", 64), Outcome: "Failed", FinishedAt: someTime}},
		MoreDone: 2,
	}
}

func TestTheNotesText(t *testing.T) {
	r := someReceipt()
	r.Rollout[0].Message, r.Problems = "failed: BackoffLimitExceeded", r.Problems[:1]
	want := `headway-receipt: 1
result: Failed
reason: "Job default/migrate: failed: \"no\" #1"
commit: "abababababababababababababababababababab"
source: main
path: deploy/prod
server: node-1/12ab34cd
started: 2026-03-01T12:30:00.12Z
applied: 2026-03-01T12:30:00.31Z
ended: 2026-03-01T12:30:04.333Z
seconds: 4.213
objects: 12
created: 1
updated: 1
deleted: 1
allowed: {rewind: true, unsigned: true, by: admin, why: "keys: {lost}, \"all\" of them", at: "2026-03-01T12:30:00.12Z"}
changes:
- {verb: create, object: Deployment default/web}
- {verb: replace, object: Job default/migrate}
- {verb: delete, object: Namespace old}
rollout:
- object: Job default/migrate
  state: Failed
  message: "failed: BackoffLimitExceeded"
- object: Deployment default/web
  state: Healthy
  seconds: 3.5
  message: "3/3 ready"
  images:
  - {container: web, image: "nginx:1.27", digest: "docker.io/library/nginx@sha256:0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e"}
moreRollout: 3
problems:
- "web.yaml:3:5: spec.replica: unknown field"
done:
- {kind: Job, namespace: default, name: migrate, hash: "7777777777777777777777777777777777777777777777777777777777777777", outcome: Failed, finishedAt: "2026-03-01T12:30:00.12Z"}
moreDone: 2
`
	if got := string(NoteText(r)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What is written is read as it was, whatever is in it, and whatever people write
// around it.
func TestNoteIsRead(t *testing.T) {
	r := someReceipt()
	text := string(NoteText(r))
	for _, around := range []string{"%s", "A word of mine.\n\n%s\nlooked at by Bob:\n  fine\n", "%s\n%[1]s"} {
		got, err := ParseNote([]byte(fmt.Sprintf(around, text)))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%q: %v\ngot  %+v\nwant %+v", around, err, got, r)
		}
	}
	// Every scalar that could be taken for something else.
	for _, s := range []string{"a", "y", "Yes", "true", "null", "1", "1e3", ".5", "a: b", "a #b", "a,b", "{", "x y  z", "a\nb", "é", "=", "<<", "1:30", "-", "a ", "\t", "default/web", "0o7", "2001-01-01 00:00:00"} {
		r := api.ReceiptContent{Result: api.ResultHealthy, Reason: s, Changes: []api.Changed{{Verb: s, Object: s}}, Problems: []string{s}}
		got, err := ParseNote(NoteText(r))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%q: %v %+v", s, err, got)
		}
	}
}

func TestNoteIsNotRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "no receipt",
		"just a word\n":                        "no receipt",
		" headway-receipt: 1":                  "no receipt",
		"headway-receipt: x\n":                 "names no version",
		"headway-receipt: 2\nanything: goes\n": "version 2, written by a newer Headway",
		"headway-receipt: 1\nresult: Great\n":  `no such result as "Great"`,
		"headway-receipt: 1\n":                 "no such result",
		"headway-receipt: 1\nresult: Healthy\nresult: Failed\n":              "already set",
		"headway-receipt: 1\nresult: Healthy\nunknown: 1\n":                  "unknown field",
		"headway-receipt: 1\nresult: Healthy\nproblems: " + bomb(9) + "\n":   "excessive aliasing",
		"headway-receipt: 1\nresult: [\n":                                    "read the receipt",
		"headway-receipt: 1\nresult: Healthy\n" + strings.Repeat("#", 1<<20): "at most",
	} {
		_, err := ParseNote([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %s", text, err, want)
		}
		if (want == "no receipt") != errors.Is(err, ErrNoReceipt) {
			t.Errorf("%.80q: class of %v", text, err)
		}
	}
}

// bomb is a list that becomes 10^depth items when its aliases are followed.
func bomb(depth int) string {
	s := "[&a0 [x,x,x,x,x,x,x,x,x,x]"
	for i := 1; i <= depth; i++ {
		s += fmt.Sprintf(",&a%d [%s*a%d]", i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	return s + "]"
}

func FuzzParseNote(f *testing.F) {
	f.Add(string(NoteText(someReceipt())))
	f.Add("headway-receipt: 1\nresult: Healthy\ndone:\n- {kind: Job}\n")
	f.Add("a\n\nheadway-receipt: 1\nresult: Healthy\nstarted: 2026-01-01T00:00:00Z\nseconds: 1e300\n\nb")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseNote([]byte(text))
		if err != nil {
			return
		}
		again, err := ParseNote(NoteText(r))
		if err != nil {
			t.Fatalf("%v\n%s", err, NoteText(r))
		}
		if string(NoteText(again)) != string(NoteText(r)) {
			t.Errorf("%s\nbecomes\n%s", NoteText(r), NoteText(again))
		}
	})
}
