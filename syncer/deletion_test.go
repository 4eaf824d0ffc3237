package syncer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestDeletionLimit(t *testing.T) {
	maps := func(n int, ns string) (out []deletion) {
		for i := range n {
			out = append(out, deletion{key: key("configmaps", ns, fmt.Sprintf("c%d", i)), from: api.Provenance{Path: "c.yaml", Line: i + 1}})
		}
		return out
	}
	claim := deletion{key: store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: "team", Name: "data"}}
	claimed := targetOf(claim.key)
	team := deletion{key: key("namespaces", "", "team"), from: api.Provenance{Path: "n.yaml", Line: 1}, along: []string{"Secret team/hand"}}
	def := api.DefaultConfig().DeletionLimit
	for name, tt := range map[string]struct {
		limit    api.DeletionLimit
		declared int
		gone     []deletion
		says     []string // trailers
		refused  string   // words of the message; "" is not refused
		names    int
	}{
		"none":                            {def, 5, nil, nil, "", 0},
		"few of few":                      {def, 3, maps(3, "a"), nil, "", 0},
		"more than few of few":            {def, 9, maps(4, "a"), nil, "4 objects of the 9 that the applied commit declares, more than the 3 that", 4},
		"below 30 percent":                {def, 20, maps(6, "a"), nil, "", 0},
		"above 30 percent":                {def, 20, maps(7, "a"), nil, "more than the 6 that a commit may delete unasked (the limit is 10 objects or 30 %); nothing is changed. If that is meant, say so in the last paragraph of a commit message in this push: Allow-Delete: 7", 7},
		"ten of many":                     {def, 1000, maps(10, "a"), nil, "", 0},
		"eleven of many":                  {def, 1000, maps(11, "a"), nil, ": Allow-Delete: 11", 11},
		"a limit of none":                 {api.DeletionLimit{Objects: 0, Percent: 100}, 1000, maps(1, "a"), nil, ": Allow-Delete: 1", 1},
		"a limit of no percent":           {api.DeletionLimit{Objects: 10, Percent: 0}, 1000, maps(1, "a"), nil, ": Allow-Delete: 1", 1},
		"a limit of one":                  {api.DeletionLimit{Objects: 1, Percent: 100}, 1000, maps(2, "a"), nil, "more than the 1 that", 2},
		"no limit":                        {api.DeletionLimit{Objects: 1 << 30, Percent: 100}, 1000, maps(1000, "a"), nil, "", 0},
		"by number":                       {def, 12, maps(11, "a"), []string{"Allow-Delete: 11"}, "", 0},
		"by a number in two trailers":     {def, 12, maps(11, "a"), []string{"Allow-Delete: 11", "Allow-Delete: 2"}, "", 0},
		"by too small a number":           {def, 12, maps(11, "a"), []string{"Allow-Delete: 10"}, ": Allow-Delete: 11", 11},
		"by all":                          {def, 12, append(maps(11, "a"), team), []string{"allow-delete:  ALL "}, "", 0},
		"some by name":                    {def, 9, maps(5, "a"), []string{"Allow-Delete: ConfigMap/a/c0", "Allow-Delete: configmap/c1"}, "", 0},
		"by the name in another place":    {def, 9, maps(4, "a"), []string{"Allow-Delete: ConfigMap/b/c0"}, ": Allow-Delete: 4", 4},
		"by their namespace":              {def, 9, append(maps(5, "team"), team), []string{"Allow-Delete: Namespace/team"}, "", 0},
		"by another trailer":              {def, 9, maps(5, "a"), []string{"Replace: ConfigMap/a/c0", "Signed-off-by: all"}, "5 objects", 5},
		"a namespace":                     {def, 1000, []deletion{team}, nil, "would delete Namespace team; nothing is changed. If that is meant, say so in the last paragraph of a commit message in this push: Allow-Delete: Namespace/team", 1},
		"a namespace by number":           {def, 1000, []deletion{team}, []string{"Allow-Delete: 5"}, "Namespace team", 1},
		"a namespace and what is in it":   {def, 9, append(maps(5, "team"), team, claim), nil, "Namespace team, " + titleOf(claim.key) + "; nothing is changed. If that is meant, say so in the last paragraph of a commit message in this push: Allow-Delete: Namespace/team", 7},
		"a claim":                         {def, 1000, []deletion{claim}, nil, "Allow-Delete: " + claimed, 1},
		"what a half applied commit made": {def, 5, fresh(maps(20, "a")), nil, "", 0},
		"its namespace counts":            {def, 5, fresh([]deletion{team}), nil, "Namespace team", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var trailers []Trailer
			for _, line := range tt.says {
				k, v, _ := strings.Cut(line, ":")
				trailers = append(trailers, Trailer{Key: k, Value: v})
			}
			r := judgeDeletions(tt.limit, "c", tt.declared, tt.gone, readTrailers(trailers))
			if r == nil {
				if tt.refused != "" {
					t.Fatal("not refused")
				}
				return
			}
			if tt.refused == "" || !strings.Contains(r.message, tt.refused) || len(r.names) != tt.names {
				t.Errorf("%s\n%s", r.message, strings.Join(r.names, "\n"))
			}
			// The lines that it names are enough.
			_, lines, _ := strings.Cut(r.message, "in this push: ")
			for _, line := range strings.Split(lines, " and ") {
				k, v, _ := strings.Cut(line, ": ")
				trailers = append(trailers, Trailer{Key: k, Value: v})
			}
			if judgeDeletions(tt.limit, "c", tt.declared, tt.gone, readTrailers(trailers)) != nil {
				t.Errorf("%q is not enough", lines)
			}
		})
	}
}

