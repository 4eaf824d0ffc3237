package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fleet is the main source and those that it names, each with a syncer as long as
// its Source says so, as the servers have it.
type fleet struct {
	*world
	repos map[string]*history // by name of the source
	heads map[string]string
	all   map[string]*Syncer
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{world: newWorld(t), repos: map[string]*history{}, heads: map[string]string{}, all: map[string]*Syncer{}}
	f.hook()
	return f
}

func (f *fleet) hook() {
	f.st.OnEvents(func(events []store.Event) {
		for _, s := range f.all {
			s.Handle(events)
		}
	})
}

// again is a new process over the same store.
func (f *fleet) again() {
	f.all = map[string]*Syncer{}
	f.open()
	f.hook()
}

// staff has a syncer for each Source that wants one.
func (f *fleet) staff() {
	sources := f.s.sources()
	for name, s := range f.all {
		if !s.follows(sources[name]) {
			delete(f.all, name)
		}
	}
	for name, src := range sources {
		if f.all[name] != nil || src.DeletionTimestamp != nil {
			continue
		}
		repo := f.repo(name)
		cfg := f.cfg
		cfg.Store, cfg.Commits, cfg.Source, cfg.Spec = &writer{Store: f.st, w: f.world}, repo, name, src.Spec
		cfg.Now = func() time.Time { return f.now }
		cfg.Fetch = func(context.Context, api.SourceSpec, time.Duration) (string, error) { return f.heads[name], repo.fail }
		f.all[name] = New(cfg)
	}
}

func (f *fleet) repo(name string) *history {
	if f.repos[name] == nil {
		f.repos[name] = newHistory()
	}
	return f.repos[name]
}

// settle steps all until none has anything to do.
func (f *fleet) settle() {
	f.t.Helper()
	for range 10_000 {
		more, err := f.st.Step(context.Background())
		if err != nil {
			f.t.Fatal(err)
		}
		f.staff()
		more = f.s.Step(context.Background()) || more
		var next time.Time
		soon := func(at time.Time) {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		soon(f.s.Next())
		for _, name := range slices.Sorted(maps.Keys(f.all)) {
			more = f.all[name].Step(context.Background()) || more
			soon(f.all[name].Next())
		}
		if more {
			continue
		}
		if next.IsZero() || next.Sub(f.now) > 2*time.Second {
			return
		}
		if next.After(f.now) {
			f.now = next
		}
	}
	f.t.Fatal("does not settle")
}

// main pushes a commit to the main source.
func (f *fleet) main(commit string) {
	f.t.Helper()
	f.setRef("refs/heads/main", commit)
	f.settle()
}

// publish makes a commit the head of a further source, and lets it be seen.
func (f *fleet) publish(source, name, parent string, files map[string]string) string {
	f.t.Helper()
	f.heads[source] = f.repo(source).add(name, parent, files)
	f.pass(time.Minute)
	return f.heads[source]
}

func (f *fleet) pass(d time.Duration) {
	f.t.Helper()
	f.now = f.now.Add(d)
	f.settle()
}

func (f *fleet) of(source string) *api.Source {
	src, _ := f.st.Get(store.Key{GroupResource: api.Sources(), Name: source}).(*api.Source)
	return src
}

// owner is the source that declares a ConfigMap; "none" when nobody does, "" when it is
// not there.
func (f *fleet) owner(ns, name string) string {
	obj := f.get("configmaps", ns, name)
	if obj == nil {
		return ""
	}
	from, ok := api.ProvenanceOf(obj)
	if !ok {
		return "none"
	}
	return from.Source
}

func mapIn(ns, name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {k: %q}\n", name, ns, value)
}

func space(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
}

// naming is a configuration that names sources: "a: ns1, ns2" each.
func naming(entries ...string) string {
	out := "apiVersion: headway.dev/v1\nkind: Config\nsources:\n"
	for _, e := range entries {
		name, spaces, _ := strings.Cut(e, ": ")
		out += fmt.Sprintf("- {name: %s, repository: /srv/%s.git, namespaces: [%s]}\n", name, name, spaces)
	}
	return out
}

// two is a main source that names a and b, each with a namespace, and has one object.
func two() map[string]string {
	return map[string]string{api.ConfigFile: naming("a: a", "b: b"), "a.yaml": space("a"), "b.yaml": space("b"), "m.yaml": configMap("m", "1")}
}

func without(files map[string]string, names ...string) map[string]string {
	out := maps.Clone(files)
	for _, n := range names {
		delete(out, n)
	}
	return out
}

func TestFurtherSourcesAreFollowed(t *testing.T) {
	f := newFleet(t)
	f.main(f.world.repo.add("m1", "", two()))
	if f.of("a") == nil || f.of("b") == nil || f.of("a").Spec.URL != "/srv/a.git" {
		t.Fatalf("the Sources are not there: %v", f.s.sources())
	}
	a1 := f.publish("a", "a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1")})
	f.publish("b", "b1", "", map[string]string{"x.yaml": mapIn("b", "x", "1")})
	if f.owner("a", "x") != "a" || f.owner("b", "x") != "b" || f.owner("default", "m") != "main" {
		t.Fatalf("owners: %q, %q, %q", f.owner("a", "x"), f.owner("b", "x"), f.owner("default", "m"))
	}
	if st := f.of("a").Status; st.Applied != a1 || st.Objects != 1 || f.status().Objects != 3 {
		t.Errorf("status of a: %+v; of main: %+v", st, f.status())
	}
	// Each removes only what is its own, and heals only that.
	f.publish("a", "a2", "a1", map[string]string{"v.yaml": mapIn("a", "v", "1")})
	if f.owner("a", "x") != "" || f.owner("a", "v") != "a" || f.owner("b", "x") != "b" {
		t.Error("a's second commit is not what is there")
	}
	f.change("configmaps", "b", "x", func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = "hand" })
	f.settle()
	if got := f.get("configmaps", "b", "x").(*corev1.ConfigMap).Data["k"]; got != "1" {
		t.Errorf("the drift of b is not healed: %q", got)
	}
	var r *api.DriftRecord
	if list := f.all["b"].driftRecords(); len(list) == 1 {
		r = list[0]
	}
	if r == nil || r.Source != "b" || len(f.all["a"].driftRecords())+len(f.s.driftRecords()) != 0 {
		t.Errorf("the drift is not recorded for b alone: %v", r)
	}
	if f.s.receipts()[0].Source != "main" || len(f.all["a"].receipts()) != 2 || len(f.all["b"].receipts()) != 1 {
		t.Error("each source has receipts of its own")
	}
	// A restart changes nothing.
	before := f.st.Revision()
	f.again()
	f.settle()
	f.pass(10 * time.Minute)
	if f.st.Revision() != before {
		t.Errorf("a restart wrote: revision %d → %d", before, f.st.Revision())
	}
}

