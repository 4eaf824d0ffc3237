package main

import (
	"bytes"
	"fmt"
	"strings"

	"headway.dev/headway/api"
)

const intro = `<!-- Written by scripts/generate from api/kindrules.go, api/podfields.go and api/kindfields.go. Change those. -->
# Kinds and fields

No manifest field is silently ignored. This is the table behind that rule, as of
this version. ` + "`headway supported`" + ` prints it, ` + "`headway supported -o json`" + ` for a program.

| verdict | of a kind | of a field |
|---|---|---|
| acted | it does what Kubernetes documents | it does what Kubernetes documents |
| stored | accepted, kept and shown; nothing acts on it, and a commit is warned | as the kind |
| harmless | | accepted; leaving it out would change nothing that matters here |
| refused | a commit with it is refused, by name | a commit that sets it is refused, by name |

A field that is in no row is refused. ` + "`[]`" + ` is each item of a list, ` + "`{}`" + ` each key of a
map that has no row of its own. A row that is refused, harmless or stored also stands
for everything below it.

A stored kind whose absence is unsafe, or whose workload would not run, is refused until
` + "`allowStored` in [.headway.yaml](configuration.md)" + ` names it: the last column says for what.
A refused kind that stands there, and a custom kind, is kept in git only.
`

// write writes the document.
func write(out *bytes.Buffer, s share) {
	out.WriteString(intro)
	fmt.Fprintf(out, `
## How much of real repositories runs

Of %d directories with workloads in 30 public repositories, %d (%s) use only pod
fields that are acted on or harmless. In %d (%s) every kind is acted on, or stored
without a risk, too: they run as they are. By kinds alone it is %d (%s). With allowStored
for each kind that needs it, the kinds of %d (%s) can be pushed.
`, s.Directories, s.PodFields, percent(s.PodFields, s.Directories), s.Complete, percent(s.Complete, s.Directories),
		s.Kinds, percent(s.Kinds, s.Directories), s.Allowed, percent(s.Allowed, s.Directories))

	out.WriteString("\n## Kinds\n\n| apiVersion | kind | verdict | allowStored | why |\n|---|---|---|---|---|\n")
	for _, r := range api.KindRules() {
		allow := ""
		if r.Allowable {
			allow = "needed"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", r.APIVersion, r.Kind, r.Verdict, allow, cell(r.Why))
	}

	out.WriteString("\n## A pod's spec\n\nIn a Pod, and in the template of every kind that makes pods.\n")
	fields(out, api.PodFieldRules())

	out.WriteString("\n## Stored kinds\n\nTheir metadata is as in every kind, their status is ignored. What is their own is stored:\n\n| kind | fields |\n|---|---|\n")
	for _, k := range api.Kinds() {
		if k.Told {
			fmt.Fprintf(out, "| %s | %s |\n", k.Kind, strings.Join(stored(k), ", "))
		}
	}

	for _, k := range api.Kinds() {
		if k.Declarable && !k.Told {
			fmt.Fprintf(out, "\n## %s\n", k.Kind)
			fields(out, api.FieldRules(k))
		}
	}
}

// stored names the fields of a stored kind that are its own.
func stored(k api.Kind) (out []string) {
	for _, r := range api.FieldRules(k) {
		if r.Verdict == api.Stored {
			out = append(out, "`"+r.Path+"`")
		}
	}
	return out
}

func fields(out *bytes.Buffer, rules []api.FieldRule) {
	out.WriteString("\n| field | verdict | why |\n|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", r.Path, r.Verdict, cell(r.Reason()))
	}
}

func percent(n, of int) string {
	if of == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(of))
}

// cell is text that can stand in a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