func fresh(gone []deletion) []deletion {
	for i := range gone {
		gone[i].new = true
	}
	return gone
}

func TestTrailerTargets(t *testing.T) {
	for text, want := range map[string]string{
		"Deployment/web": "Deployment//web", "deployment/shop/web": "Deployment/shop/web", "Namespace/team": "Namespace//team",
		"Namespace/a/b": "", "Nonsense/x": "", "web": "", "Deployment/": "", "Deployment//web": "", "a/b/c/d": "", "": "", "Node/n1": "", "/": "",
	} {
		got, ok := parseTarget(text)
		if ok != (want != "") || ok && got.kind+"/"+got.namespace+"/"+got.name != want {
			t.Errorf("%q: %+v %v", text, got, ok)
		}
	}
	a := readTrailers([]Trailer{{Key: "REPLACE", Value: "Job/default/x"}, {Key: "Replace", Value: "Job/x"}, {Key: "Allow-Delete", Value: "-1"}, {Key: "Allow-Delete", Value: "99999999999999999999"}, {Key: "Other", Value: "all"}})
	if !a.replaces(key("jobs", "default", "x")) || a.replaces(key("jobs", "other", "x")) || a.all || a.most != 0 || len(a.unread) != 3 || len(a.misread()) != 3 {
		t.Errorf("%+v", a)
	}
}

// many files with a ConfigMap each.
func configFiles(n int) map[string]string {
	files := map[string]string{"README.md": "x"}
	for i := range n {
		files[fmt.Sprintf("c%02d.yaml", i)] = configMap(fmt.Sprintf("c%02d", i), "1")
	}
	return files
}

func TestR3_TooManyDeletionsAreRefusedAndNamed(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", configFiles(40)))
	c2 := w.repo.add("c2", "c1", configFiles(20))
	w.push(c2)
	st := w.status()
	if st.Refused != c2 || st.Applied != commitID("c1") || len(st.Problems) != 20 || !strings.HasSuffix(st.Message, "Allow-Delete: 20") {
		t.Fatalf("status %+v", st)
	}
	for i, line := range []int{0, 19} {
		want := fmt.Sprintf("c%02d.yaml:1: ConfigMap default/c%02d would be deleted", 39-line, 39-line)
		if st.Problems[line] != want {
			t.Errorf("%d: %s, want %s", i, st.Problems[line], want)
		}
	}
	if n := len(w.st.List(api.ConfigMaps(), "")); n != 40 {
		t.Errorf("%d left", n)
	}
	v, err := w.s.Judge(t.Context(), Candidate{Commit: c2})
	if err != nil || len(v.Lines()) != 1 || strings.Count(v.Lines()[0], "\n") != 20 {
		t.Errorf("%v %q", err, v.Lines())
	}
	// The trailer of a commit on top counts for all that is not applied yet.
	w.push(w.repo.say(w.repo.add("c3", "c2", configFiles(20)), "Allow-Delete: 20"))
	if st := w.status(); st.Applied != commitID("c3") || len(w.st.List(api.ConfigMaps(), "")) != 20 {
		t.Fatalf("status %+v", st)
	}
	// And not for what comes later.
	w.push(w.repo.add("c4", "c3", configFiles(9)))
	if st := w.status(); st.Refused != commitID("c4") {
		t.Errorf("a stale trailer counts: %+v", st)
	}
}