// What one source cannot do does not hold up the others (R13), nor does its failing
// forge; a rewritten history of one is refused for that one (R1).
func TestR1_R13_FurtherSourcesAreIsolated(t *testing.T) {
	f := newFleet(t)
	f.main(f.world.repo.add("m1", "", two()))
	f.publish("a", "a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1")})
	f.publish("a", "other", "", map[string]string{"x.yaml": mapIn("a", "x", "2")})
	if st := f.of("a").Status; !strings.Contains(st.Message, "not a descendant") || st.Refused == "" {
		t.Errorf("a rewritten history of a: %+v", st)
	}
	f.repo("a").fail = fmt.Errorf("no answer")
	f.publish("b", "b1", "", map[string]string{"x.yaml": mapIn("b", "x", "1")})
	f.main(f.world.repo.add("m2", "m1", two()))
	if f.owner("b", "x") != "b" || f.status().Applied != commitID("m2") || f.of("a").Status.Applied != commitID("a1") {
		t.Errorf("a holds up the others: b %+v, main %+v", f.of("b").Status, f.status())
	}
	if f.of("a").Status.Message != "no answer" {
		t.Errorf("a's trouble is not told: %+v", f.of("a").Status)
	}
	// A pause of one is its own.
	if _, err := Order(context.Background(), f.st, "b", func(src *api.Source) error {
		src.Orders.Pause = &api.Pause{Until: metav1.NewTime(f.now.Add(time.Hour)), By: "ada", Why: "x"}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f.publish("b", "b2", "b1", map[string]string{"x.yaml": mapIn("b", "x", "2")})
	f.main(f.world.repo.add("m3", "m2", two()))
	if f.of("b").Status.Applied != commitID("b1") || f.status().Applied != commitID("m3") {
		t.Errorf("a pause of b: b %+v, main %+v", f.of("b").Status, f.status())
	}
}

func TestR2_AFurtherSourceStaysInItsNamespaces(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"another namespace": {map[string]string{"x.yaml": mapIn("a", "x", "1"), "v.yaml": mapIn("b", "v", "1")},
			"v.yaml:3:21: metadata.namespace: source a may not write to namespace b: its entry in the configuration of the main source names a"},
		"no namespace at all":     {map[string]string{"n.yaml": space("a2")}, "n.yaml:2:1: kind: source a may not write to a Namespace, which is in no namespace"},
		"sources of its own":      {map[string]string{"x.yaml": mapIn("a", "x", "1"), api.ConfigFile: naming("c: a")}, ".headway.yaml:3:1: sources: only the main source may name further ones, and source a is one of these"},
		"what the main declares":  {map[string]string{"x.yaml": mapIn("a", "x", "1"), "t.yaml": mapIn("a", "taken", "1")}, "t.yaml:3:12: metadata.name: ConfigMap a/taken is declared by source main already, in its t.yaml:1 at commit m10000000000:"},
		"a namespace that is not": {map[string]string{"x.yaml": mapIn("a3", "x", "1")}, `x.yaml:3:21: metadata.namespace: namespace "a3" does not exist: declare it in the repository of the main source`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			files := two()
			files[api.ConfigFile] = naming("a: a", "b: b")
			if strings.Contains(c.want, "a3") {
				files[api.ConfigFile] = naming("a: a, a3")
			}
			files["t.yaml"] = mapIn("a", "taken", "main")
			f.main(f.world.repo.add("m1", "", files))
			f.publish("a", "a1", "", c.files)
			st := f.of("a").Status
			if st.Refused != commitID("a1") || st.Applied != "" || len(st.Problems) != 1 || !strings.HasPrefix(st.Problems[0], c.want) {
				t.Errorf("problems: %q; %+v", st.Problems, st)
			}
			if f.owner("a", "x") != "" || f.owner("b", "v") != "" || f.owner("a", "taken") != "main" {
				t.Error("a refused commit changed something")
			}
		})
	}
}

