package syncer

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
)

// settings is a .headway.yaml with some lines.
func settings(lines ...string) string {
	return "apiVersion: headway.dev/v1\nkind: Config\n" + strings.Join(lines, "\n") + "\n"
}

// The configuration at the source's root says how its manifests are read.
func TestConfigurationIsApplied(t *testing.T) {
	r := newRemote(t)
	r.commit("ada", map[string]string{
		".headway.yaml":              "not read: it is above the source\n",
		"deploy/.headway.yaml":       settings("defaultNamespace: shop", "ignore: ['*.example.yaml']", "pollInterval: 30s", "deletionLimit: {objects: 0}", "drift: report", "paths:", "- {path: lab, defaultNamespace: default, ignore: [tmp.yaml], drift: heal}"),
		"deploy/ns.yaml":             "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"deploy/a.yaml":              configMap("a", "1"),
		"deploy/a.example.yaml":      "kind: Broken\n",
		"deploy/lab/b.yaml":          configMap("b", "1"),
		"deploy/lab/tmp.yaml":        "kind: Broken\n",
		"deploy/lab/other/tmp.yaml":  configMap("c", "1"),
		"deploy/lab/ex.example.yaml": "kind: Broken\n",
	})
	w := forged(t, r)
	w.settle()
	st := w.status()
	if want := ".headway.yaml: the root of the source is deploy: move the configuration to deploy/.headway.yaml"; st.Applied != "" || !slices.Equal(st.Problems, []string{want}) {
		t.Fatalf("status %+v", st)
	}
	r.git("rm", "-q", ".headway.yaml")
	second := r.commit("ada", map[string]string{"README": "x"})
	w.poll()
	if st := w.status(); st.Applied != second || st.Objects != 3 {
		t.Fatalf("status %+v", st)
	}
	for _, at := range [][2]string{{"shop", "a"}, {"default", "b"}} {
		if w.get("configmaps", at[0], at[1]) == nil {
			t.Errorf("no ConfigMap %v", at)
		}
	}
	if !w.s.desired.reports("deploy/a.yaml") || w.s.desired.reports("deploy/lab/b.yaml") {
		t.Error("the policy of drift is not that of the commit")
	}
	// The limit of the applied commit refuses.
	third := r.commit("ada", map[string]string{"deploy/a.yaml": ""})
	w.poll()
	if st := w.status(); st.Applied != second {
		t.Fatalf("the forge was asked before the commit's interval was over: %+v", st)
	}
	w.now = w.now.Add(25 * time.Second)
	w.settle()
	if st := w.status(); st.Refused != third || !strings.Contains(st.Message, "the limit is 0 objects or 30 %") {
		t.Fatalf("status %+v", st)
	}
}

// R2: what is wrong with the configuration is wrong with the commit.
func TestR2_ConfigurationProblems(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a field, and a manifest": {map[string]string{"deploy/.headway.yaml": settings("drift: hael"), "deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n"},
			[]string{"deploy/.headway.yaml:3:1: drift: must be heal or report", "deploy/a.yaml:3:12: metadata.name: Invalid value"}},
		"how manifests are read": {map[string]string{"deploy/.headway.yaml": settings("ignores: [b.yaml]"), "deploy/b.yaml": "kind: Broken\n"},
			[]string{`deploy/.headway.yaml:3:1: ignores: unknown field`}},
		"an ignore pattern":           {map[string]string{"deploy/.headway.yaml": settings("ignore: ['b[.yaml']"), "deploy/b.yaml": "kind: Broken\n"}, []string{"deploy/.headway.yaml:3:10: ignore[0]: has a bracket"}},
		"not YAML":                    {map[string]string{"deploy/.headway.yaml": "a: [\n", "deploy/a.yaml": configMap("a", "1")}, []string{"deploy/.headway.yaml:"}},
		"signers that are gone":       {map[string]string{"deploy/.headway.yaml": settings("allowedSigners: {ssh: keys}"), "deploy/a.yaml": configMap("a", "1")}, []string{"deploy/.headway.yaml:3:18: allowedSigners.ssh: no such file"}},
		"R12, a further source twice": {map[string]string{"deploy/.headway.yaml": settings("sources: [{name: b, repository: 'https://x.example/b.git', namespaces: [b]}, {name: b, repository: /b.git, namespaces: [b]}]"), "deploy/a.yaml": configMap("a", "1")}, []string{`deploy/.headway.yaml:3:79: sources[1].name: "b" is the name of sources[0] already`}},
		"too deep":                    {map[string]string{"deploy/x/.headway.yaml": settings(), "deploy/a.yaml": configMap("a", "1")}, []string{"deploy/x/.headway.yaml: only the configuration at the source's root is read"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			commit := r.commit("ada", c.files)
			out, err := checkoutAt(t, r).Render(t.Context(), commit, "deploy")
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Problems) != len(c.want) {
				t.Fatalf("problems %v", out.Problems)
			}
			for i, p := range out.Problems {
				if !strings.HasPrefix(p.String(), c.want[i]) {
					t.Errorf("problem %q, want %q", p, c.want[i])
				}
			}
		})
	}
}