func TestR3_ADeletedNamespaceIsNamedWithWhatIsInIt(t *testing.T) {
	w := newWorld(t)
	team := func(text string) string { return edit(text, "{name: ", "{namespace: team, name: ") }
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "n.yaml": namespaceFile("team"), "t.yaml": team(configMap("t", "1"))}))
	w.write(store.Create, &corev1.Secret{ObjectMeta: metaOf("team", "hand", nil)})
	w.settle()
	c2 := w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "1")})
	w.push(c2)
	st := w.status()
	if st.Refused != c2 || len(st.Problems) != 1 || st.Problems[0] != "n.yaml:1: Namespace team would be deleted, and with it Secret team/hand" {
		t.Fatalf("status %+v", st)
	}
	c3 := w.repo.say(w.repo.add("c3", "c2", map[string]string{"a.yaml": configMap("a", "1")}), "Allow-Delete: Namespace/team")
	v, err := w.s.Judge(t.Context(), Candidate{Commit: c3})
	if err != nil || !v.OK() || v.Delete != 2 {
		t.Fatalf("%+v %v", v, err)
	}
	var lines []string
	for _, c := range v.Preview().Changes {
		lines = append(lines, c.String())
	}
	if got := strings.Join(lines, "\n"); got != `- delete ConfigMap team/t: no longer declared: its manifest was t.yaml in commit c10000000000
- delete Namespace team: no longer declared: its manifest was n.yaml in commit c10000000000; with it Secret team/hand` {
		t.Errorf("%s", got)
	}
	// A manifest that stays in the namespace keeps it from going.
	c4 := w.repo.say(w.repo.add("c4", "c3", map[string]string{"t.yaml": team(configMap("t", "1")), "a.yaml": configMap("a", "1")}), "Allow-Delete: all")
	if v, err := w.s.Judge(t.Context(), Candidate{Commit: c4}); err != nil || v.OK() || !strings.Contains(strings.Join(v.Lines(), "\n"), `t.yaml:3:12: metadata.namespace: namespace "team" is removed by this commit`) {
		t.Errorf("%v %v", v.Lines(), err)
	}
}

func TestMovingAManifestDeletesNothing(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", configFiles(40)))
	uid := w.get("configmaps", "default", "c07").GetUID()
	moved := map[string]string{}
	for name, text := range configFiles(40) {
		moved["moved/"+name] = text
	}
	c2 := w.repo.add("c2", "c1", moved)
	if v, err := w.s.Judge(t.Context(), Candidate{Commit: c2}); err != nil || !v.OK() || v.Create+v.Delete > 0 {
		t.Errorf("%+v %v", v, err)
	}
	w.push(c2)
	if st := w.status(); st.Applied != c2 || w.get("configmaps", "default", "c07").GetUID() != uid {
		t.Errorf("status %+v", st)
	}
}

// A commit that was applied half does not hold up the one that takes it back.
func TestR13_TakingBackAHalfAppliedCommitIsNoMassDeletion(t *testing.T) {
	w := newWorld(t)
	w.bulk = 10
	w.open()
	w.push(w.repo.add("c1", "", configFiles(2)))
	first := w.commits
	w.around = func(n int, commit func() (int64, error)) (int64, error) {
		if n > first+3 {
			return 0, errKilled
		}
		return commit()
	}
	w.setRef("refs/heads/main", w.repo.add("c2", "c1", configFiles(60)))
	for range 20 {
		if _, err := w.st.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.s.Step(t.Context())
	}
	if n := len(w.st.List(api.ConfigMaps(), "")); n < 15 || n > 50 {
		t.Fatalf("%d made of 60", n)
	}
	w.around = nil
	w.setRef("refs/heads/main", w.repo.add("c3", "c2", configFiles(2)))
	w.open()
	w.settle()
	if st := w.status(); st.Applied != commitID("c3") || len(w.st.List(api.ConfigMaps(), "")) != 2 {
		t.Errorf("status %+v", st)
	}
}

// The limit is that of the applied commit: the commit that deletes does not set it.
func TestDeletionLimitIsTheAppliedCommits(t *testing.T) {
	w, p := benchWorld(t)
	give := func(name, parent string, n int, limit *api.DeletionLimit) string {
		id := w.repo.add(name, parent, map[string]string{})
		config := api.DefaultConfig()
		if limit != nil {
			config.DeletionLimit = *limit
		}
		p.rendered[id] = Rendered{Manifests: many(t, n), Config: &config}
		return id
	}
	w.push(give("c1", "", 30, &api.DeletionLimit{Objects: 1, Percent: 100}))
	c2 := give("c2", "c1", 28, &api.DeletionLimit{Objects: 100, Percent: 100})
	w.push(c2)
	if st := w.status(); st.Refused != c2 || !strings.Contains(st.Message, "the limit is 1 object or 100 %") {
		t.Errorf("status %+v", st)
	}
	w.push(give("c3", "c2", 29, &api.DeletionLimit{Objects: 100, Percent: 100}))
	w.push(give("c4", "c3", 5, nil))
	if st := w.status(); st.Applied != commitID("c4") {
		t.Errorf("status %+v", st)
	}
}

