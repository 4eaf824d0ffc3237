package syncer

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"pgregory.net/rapid"
)

// TestRulesAreDocumented keeps docs/judging.md to the table.
func TestRulesAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../docs/judging.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| rule | severity | why |\n|---|---|---|\n")
	for _, r := range Rules() {
		fmt.Fprintf(&want, "| %s | %s | %s |\n", r.Name, r.Severity, r.Why)
	}
	if !strings.Contains(string(data), want.String()) {
		t.Errorf("docs/judging.md does not have this table:\n%s", want.String())
	}
}

// drawCommit draws files of which some refer to each other, some are wrong, and
// some change what cannot be changed.
func drawCommit(t *rapid.T, label string) (files map[string]string, trailers []string) {
	files = drawFiles(t, label)
	more := map[string][]string{
		"reads.yaml": {
			edit(app, "web}", "reads}") + "        envFrom: [{configMapRef: {name: a}}]\n",
			edit(app, "web}", "reads}") + "        envFrom: [{configMapRef: {name: b2}}, {secretRef: {name: s, optional: true}}]\n",
			edit(app, "web}", "reads}", "app: ", "app: other-"),
		},
		"wrong.yaml": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: w}\nnope: 1\n", configMap("a", "9"), "a: [\n", edit(configMap("lost", "1"), "{name", "{namespace: lost, name")},
		"cron.yaml":  {cron, edit(cron, "tick:1", "tick:2")},
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		least := -1
		if name == "wrong.yaml" {
			least = -12 // seldom
		}
		if i := rapid.IntRange(least, len(more[name])-1).Draw(t, label+" "+name); i >= 0 {
			files[name] = more[name][i]
		}
	}
	return files, rapid.SliceOfN(rapid.SampledFrom([]string{"Allow-Delete: all", "Allow-Delete: 5", "Allow-Delete: Namespace/ns1", "Replace: Deployment/default/reads", "Allow-Delete: nonsense"}), 0, 2).Draw(t, label+" trailers")
}

// Judging changes nothing; its counts are what applying then does; what it accepts
// is applied, whole and as it said, and what it refuses changes nothing (R2).
func TestR2_AVerdictIsWhatHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, func(c *Config) { c.Log = nil })
		parent := ""
		for i := range 4 {
			name := fmt.Sprintf("c%d", i)
			files, trailers := drawCommit(rt, name)
			commit := w.repo.say(w.repo.add(name, parent, files), trailers...)
			if i == 0 {
				w.s.Step(t.Context()) // the Source is there
			}
			w.settle()
			before, revision, kept := w.versions(), w.st.Revision(), fmt.Sprint(w.repo.kept)
			v, err := w.s.Judge(t.Context(), Candidate{Commit: commit})
			if err != nil {
				rt.Fatal(err)
			}
			preview := v.Preview()
			if rapid.Bool().Draw(rt, "forget") {
				w.s.ledger.forget()
			}
			again, err := w.s.Judge(t.Context(), Candidate{Commit: commit})
			if err != nil || strings.Join(again.Lines(), "\n") != strings.Join(v.Lines(), "\n") || fmt.Sprint(again.Preview().Changes) != fmt.Sprint(preview.Changes) {
				rt.Fatalf("judged again it is another verdict: %v\n%v\n%v", err, v.Lines(), again.Lines())
			}
			if w.st.Revision() != revision || !maps.Equal(w.versions(), before) || fmt.Sprint(w.repo.kept) != kept {
				rt.Fatal("judging changed something")
			}
			checkCounts(rt, v, preview, before)
			w.push(commit)
			w.finish()
			after, st := w.versions(), w.status()
			if !v.OK() {
				if st.Refused != commit || !maps.Equal(after, before) {
					rt.Fatalf("refused by the judge, and then %+v", st)
				}
				continue
			}
			if st.Applied != commit || st.Message != "" {
				rt.Fatalf("accepted by the judge, and then %+v", st)
			}
			checkApplied(rt, v, preview, before, after)
			parent = name
		}
	})
}

// versions are the objects that can be declared, with uid and version.
func (w *world) versions() map[string]string {
	out := map[string]string{}
	for _, k := range api.Kinds() {
		if !k.Declarable {
			continue
		}
		for _, obj := range w.st.List(k.GroupResource(), "") {
			out[store.KeyOf(obj).String()] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
		}
	}
	return out
}

// checkCounts compares the counts with the steps.
func checkCounts(t *rapid.T, v *Verdict, p Preview, live map[string]string) {
	verbs := map[string]int{}
	seen := map[string]bool{}
	for _, c := range p.Changes {
		verbs[c.Verb]++
		if seen[c.Title()] {
			t.Fatalf("%s stands twice in the plan", c.Title())
		}
		seen[c.Title()] = true
	}
	if verbs["create"] != v.Create || verbs["update"]+verbs["replace"] != v.Update || verbs["delete"] != v.Delete {
		t.Fatalf("counts %d %d %d, changes %v", v.Create, v.Update, v.Delete, verbs)
	}
	for _, s := range v.steps {
		if s.Verb != Record && !seen[titleOf(s.Key)] {
			t.Fatalf("step %s %s is not in the plan", s.Verb, s.Key)
		}
		if _, is := live[s.Key.String()]; is != (s.Live != nil) && s.Verb != Record {
			t.Fatalf("step %s %s: live is %v", s.Verb, s.Key, s.Live != nil)
		}
	}
	if !slices.IsSortedFunc(v.Problems, compareProblems) || !slices.IsSortedFunc(v.Warnings, compareProblems) {
		t.Fatal("not sorted")
	}
}

// checkApplied compares what happened with what was said.
func checkApplied(t *rapid.T, v *Verdict, p Preview, before, after map[string]string) {
	said := map[string]string{}
	for _, sh := range shifts(v.steps) {
		said[sh.step.Key.String()] = string(sh.verb)
	}
	for key := range maps.Keys(union(before, after)) {
		was, old := before[key]
		is, now := after[key]
		uidWas, _, _ := strings.Cut(was, " ")
		uidIs, _, _ := strings.Cut(is, " ")
		did := ""
		switch {
		case !old:
			did = "create"
		case !now:
			did = "delete"
		case uidWas != uidIs:
			did = "replace"
		case was != is:
			did = "update"
		}
		if did != said[key] {
			t.Fatalf("%s: said %q, did %q", key, said[key], did)
		}
	}
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