// A source may be given everything.
func TestAFurtherSourceWithEveryNamespace(t *testing.T) {
	f := newFleet(t)
	f.main(f.world.repo.add("m1", "", map[string]string{api.ConfigFile: naming(`a: "*"`), "m.yaml": configMap("m", "1")}))
	f.publish("a", "a1", "", map[string]string{"n.yaml": space("a2"), "x.yaml": mapIn("a2", "x", "1")})
	if f.owner("a2", "x") != "a" || f.get("namespaces", "", "a2") == nil {
		t.Errorf("status: %+v", f.of("a").Status)
	}
}

// What was missing may come without a new commit: a first commit that was refused is
// judged again at each resync.
func TestAFirstCommitIsJudgedAgain(t *testing.T) {
	f := newFleet(t)
	files := map[string]string{api.ConfigFile: naming("a: a"), "m.yaml": configMap("m", "1")}
	f.main(f.world.repo.add("m1", "", files))
	f.publish("a", "a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1")})
	if f.of("a").Status.Refused == "" {
		t.Fatalf("status: %+v", f.of("a").Status)
	}
	receipts := len(f.all["a"].receipts())
	f.pass(6 * time.Minute)
	f.pass(6 * time.Minute)
	if n := len(f.all["a"].receipts()); f.of("a").Status.Refused == "" || n != receipts {
		t.Errorf("it is refused again, and that is told once: %+v, %d receipts", f.of("a").Status, n)
	}
	more := maps.Clone(files)
	more["a.yaml"] = space("a")
	f.main(f.world.repo.add("m2", "m1", more))
	f.pass(6 * time.Minute)
	f.pass(6 * time.Minute)
	if f.owner("a", "x") != "a" || f.of("a").Status.Applied != commitID("a1") {
		t.Errorf("status: %+v", f.of("a").Status)
	}
}

