package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

func TestPrintDrift(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since := now.Add(-3 * time.Minute)
	ann := api.Actor{User: "ann", Manager: "kubectl-edit", Verb: "patch"}
	r := syncer.DriftReport{
		Applied: strings.Repeat("a1", 20), WriteBack: "not allowed",
		Objects: []syncer.DriftedObject{
			{Kind: "Deployment", Namespace: "default", Name: "web", Path: "web.yaml", Line: 1, By: ann, Since: since, Why: "drift: report", Fields: []syncer.DriftedField{
				{Field: "spec.replicas", Declared: json.RawMessage("3"), Live: json.RawMessage("5"), By: ann, Since: since},
				{Field: "spec.paused", Live: json.RawMessage("true"), By: api.Actor{User: "bob"}, Since: now},
			}},
			{Kind: "Namespace", Name: "shop", Path: "ns.yaml", Line: 4, By: ann, Since: since, Deleted: true, Healed: &now, HealedBy: "Headway"},
			{Kind: "Secret", Namespace: "default", Name: "s", Path: "s.yaml", Line: 1, Since: since, Healed: &now, HealedBy: "ann (kubectl-edit)", Fight: true, Fields: []syncer.DriftedField{{Field: "data.k", Hidden: true, Since: since}}},
		},
		Runtime: []syncer.RuntimeDrift{{What: "killed", Object: "Pod default/web-1-x", Container: "web", Node: "n1", Time: since, Message: "ended by signal 9"},
			{What: "foreign", Object: "Node n1", Node: "n1", Time: since, Message: "container toy belongs to no pod"}},
	}
	var b strings.Builder
	if err := printDrift(&b, r, now); err != nil {
		t.Fatal(err)
	}
	want := `1 of the declared objects differ from commit a1a1a1a1a1.
The live ref does not reach the forge: not allowed

OBJECT                  DECLARED AT  DECLARED → LIVE          BY                  SINCE  STATE
Deployment default/web  web.yaml:1   spec.replicas 3 → 5      ann (kubectl-edit)  3m     live: drift: report
Deployment default/web  web.yaml:1   spec.paused none → true  bob                 0s     live: drift: report
Namespace shop          ns.yaml:4    deleted                  ann (kubectl-edit)  3m     healed
Secret default/s        s.yaml:1     data.k differs           unknown             3m     healed by ann (kubectl-edit) (set again each time that it is put back)

On the nodes:
  Pod default/web-1-x, container web, on n1, 3m ago: ended by signal 9
  Node n1, 3m ago: container toy belongs to no pod
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	b.Reset()
	if err := printDrift(&b, syncer.DriftReport{Applied: strings.Repeat("a1", 20)}, now); err != nil || b.String() != "Every declared object is as commit a1a1a1a1a1 says.\n" {
		t.Errorf("%q %v", b.String(), err)
	}
}

func TestPrintDiff(t *testing.T) {
	var b strings.Builder
	printDiff(&b, syncer.Comparison{From: strings.Repeat("a1", 20), To: "live", Changes: []syncer.Change{
		{Verb: "create", Kind: "ConfigMap", Namespace: "default", Name: "c", Path: "c.yaml", Line: 1},
		{Verb: "update", Kind: "Deployment", Namespace: "default", Name: "web", Path: "web.yaml", Line: 1, Fields: []syncer.FieldChange{{Field: "spec.replicas", Old: json.RawMessage("3"), New: json.RawMessage("5")}}},
		{Verb: "delete", Kind: "Namespace", Name: "shop"},
	}})
	if got, want := b.String(), "+ ConfigMap default/c (c.yaml:1)\n~ Deployment default/web (web.yaml:1)\n    spec.replicas 3 → 5\n- Namespace shop\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	b.Reset()
	printDiff(&b, syncer.Comparison{From: strings.Repeat("a1", 20), To: "live"})
	if got, want := b.String(), "No object differs between a1a1a1a1a1 and live.\n"; got != want {
		t.Errorf("%q", got)
	}
}

func TestPrintBlame(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var b strings.Builder
	err := printBlame(&b, syncer.Blame{Asked: "Pod default/web-1-x", Kind: "Deployment", Namespace: "default", Name: "web", Path: "web.yaml", Line: 1, Fields: []syncer.BlamedField{
		{Field: "spec.replicas", Value: json.RawMessage("3"), Path: "web.yaml", Line: 5, Commit: strings.Repeat("b2", 20), Author: "Ann <ann@example.org>", Date: at},
		{Field: "data.k", Path: "web.yaml", Line: 6, Commit: strings.Repeat("b2", 20), Author: "Ann <ann@example.org>", Date: at},
	}})
	want := `Pod default/web-1-x was made from Deployment default/web, declared in web.yaml:1

FIELD          VALUE        LINE        COMMIT      AUTHOR  DATE
spec.replicas  3            web.yaml:5  b2b2b2b2b2  Ann     2026-01-02 03:04:05
data.k         (not shown)  web.yaml:6  b2b2b2b2b2  Ann     2026-01-02 03:04:05
`
	if got := b.String(); err != nil || got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBlamedArgument(t *testing.T) {
	for _, c := range [][4]string{
		{"deployment/web", "", "deployment/web", ""},
		{"deployment/web:spec.replicas", "shop", "deployment/shop/web", "spec.replicas"},
		{"deployment/a/web:x", "shop", "deployment/a/web", "x"},
	} {
		if object, field := blamed(c[0], c[1]); object != c[2] || field != c[3] {
			t.Errorf("%v: %s %s", c, object, field)
		}
	}
}