// A commit that changes the settings of a part reads that part again, and no more.
func TestSettingsReadWhatDependsOnThem(t *testing.T) {
	r := newRemote(t)
	files := map[string]string{"deploy/.headway.yaml": settings()}
	for _, name := range []string{"a", "b", "c", "lab/d", "lab/e"} {
		files["deploy/"+name+".yaml"] = configMap(strings.ReplaceAll(name, "/", "-"), "1")
	}
	first := r.commit("ada", files)
	second := r.commit("ada", map[string]string{"deploy/.headway.yaml": settings("paths: [{path: lab, defaultNamespace: lab}]")})
	third := r.commit("ada", map[string]string{"deploy/.headway.yaml": settings("drift: report", "ignore: [c.yaml]", "paths: [{path: lab, defaultNamespace: lab}]")})
	c := checkoutAt(t, r)
	for _, step := range []struct {
		commit        string
		read, objects int
	}{{first, 5, 5}, {second, 2, 5}, {third, 0, 4}, {second, 0, 5}} {
		out, err := c.Render(t.Context(), step.commit, "deploy")
		if err != nil || len(out.Problems) > 0 {
			t.Fatal(out.Problems, err)
		}
		if out.Read != step.read || len(out.Manifests) != step.objects {
			t.Errorf("%d files read for %d objects, want %+v", out.Read, len(out.Manifests), step)
		}
	}
}

// The period of asking is that of the commit when it says one, and a shorter one
// counts at once.
func TestPollInterval(t *testing.T) {
	read := func(text string) *desired {
		c, problems := api.DecodeConfig(".headway.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return &desired{config: &c}
	}
	if d := read(settings()).interval(time.Minute); d != time.Minute {
		t.Errorf("unsaid: %v", d)
	}
	if d := read(settings("pollInterval: 10s")).interval(time.Minute); d != 10*time.Second {
		t.Errorf("said: %v", d)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newPoll(time.Hour, 1)
	p.next = now.Add(time.Hour)
	p.every(time.Minute)
	if p.next != now.Add(time.Minute) {
		t.Errorf("next %v", p.next)
	}
	p.every(time.Hour)
	if p.next != now.Add(time.Minute) || p.period != time.Hour {
		t.Errorf("next %v of %v", p.next, p.period)
	}
}

// Polls may be answered with what another source was told lately; the first look, and
// one that somebody asked for, may not.
func TestPollsAreShared(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newPoll(time.Minute, 1)
	look := func(want time.Duration) {
		t.Helper()
		_, err := p.head(t.Context(), now, func(_ context.Context, maxAge time.Duration) (string, error) {
			if maxAge != want {
				t.Errorf("at most %s old, want %s", maxAge, want)
			}
			return "c", nil
		})
		if err != nil {
			t.Error(err)
		}
		now = now.Add(2 * time.Minute)
	}
	look(0)
	look(30 * time.Second)
	p.now()
	p.every(time.Second)
	look(0)
	look(500 * time.Millisecond)
}

// checkoutAt reads a clone of r as it is now.
func checkoutAt(t *testing.T, r *remote) *Checkout {
	t.Helper()
	forge := openForge(t, r)
	if _, err := forge.Fetch(t.Context(), "refs/heads/main", 0); err != nil {
		t.Fatal(err)
	}
	return &Checkout{Objects: forge.Repository, Keeper: forge.Repository, Cache: render.NewCache(0)}
}