func TestReplaceTrailer(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1")}))
	uid := w.get("deployments", "default", "web").GetUID()
	other := map[string]string{"web.yaml": edit(app, "app: web}", "app: web2}"), "a.yaml": configMap("a", "2")}
	c2 := w.repo.add("c2", "c1", other)
	w.push(c2)
	if st := w.status(); st.Refused != c2 || len(st.Problems) != 1 || !strings.HasSuffix(st.Problems[0], "Replace: Deployment/default/web") {
		t.Fatalf("status %+v", st)
	}
	// It names another object: refused still.
	w.push(w.repo.say(w.repo.add("c3", "c2", other), "Replace: Deployment/other/web"))
	if st := w.status(); st.Refused != commitID("c3") {
		t.Fatalf("status %+v", st)
	}
	c4 := w.repo.say(w.repo.add("c4", "c3", other), "Replace: Deployment/default/web", "Replace: ConfigMap/default/a")
	v, err := w.s.Judge(t.Context(), Candidate{Commit: c4})
	if err != nil || !v.OK() || v.Update != 2 || v.Create+v.Delete > 0 {
		t.Fatalf("%+v %v", v, err)
	}
	config := w.get("configmaps", "default", "a").GetUID()
	w.push(c4)
	if st := w.status(); st.Applied != c4 {
		t.Fatalf("status %+v", st)
	}
	d := w.get("deployments", "default", "web").(*appsv1.Deployment)
	if d.UID == uid || d.Spec.Selector.MatchLabels["app"] != "web2" {
		t.Errorf("not replaced: %+v", d)
	}
	if w.get("configmaps", "default", "a").GetUID() != config {
		t.Error("what can be changed in place was replaced")
	}
}

// A replaced object that goes away slowly is made again once, whatever the trailer
// says when the commit is judged again.
func TestR2_AReplacementThatWaitsHappensOnce(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.change("deployments", "default", "web", func(o api.Object) { o.SetFinalizers([]string{"x/y"}) })
	w.settle()
	w.push(w.repo.say(w.repo.add("c2", "c1", map[string]string{"web.yaml": edit(app, "app: web}", "app: web2}")}), "Replace: Deployment/default/web"))
	going := w.get("deployments", "default", "web")
	if st := w.status(); going == nil || going.GetDeletionTimestamp() == nil || st.Applying != commitID("c2") {
		t.Fatalf("status %+v", st)
	}
	w.write(store.Delete, going)
	w.now = w.now.Add(5e9)
	w.settle()
	made := w.get("deployments", "default", "web")
	if st := w.status(); made == nil || st.Applied != commitID("c2") {
		t.Fatalf("status %+v", st)
	}
	w.now = w.now.Add(600e9)
	w.settle()
	if w.get("deployments", "default", "web").GetUID() != made.GetUID() {
		t.Error("replaced again")
	}
}

// A file that cannot be read is no deletion of what it declared.
func TestABrokenFileIsNoDeletion(t *testing.T) {
	files := configFiles(40)
	var all strings.Builder
	for i := range 20 {
		fmt.Fprintf(&all, "---\n%s", configMap(fmt.Sprintf("d%d", i), "1"))
	}
	files["all.yaml"] = all.String()
	files["web.yaml"] = app + "        envFrom: [{configMapRef: {name: d1}}]\n"
	broken := map[string]string{}
	for k, v := range files {
		broken[k] = v
	}
	broken["all.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [\n"
	broken["web.yaml"] = app + "        envFrom: [{configMapRef: {name: d2}}]\n"
	v := judged{before: files, after: broken}.verdict(t)
	if v.OK() || v.Refusal != "" || len(v.Problems) != 1 || v.Problems[0].Path != "all.yaml" {
		t.Errorf("%s", strings.Join(v.Lines(), "\n"))
	}
}

// An applied commit that this version does not accept any more says nothing of what it
// declared: then every deletion counts.
func TestDeletionsBesideAnAppliedCommitThatIsNotReadable(t *testing.T) {
	src := &api.Source{Status: api.SourceStatus{Objects: 20}}
	config := api.DefaultConfig()
	var gone []deletion
	for i := range 15 {
		gone = append(gone, deletion{key: key("configmaps", "default", fmt.Sprint("c", i))})
	}
	for name, applied := range map[string]*desired{
		"with problems": {config: &config, problems: []api.Problem{{Reason: "too many files"}}},
		"never applied": nil,
	} {
		refused := checkDeletions(src, applied, commitID("c2"), slices.Clone(gone), asked{})
		if (refused != nil) != (applied != nil) {
			t.Errorf("%s: %+v", name, refused)
		}
	}
}

func TestAllowDeleteOfASourceThatStays(t *testing.T) {
	a := readTrailers([]Trailer{{commitID("c1"), "Allow-Delete", "Source/teem"}, {commitID("c1"), "Allow-Delete", "Source/team"}})
	idle := a.idle(map[string][]api.Object{"team": nil})
	if len(idle) != 1 || !strings.Contains(idle[0].String(), `"Source/teem" has no effect`) || !a.prunes("team") {
		t.Errorf("%v", idle)
	}
}
