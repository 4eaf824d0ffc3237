package main

import (
	"strings"
	"testing"

	"headway.dev/headway/syncer"
)

func TestSettled(t *testing.T) {
	const old, head = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	cases := []struct {
		name   string
		report syncer.Report
		commit string
		done   bool
		failed bool
	}{
		{"healthy", syncer.Report{Head: head, Applied: head, State: syncer.Healthy}, "", true, false},
		{"on the way", syncer.Report{Head: head, Applied: old, State: syncer.Progressing}, "", false, false},
		{"failed", syncer.Report{Head: head, Applied: head, State: syncer.Failed, Reason: "x"}, "", true, true},
		{"the commit asked for is applied", syncer.Report{Head: head, Applied: head, State: syncer.Healthy}, head[:10], true, false},
		{"the commit asked for has not been seen", syncer.Report{Head: old, Applied: old, State: syncer.Healthy}, head, false, false},
		{"the commit asked for is refused", syncer.Report{Head: head, Applied: old, Refused: head, State: syncer.Failed, Reason: "bad"}, head, true, true},
		{"another commit is refused", syncer.Report{Head: head, Applied: old, Refused: head, State: syncer.Failed, Reason: "bad"}, old, true, true},
		{"nothing yet", syncer.Report{State: syncer.Progressing}, "", false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			done, err := settled(c.report, c.commit)
			if done != c.done || (err != nil) != c.failed {
				t.Errorf("settled = %v, %v", done, err)
			}
		})
	}
}

func TestVerdictExitCodes(t *testing.T) {
	code := func(r syncer.Report, wait bool, commit ...string) int {
		err := verdict(r, strings.Join(commit, ""), wait)
		if err == nil {
			return 0
		}
		return err.(*statusError).code
	}
	if got := code(syncer.Report{State: syncer.Healthy}, true); got != 0 {
		t.Errorf("healthy: %d", got)
	}
	if got := code(syncer.Report{State: syncer.Failed, Reason: "x"}, false); got != 1 {
		t.Errorf("failed: %d", got)
	}
	if got := code(syncer.Report{State: syncer.Progressing}, true); got != 2 {
		t.Errorf("waited in vain: %d", got)
	}
	if got := code(syncer.Report{State: syncer.Progressing}, false); got != 0 {
		t.Errorf("only looked: %d", got)
	}
	applied := strings.Repeat("1", 40)
	if got := code(syncer.Report{State: syncer.Healthy, Head: applied, Applied: applied}, false, "1111111"); got != 0 {
		t.Errorf("asked for the applied commit: %d", got)
	}
	for _, wait := range []bool{false, true} {
		r := syncer.Report{State: syncer.Healthy, Head: applied, Applied: applied}
		if got := code(r, wait, "2222222"); got != 2 {
			t.Errorf("asked for another commit: %d", got)
		}
		if err := verdict(r, "2222222", wait); !strings.Contains(err.Error(), "commit 2222222 is neither") {
			t.Error(err)
		}
	}
	if got := code(syncer.Report{State: syncer.Progressing, Head: applied}, false, applied); got != 2 {
		t.Errorf("asked for a commit on its way: %d", got)
	}
}

func TestPrintStatusNamesTheProblems(t *testing.T) {
	var out strings.Builder
	r := syncer.Report{Ref: "refs/heads/main", Head: strings.Repeat("2", 40), State: syncer.Failed, Reason: "refused",
		WriteBack: "the token is read only", CommitStatus: "answer 403",
		Problems: []string{"a.yaml:3: spec: bad"}, Objects: []syncer.ObjectReport{{Kind: "ConfigMap", Namespace: "default", Name: "a", Path: "a.yaml", Line: 1, Commit: strings.Repeat("1", 40), State: syncer.Healthy}}}
	if err := printStatus(&out, r, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hosted here", "none yet", "the live ref and the notes do not reach it: the token is read only", "commit statuses do not reach it: answer 403", "a.yaml:3: spec: bad", "ConfigMap default/a", "a.yaml:1", "1111111111"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, out.String())
		}
	}
}
