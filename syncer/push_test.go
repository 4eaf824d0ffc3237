package syncer

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// message commits what is staged and the files with a message of its own.
func (r *remote) message(message string, files map[string]string) string {
	r.t.Helper()
	r.commit("Ada", files)
	r.git("commit", "-q", "--amend", "--allow-empty", "-m", message)
	return r.git("rev-parse", "HEAD")
}

// objects reads the repository as it is now.
func (r *remote) objects() *git.Objects {
	r.t.Helper()
	f, err := git.OpenForge(r.t.Context(), git.ForgeConfig{URL: r.dir, Dir: filepath.Join(r.t.TempDir(), "clone.git"), Cluster: "main"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(f.Close)
	if _, err := f.Fetch(r.t.Context(), "main", 0); err != nil {
		r.t.Fatal(err)
	}
	return f.Objects
}

func TestTrailersOfARange(t *testing.T) {
	r := newRemote(t)
	say := func(name string) string { return name + "\n\nAllow-Delete: " + name + "\n" }
	root := r.message(say("root"), map[string]string{"a.yaml": configMap("a", "1")})
	old := r.message(say("old"), map[string]string{"a.yaml": configMap("a", "2")})
	applied := r.message("no trailer", map[string]string{"a.yaml": configMap("a", "3")})
	one := r.message(say("one"), map[string]string{"a.yaml": configMap("a", "4")})
	// A branch from before, merged; what it says is the branch's matter.
	r.git("checkout", "-q", "-b", "side", old)
	side := r.message(say("side"), map[string]string{"b.yaml": configMap("b", "1")})
	r.git("checkout", "-q", "main")
	r.git("merge", "-q", "--no-ff", "side", "-m", say("merge"))
	merge := r.git("rev-parse", "HEAD")
	two := r.message(say("two")+"Signed-off-by: x\n", map[string]string{"a.yaml": configMap("a", "5")})
	// The applied commit came in by a second parent.
	r.git("checkout", "-q", "side")
	r.git("merge", "-q", "--no-ff", "main", "-m", say("foxtrot"))
	foxtrot := r.git("rev-parse", "HEAD")
	r.git("checkout", "-q", "main")
	r.git("merge", "-q", "--ff-only", "side")
	r.git("checkout", "-q", "-b", "other", side)
	later := r.message(say("later"), map[string]string{"b.yaml": configMap("b", "2")})
	r.git("checkout", "-q", "main")
	r.git("merge", "-q", "--no-ff", "-s", "ours", "other", "-m", "so that it is fetched")
	c := &Checkout{Objects: r.objects()}
	for _, tt := range []struct{ from, to, want string }{
		{"", two, "two"},
		{"", root, "root"},
		{applied, one, "one"},
		{applied, applied, ""},
		{applied, merge, "merge one"},
		{applied, two, "two merge one"},
		{one, two, "two merge"},
		{merge, two, "two"},
		{root, applied, "old"},
		{applied, foxtrot, "foxtrot side"},
		{one, foxtrot, "foxtrot side"},
		{side, foxtrot, "foxtrot"},
		{two, one, ""},         // a rewind
		{two, side, ""},        // that has it in its history
		{one, side, "side"},    // that has not
		{one, later, "later"},  // nor has this; only it can mean what it says
		{side, applied, ""},    // a rewind, for side grew out of an older one
		{foxtrot, applied, ""}, // and one over a merge
	} {
		got, err := c.Trailers(t.Context(), tt.from, tt.to)
		var words []string
		for _, tr := range got {
			if tr.Key == TrailerAllowDelete {
				words = append(words, tr.Value)
			}
			if tr.Commit == "" {
				t.Errorf("%+v", tr)
			}
		}
		if err != nil || strings.Join(words, " ") != tt.want {
			t.Errorf("%s..%s: %v %v, want %s", tt.from, tt.to, words, err, tt.want)
		}
	}
}

// judgePushed judges a commit of r as the hook does.
func judgePushed(t *testing.T, w *world, r *remote, commit string, options ...string) (refused, printed string) {
	t.Helper()
	var out strings.Builder
	lines, err := w.s.JudgePush(render.NewCache(0))(t.Context(), git.Push{Update: git.Update{Ref: "refs/heads/main", New: commit}, Options: options, Objects: r.objects()}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n"), out.String()
}

func TestPushPrintsThePlan(t *testing.T) {
	r := newRemote(t)
	files := map[string]string{}
	for name, text := range configFiles(30) {
		files["deploy/"+name] = text
	}
	files["deploy/web.yaml"], files["deploy/job.yaml"] = app, migrate
	c1 := r.commit("Ada", files)
	w := forged(t, r)
	w.settle()
	w.poll()
	if st := w.status(); st.Applied != c1 {
		t.Fatalf("status %+v", st)
	}
	c2 := r.commit("Ada", map[string]string{
		"deploy/web.yaml": edit(app, "replicas: 3", "replicas: 5", "web:1", "web:2") + "      imagePullSecrets: [{name: hub}]\n",
		"deploy/job.yaml": edit(migrate, "migrate:1", "migrate:2"), "deploy/c03.yaml": "", "deploy/new.yaml": configMap("new", "1"),
	})
	refused, printed := judgePushed(t, w, r, c2)
	want := `warning: deploy/web.yaml:15:27: spec.template.spec.imagePullSecrets[0].name: Secret default/hub is neither in this commit nor in the cluster: declare it, or make it before you push
+ create ConfigMap default/new (deploy/new.yaml:1)
~ update Deployment default/web (deploy/web.yaml:1): spec.replicas 3 → 5, spec.template.spec.containers[web].image web:1 → web:2, spec.template.spec.imagePullSecrets[hub].name none → hub
± replace Job default/migrate (deploy/job.yaml:1): its template changed, which a Job cannot take in place: it runs again; spec.template.spec.containers[c].image migrate:1 → migrate:2
- delete ConfigMap default/c03: no longer declared: its manifest was deploy/c03.yaml in commit ` + short(c1) + `
4 of 33 objects change
`
	if refused != "" || printed != want {
		t.Errorf("%s\ngot\n%s\nwant\n%s", refused, printed, want)
	}
	// A long plan is cut, but for a dry run.
	long := map[string]string{}
	for i := range 25 {
		long[fmt.Sprintf("deploy/x%02d.yaml", i)] = configMap(fmt.Sprintf("x%02d", i), "1")
	}
	c3 := r.commit("Ada", long)
	if _, printed := judgePushed(t, w, r, c3); strings.Count(printed, "\n") != 23 || !strings.Contains(printed, "… and 9 more\n29 of 58 objects change\n") {
		t.Errorf("printed\n%s", printed)
	}
	if _, printed := judgePushed(t, w, r, c3, "dry-run"); strings.Count(printed, "\n") != 31 || strings.Contains(printed, "more") {
		t.Errorf("printed\n%s", printed)
	}
	// A refused one has no plan.
	c4 := r.commit("Ada", map[string]string{"deploy/web.yaml": edit(app, "replicas", "replica"), "deploy/twice.yaml": "\n" + configMap("new", "2")})
	refused, printed = judgePushed(t, w, r, c4, "dry-run")
	if printed != "" || refused != `deploy/twice.yaml:2:1: metadata.name: ConfigMap default/new is declared already at deploy/new.yaml:1:1: an object may stand in one place only
deploy/web.yaml:5:3: spec.replica: unknown field: did you mean "replicas"?` {
		t.Errorf("printed %s, refused %s", printed, refused)
	}
}

// A person learns of files that may be manifests by mistake, of all when asking.
func TestPushNamesWhatIsNoManifest(t *testing.T) {
	r := newRemote(t)
	w := forged(t, r)
	c1 := r.commit("Ada", map[string]string{
		"deploy/a.yaml": configMap("a", "1"), "deploy/values.yaml": "image: web\n", "deploy/more.json": "{{{ not even JSON",
		"deploy/unit/kustomization.yaml": "resources: [b.yaml]\n", "deploy/unit/b.yaml": configMap("b", "1"), "deploy/unit/forgotten.yaml": configMap("c", "1"),
	})
	all := []string{"skipped: deploy/more.json: ", "skipped: deploy/unit/forgotten.yaml: not named by the kustomization", "skipped: deploy/values.yaml: "}
	if _, printed := judgePushed(t, w, r, c1); strings.Count(printed, "skipped: ") != 1 || !strings.Contains(printed, all[0]) || !strings.Contains(printed, "; and 2 files more, see headway plan\n") {
		t.Errorf("printed\n%s", printed)
	}
	_, dry := judgePushed(t, w, r, c1, "dry-run")
	v, err := w.s.Judge(t.Context(), Candidate{Commit: c1, Commits: &Checkout{Objects: r.objects(), Cache: render.NewCache(0)}})
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	if err := v.Preview().Write(&plan); err != nil {
		t.Fatal(err)
	}
	contain(t, dry, all...)
	contain(t, plan.String(), all...)
}

// The trailer of the merge counts for what the merge brings.
func TestAMergeIsSpokenForByItsTrailer(t *testing.T) {
	r := newRemote(t)
	files, gone := map[string]string{}, map[string]string{}
	for name, text := range configFiles(20) {
		files["deploy/"+name] = text
		if name != "README.md" && name != "c00.yaml" {
			gone["deploy/"+name] = ""
		}
	}
	c1 := r.commit("Ada", files)
	w := forged(t, r)
	w.settle()
	w.poll()
	if st := w.status(); st.Applied != c1 {
		t.Fatalf("status %+v", st)
	}
	r.git("checkout", "-q", "-b", "side")
	r.commit("Ada", gone)
	r.git("checkout", "-q", "main")
	r.git("merge", "-q", "--no-ff", "side", "-m", "merge")
	refused, _ := judgePushed(t, w, r, r.git("rev-parse", "HEAD"))
	if !strings.Contains(refused, "Allow-Delete: 19") || strings.Count(refused, "\n") != 19 {
		t.Errorf("refused %s", refused)
	}
	r.git("commit", "-q", "--amend", "-m", "merge\n\nAllow-Delete: 19")
	if refused, printed := judgePushed(t, w, r, r.git("rev-parse", "HEAD")); refused != "" || !strings.Contains(printed, "19 of 20 objects change") {
		t.Errorf("refused %s, printed %s", refused, printed)
	}
}