// An entry that goes leaves what its source has made, and nobody's.
func TestR3_ARemovedEntryLeavesItsObjects(t *testing.T) {
	f := newFleet(t)
	f.main(f.world.repo.add("m1", "", two()))
	f.publish("a", "a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1"), "v.yaml": mapIn("a", "v", "1")})
	f.publish("b", "b1", "", map[string]string{"x.yaml": mapIn("b", "x", "1")})
	f.change("configmaps", "a", "v", func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = "hand" })
	f.settle()
	uid := f.get("configmaps", "a", "x").GetUID()

	files := two()
	files[api.ConfigFile] = naming("b: b")
	m2 := f.world.repo.add("m2", "m1", files)
	v, err := f.s.Judge(context.Background(), Candidate{Commit: m2})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	v.writeNotes(&said, 0)
	for _, want := range []string{
		"- delete Source a: followed no longer; what it declared (2 objects) stays and is nobody's. To delete it, say so in the last paragraph of the commit message: Allow-Delete: Source/a",
		"~ update ConfigMap a/x (x.yaml:1): source a is followed no longer; it stays, and no source declares it",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, said.String())
		}
	}
	f.main(m2)
	if f.status().Applied != m2 || f.of("a") != nil {
		t.Fatalf("status %+v, Source %v", f.status(), f.of("a"))
	}
	if f.owner("a", "x") != "none" || f.owner("a", "v") != "none" || f.get("configmaps", "a", "x").GetUID() != uid || f.owner("b", "x") != "b" {
		t.Errorf("owners: %q, %q, %q", f.owner("a", "x"), f.owner("a", "v"), f.owner("b", "x"))
	}
	if left := f.s.leaves("a"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// Nothing of it comes back.
	f.publish("a", "a2", "a1", map[string]string{"z.yaml": mapIn("a", "z", "1")})
	f.remove("configmaps", "a", "v")
	f.pass(10 * time.Minute)
	if f.owner("a", "z") != "" || f.owner("a", "v") != "" {
		t.Error("a source that is followed no longer writes")
	}
	// The entry again: what stays declared is adopted, and nothing is deleted.
	f.main(f.world.repo.add("m3", "m2", two()))
	f.pass(time.Minute)
	if f.owner("a", "x") != "none" || f.owner("a", "z") != "a" {
		t.Errorf("followed again: x %q, z %q; %+v", f.owner("a", "x"), f.owner("a", "z"), f.of("a").Status)
	}
}

func TestR3_ATrailerDeletesWhatARemovedEntryMade(t *testing.T) {
	f := newFleet(t)
	f.main(f.world.repo.add("m1", "", two()))
	many := map[string]string{}
	for i := range 40 {
		many[fmt.Sprintf("x%d.yaml", i)] = mapIn("a", fmt.Sprintf("x%d", i), "1")
	}
	f.publish("a", "a1", "", many)
	f.publish("b", "b1", "", map[string]string{"x.yaml": mapIn("b", "x", "1")})
	files := two()
	files[api.ConfigFile] = naming("b: b")
	m2 := f.world.repo.say(f.world.repo.add("m2", "m1", files), "Allow-Delete: Source/a")
	f.main(m2)
	if f.status().Applied != m2 || f.of("a") != nil {
		t.Fatalf("status %+v, Source %v", f.status(), f.of("a"))
	}
	for i := range 40 {
		if o := f.owner("a", fmt.Sprintf("x%d", i)); o != "" {
			t.Fatalf("x%d is there, declared by %q", i, o)
		}
	}
	if f.owner("b", "x") != "b" || len(f.s.leaves("a")) != 0 {
		t.Error("too much, or too little, is gone")
	}
	for _, r := range f.s.receipts() {
		if r.Commit == m2 && r.Deleted != 41 { // and the Source
			t.Errorf("the receipt counts %d deletions", r.Deleted)
		}
	}
	// "all" is about the limit: it does not delete what nobody asked to be deleted.
	f.main(f.world.repo.say(f.world.repo.add("m3", "m2", without(two(), api.ConfigFile)), "Allow-Delete: all"))
	if f.owner("b", "x") != "none" {
		t.Errorf("b's object: %q", f.owner("b", "x"))
	}
}

// What destroys data is named by itself, also then.
func TestR3_ANamespaceOfARemovedEntryIsNamed(t *testing.T) {
	f := newFleet(t)
	with := map[string]string{api.ConfigFile: naming(`a: "*"`), "m.yaml": configMap("m", "1")}
	f.main(f.world.repo.add("m1", "", with))
	f.publish("a", "a1", "", map[string]string{"n.yaml": space("a2"), "x.yaml": mapIn("a2", "x", "1")})
	m2 := f.world.repo.say(f.world.repo.add("m2", "m1", without(with, api.ConfigFile)), "Allow-Delete: Source/a")
	f.main(m2)
	if st := f.status(); st.Refused != m2 || !strings.Contains(st.Message, "Allow-Delete: Namespace/a2") || f.owner("a2", "x") != "a" {
		t.Errorf("status: %+v", st)
	}
}

