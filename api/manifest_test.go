package api_test

import (
	"testing"

	"headway.dev/headway/api"
)

// TestProblemText leaves out what a problem does not know.
func TestProblemText(t *testing.T) {
	for want, p := range map[string]api.Problem{
		"a.yaml:3:5: spec.x: wrong": {Path: "a.yaml", Line: 3, Column: 5, Field: "spec.x", Reason: "wrong"},
		"a.yaml:3: wrong":           {Path: "a.yaml", Line: 3, Reason: "wrong"},
		`a\x1b.yaml: wro\nng`:       {Path: "a\x1b.yaml", Reason: "wro\nng"},
		"wrong":                     {Reason: "wrong"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