// An object can go from a source that is removed to the main one in one commit.
func TestTheMainSourceTakesOver(t *testing.T) {
	f := newFleet(t)
	f.main(f.world.repo.add("m1", "", two()))
	f.publish("a", "a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1")})
	uid := f.get("configmaps", "a", "x").GetUID()
	files := two()
	files["x.yaml"] = mapIn("a", "x", "2")
	m2 := f.world.repo.add("m2", "m1", files)
	f.main(m2)
	if st := f.status(); st.Refused != m2 || !strings.HasPrefix(st.Problems[0], "x.yaml:3:12: metadata.name: ConfigMap a/x is declared by source a already, in its x.yaml:1") {
		t.Fatalf("status: %+v", st)
	}
	files[api.ConfigFile] = naming("b: b")
	f.main(f.world.repo.say(f.world.repo.add("m3", "m2", files), "Allow-Delete: Source/a"))
	if f.owner("a", "x") != "main" || f.get("configmaps", "a", "x").GetUID() != uid || f.get("configmaps", "a", "x").(*corev1.ConfigMap).Data["k"] != "2" {
		t.Errorf("x: %q; %+v", f.owner("a", "x"), f.status())
	}
}

// A source whose entry names fewer namespaces lets go of what is in the others.
func TestFewerNamespaces(t *testing.T) {
	f := newFleet(t)
	files := two()
	files[api.ConfigFile] = naming("a: a, b")
	f.main(f.world.repo.add("m1", "", files))
	f.publish("a", "a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1"), "v.yaml": mapIn("b", "v", "1")})
	if f.owner("b", "v") != "a" {
		t.Fatalf("status: %+v", f.of("a").Status)
	}
	less := two()
	less[api.ConfigFile] = naming("a: a")
	f.main(f.world.repo.add("m2", "m1", less))
	f.pass(time.Minute)
	if f.owner("b", "v") != "none" || f.owner("a", "x") != "a" {
		t.Errorf("owners: %q, %q", f.owner("b", "v"), f.owner("a", "x"))
	}
	if st := f.of("a").Status; !strings.Contains(st.Message, "may not write 1 object of the applied commit any more") || len(st.Problems) != 1 {
		t.Errorf("status: %+v", st)
	}
	// It writes there no more, whoever changes it.
	f.change("configmaps", "b", "v", func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = "hand" })
	f.pass(10 * time.Minute)
	if got := f.get("configmaps", "b", "v").(*corev1.ConfigMap).Data["k"]; got != "hand" || f.owner("b", "v") != "none" {
		t.Errorf("v is %q, declared by %q", got, f.owner("b", "v"))
	}
	// And again when the entry says so.
	f.main(f.world.repo.add("m3", "m2", files))
	f.pass(time.Minute)
	if got := f.get("configmaps", "b", "v").(*corev1.ConfigMap).Data["k"]; got != "1" || f.owner("b", "v") != "a" || f.of("a").Status.Message != "" {
		t.Errorf("v is %q, declared by %q; %+v", got, f.owner("b", "v"), f.of("a").Status)
	}
}

// Another source's object that was deleted by hand, or a Job of it that has run, is
// that source's still.
func TestWhatIsNotThereIsDeclaredElsewhere(t *testing.T) {
	f := newFleet(t)
	files := two()
	files["t.yaml"] = mapIn("a", "taken", "main")
	f.main(f.world.repo.add("m1", "", files))
	if _, err := Order(context.Background(), f.st, "main", func(src *api.Source) error {
		src.Orders.Pause = &api.Pause{Until: metav1.NewTime(f.now.Add(20 * time.Minute)), By: "ada", Why: "x"}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f.remove("configmaps", "a", "taken")
	f.settle()
	f.publish("a", "a1", "", map[string]string{"t.yaml": mapIn("a", "taken", "a")})
	if st := f.of("a").Status; st.Refused == "" || !strings.Contains(st.Problems[0], "is declared by source main already, in its t.yaml:1") || f.owner("a", "taken") != "" {
		t.Errorf("status: %+v", st)
	}
}
