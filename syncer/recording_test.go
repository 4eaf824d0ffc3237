package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// by changes a live object as a user of the API does: with the record of who did
// it in the same transaction. A nil change deletes it.
func (w *world) by(user, resource, ns, name string, change func(api.Object)) {
	w.t.Helper()
	live := w.get(resource, ns, name)
	if live == nil {
		w.t.Fatalf("no %s %s/%s", resource, ns, name)
	}
	kind, _ := api.ResourceKind(key(resource, ns, name).GroupResource)
	e := &api.Edit{ObjectMeta: metav1.ObjectMeta{Name: api.RecordName(kind.GroupResource(), ns, name)}, Object: api.RefTo(kind, ns, name),
		Source: "main", Actor: api.Actor{User: user, Manager: "kubectl-edit", Verb: "patch"}, Time: metav1.NewMicroTime(w.now)}
	also := store.Op{Verb: store.Create, Object: e}
	if old := w.st.Get(store.KeyOf(e)); old != nil {
		also.Verb = store.Update
		e.SetResourceVersion(old.GetResourceVersion())
	}
	op := store.Op{Verb: store.Delete, Object: live}
	if change != nil {
		obj := live.DeepCopyObject().(api.Object)
		change(obj)
		bumpGeneration(obj, live)
		op = store.Op{Verb: store.Update, Object: obj}
	}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{op, also}}); err != nil {
		w.t.Fatal(err)
	}
}

func scale(n int32) func(api.Object) {
	return func(o api.Object) { o.(*appsv1.Deployment).Spec.Replicas = &n }
}

func (w *world) replicas() int32 {
	w.t.Helper()
	return *w.get("deployments", "default", "web").(*appsv1.Deployment).Spec.Replicas
}

// record is the record about an object; nil when there is none.
func (w *world) record(resource, ns, name string) *api.DriftRecord {
	storetest.Settle(w.t, w.st)
	return w.s.driftRecord(key(resource, ns, name))
}

func (w *world) edits() int { return len(w.st.List(api.Edits(), "")) }

// happened are the reasons and texts of the Events, one a line.
func (w *world) happened() string {
	storetest.Settle(w.t, w.st)
	var out []string
	for _, obj := range w.st.List(api.Events(), "") {
		e := obj.(*corev1.Event)
		out = append(out, fmt.Sprintf("%s %s/%s: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
	}
	return strings.Join(out, "\n")
}

func TestDriftIsRecordedWithWhoDidIt(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"web.yaml": app})
	w.push(c1)
	w.by("ann", "deployments", "default", "web", scale(5))
	w.settle()
	r := w.record("deployments", "default", "web")
	if r == nil {
		t.Fatal("no record")
	}
	if len(r.Fields) != 1 || r.Fields[0].Path != "spec.replicas" || string(r.Fields[0].Declared) != "3" || string(r.Fields[0].Live) != "5" {
		t.Errorf("fields %+v", r.Fields)
	}
	if r.Actor.User != "ann" || r.Fields[0].Actor.User != "ann" || r.Commit != c1 || r.Path != "web.yaml" || r.Line != 1 || r.Deleted || r.Open() || !strings.Contains(string(r.Live), `"replicas":5`) {
		t.Errorf("record %+v", r)
	}
	if n := w.replicas(); n != 3 {
		t.Errorf("replicas %d", n)
	}
	if n := w.edits(); n != 0 {
		t.Errorf("%d edits are left", n)
	}
	contain(t, w.happened(), "Drift Deployment/web: ann (kubectl-edit) changed spec.replicas 3 → 5; put back as web.yaml says")
}

func contain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in\n%s", p, text)
		}
	}
}

// TestR4_DriftIsRecordedInTheTransactionThatHeals kills the syncer before and after
// every write: no object is ever put back without a record.
func TestR4_DriftIsRecordedInTheTransactionThatHeals(t *testing.T) {
	for _, after := range []bool{false, true} {
		for kill := 1; ; kill++ {
			w := newWorld(t)
			w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
			w.by("ann", "deployments", "default", "web", scale(5))
			w.commits = 0
			killed := false
			w.around = func(n int, commit func() (int64, error)) (int64, error) {
				if n < kill {
					return commit()
				}
				killed = true
				if n == kill && after {
					if _, err := commit(); err != nil {
						t.Fatal(err)
					}
				}
				return 0, store.ErrUnavailable
			}
			for range 5 {
				storetest.Settle(t, w.st)
				w.s.Step(context.Background())
			}
			w.around = nil
			if r := w.record("deployments", "default", "web"); (w.replicas() == 3) != (r != nil) {
				t.Errorf("kill %d after=%t: replicas %d, record %v", kill, after, w.replicas(), r)
			}
			w.open()
			w.settle()
			if r := w.record("deployments", "default", "web"); r == nil || r.Actor.User != "ann" || w.replicas() != 3 || r.Heals != 1 {
				t.Errorf("kill %d after=%t: replicas %d, record %+v", kill, after, w.replicas(), r)
			}
			if !killed {
				break
			}
		}
	}
}

func TestDeletionIsReportedWithWhoDidIt(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.by("ann", "deployments", "default", "web", nil)
	w.settle()
	if r := w.record("deployments", "default", "web"); r == nil || !r.Deleted || r.Open() || r.Actor.User != "ann" || len(r.Live) > 0 {
		t.Errorf("record %+v", r)
	}
	if w.get("deployments", "default", "web") == nil {
		t.Error("not made again")
	}
	contain(t, w.happened(), "ann (kubectl-edit) deleted it; put back")
}

func TestADeletedNamespaceIsDriftOfAllThatIsInIt(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"ns.yaml": namespaceFile("ns1") + "---\n" + edit(configMap("x", "1"), "name: x", "name: x, namespace: ns1")}))
	w.by("ann", "namespaces", "", "ns1", func(o api.Object) { markDeleted(o, w.now, 0) })
	w.settle()
	if r := w.record("namespaces", "", "ns1"); r == nil || !r.Deleted || !r.Open() || r.Why == "" {
		t.Fatalf("record %+v", r)
	}
	w.remove("configmaps", "ns1", "x") // as the namespace controller does
	w.settle()
	if r := w.record("configmaps", "ns1", "x"); r == nil || !r.Open() || r.Actor.User != "ann" || r.Actor.Verb != "delete namespace" {
		t.Errorf("record %+v", r)
	}
	w.finish()
	for _, r := range w.s.driftRecords() {
		if r.Open() {
			t.Errorf("still open: %+v", r)
		}
	}
}

func TestNotDrift(t *testing.T) {
	w := newWorld(t)
	unscaled := edit(app, "  replicas: 3\n", "")
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": unscaled}))
	for what, change := range map[string]func(api.Object){
		"a label nobody declares":       func(o api.Object) { o.SetLabels(map[string]string{"x": "y"}) },
		"replicas nobody declares":      scale(7),
		"the status":                    func(o api.Object) { o.(*appsv1.Deployment).Status.Replicas = 9 },
		"an annotation nobody declares": func(o api.Object) { o.GetAnnotations()["x"] = "y" },
	} {
		w.by("ann", "deployments", "default", "web", change)
		w.settle()
		if r := w.record("deployments", "default", "web"); r != nil {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if n := w.replicas(); n != 7 {
		t.Errorf("replicas %d", n)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.settle()
	if n := w.edits(); n != 0 {
		t.Errorf("%d edits are left", n)
	}
}

func TestDriftReport(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"report/web.yaml": app, "report/a.yaml": configMap("a", "1"), "report/b.yaml": configMap("b", "1")}
	w.push(w.repo.add("c1", "", files))
	w.by("ann", "deployments", "default", "web", scale(5))
	w.by("bob", "configmaps", "default", "a", nil)
	w.settle()
	r := w.record("deployments", "default", "web")
	if r == nil || !r.Open() || r.Why != "drift: report" || w.replicas() != 5 {
		t.Fatalf("replicas %d, record %+v", w.replicas(), r)
	}
	since := r.Since
	w.now = w.now.Add(10 * time.Second)
	w.by("bob", "deployments", "default", "web", func(o api.Object) { o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image = "web:9" })
	w.settle()
	r = w.record("deployments", "default", "web")
	if len(r.Fields) != 2 || r.Fields[0].Path != "spec.replicas" || r.Fields[0].Actor.User != "ann" || !r.Fields[0].Since.Equal(&since) || r.Fields[1].Actor.User != "bob" || !r.Since.Equal(&since) {
		t.Fatalf("fields %+v", r.Fields)
	}
	if got := w.get("configmaps", "default", "a"); got != nil {
		t.Error("a deletion that is only told was healed")
	}
	// A commit writes only what it changes.
	files = map[string]string{"report/web.yaml": edit(app, "web:1", "web:2"), "report/a.yaml": configMap("a", "1"), "report/b.yaml": configMap("b", "2")}
	w.push(w.repo.add("c2", "c1", files))
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	d := w.get("deployments", "default", "web").(*appsv1.Deployment)
	if n := w.replicas(); n != 5 || d.Spec.Template.Spec.Containers[0].Image != "web:2" {
		t.Errorf("replicas %d, image %s", n, d.Spec.Template.Spec.Containers[0].Image)
	}
	if p, _ := api.ProvenanceOf(d); p.Commit != commitID("c2") {
		t.Errorf("provenance %+v", p)
	}
	if r := w.record("deployments", "default", "web"); len(r.Fields) != 1 || r.Fields[0].Path != "spec.replicas" || r.Commit != commitID("c2") || !r.Open() {
		t.Errorf("record %+v", r)
	}
	if w.get("configmaps", "default", "a") != nil {
		t.Error("a commit that did not change it brought back what was deleted")
	}
	if w.status().Applied != commitID("c2") {
		t.Errorf("status %+v", w.status())
	}
	// Somebody puts it back: the record ends.
	w.by("ann", "deployments", "default", "web", scale(3))
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	if r := w.record("deployments", "default", "web"); r.Open() || r.Healer.User != "ann" {
		t.Errorf("record %+v", r)
	}
	// The manifest of what was deleted changes: it is made.
	files["report/a.yaml"] = configMap("a", "2")
	w.push(w.repo.add("c3", "c2", files))
	if w.get("configmaps", "default", "a") == nil {
		t.Error("not made, although its manifest changed")
	}
	if r := w.record("configmaps", "default", "a"); r == nil || r.Open() {
		t.Errorf("record %+v", r)
	}
	// It is no longer declared: nothing drifts.
	w.by("ann", "deployments", "default", "web", scale(8))
	w.settle()
	delete(files, "report/web.yaml")
	w.push(w.repo.add("c4", "c3", files))
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	if r := w.record("deployments", "default", "web"); r == nil || r.Open() {
		t.Errorf("record %+v", r)
	}
}

func TestAnotherPolicyHeals(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"report/web.yaml": app}))
	w.by("ann", "deployments", "default", "web", scale(5))
	w.settle()
	w.push(w.repo.add("c2", "c1", map[string]string{"web.yaml": app}))
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	if n := w.replicas(); n != 3 {
		t.Errorf("replicas %d", n)
	}
}

// TestFightBacksOff: a writer that sets a field whenever it was put back.
func TestFightBacksOff(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	heals := 0
	start := w.now
	for w.now.Sub(start) < time.Hour {
		if w.replicas() == 3 {
			heals++
			w.by("robot", "deployments", "default", "web", scale(9))
		}
		w.settle()
		if next := w.s.Next(); next.After(w.now) && next.Sub(w.now) < time.Minute {
			w.now = next
		} else {
			w.now = w.now.Add(time.Second)
		}
	}
	// 3 at once, then 1 s, 2 s, 4 s … and at last 5 minutes apart.
	if heals < 12 || heals > 25 {
		t.Errorf("%d heals in an hour", heals)
	}
	text := w.happened()
	if n := strings.Count(text, "DriftFight"); n != 1 {
		t.Errorf("the fight is told %d times:\n%s", n, text)
	}
	contain(t, text, "two writers fight: robot (kubectl-edit) sets spec.replicas again each time that Headway puts it back as web.yaml:1 says")
	if n := strings.Count(text, "Drift Deployment/web"); n != 1 {
		t.Errorf("%d events:\n%s", n, text)
	}
	// It ends: the field is put back, and the next heal comes at once again.
	w.now = w.now.Add(longPause)
	w.settle()
	if n := w.replicas(); n != 3 {
		t.Errorf("replicas %d", n)
	}
	w.now = w.now.Add(2 * healMemory)
	w.by("ann", "deployments", "default", "web", scale(9))
	w.settle()
	if r := w.record("deployments", "default", "web"); w.replicas() != 3 || r.Fight || r.Heals != 1 {
		t.Errorf("replicas %d, record %+v", w.replicas(), r)
	}
}

// TestFightIsOverAField: people who change different fields of an object do not fight,
// and each field that is fought over is told once.
func TestFightIsOverAField(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	image := func(o api.Object) { o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image = "evil:1" }
	change := func(user string, edit func(api.Object)) {
		t.Helper()
		w.by(user, "deployments", "default", "web", edit)
		for w.settle(); w.record("deployments", "default", "web").Open(); w.settle() {
			w.now = w.s.Next()
		}
	}
	change("ann", scale(9))
	change("bob", image)
	change("ann", scale(8))
	change("bob", image)
	if r := w.record("deployments", "default", "web"); r.Fight || r.Heals != 4 {
		t.Errorf("record %+v", r)
	}
	if text := w.happened(); strings.Contains(text, "DriftFight") {
		t.Errorf("two heals of each field are a fight:\n%s", text)
	}
	for range 3 {
		change("ann", scale(9))
		change("bob", image)
	}
	text := w.happened()
	if n := strings.Count(text, "DriftFight"); n != 2 {
		t.Errorf("the fights are told %d times:\n%s", n, text)
	}
	contain(t, text, "ann (kubectl-edit) sets spec.replicas again each time")
	contain(t, text, "bob (kubectl-edit) sets spec.template.spec.containers[web].image again each time")
}

// TestManyFieldsOfAFightAreBounded: what is counted has an end, and what is beyond it
// is not news each time.
func TestManyFieldsOfAFightAreBounded(t *testing.T) {
	r := &api.DriftRecord{}
	for i := range 2 * maxFought {
		r.Fields = append(r.Fields, api.DriftField{Path: fmt.Sprintf("data.k%d", i)})
	}
	var told []int
	for range healsAtOnce + 2 {
		fought := countHeal(r)
		r.Fight = r.Fight || len(fought) > 0
		told = append(told, len(fought))
	}
	if want := []int{0, 0, maxFought, 0, 0}; !slices.Equal(told, want) || len(r.FieldHeals) != maxFought || !fights(r) {
		t.Errorf("told %v, counted %d, fights %t", told, len(r.FieldHeals), fights(r))
	}
}

// TestDriftRecordsAreBounded: a writer that never stops, of what is only told.
func TestDriftRecordsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"report/web.yaml": app}))
	w.commits = 0
	for i := range 100 {
		w.by("robot", "deployments", "default", "web", scale(int32(10+i)))
		w.now = w.now.Add(10 * time.Millisecond)
		storetest.Settle(t, w.st)
		w.s.Step(context.Background())
	}
	if w.commits > 10 {
		t.Errorf("%d writes about 100 changes in a second", w.commits)
	}
	w.now = w.now.Add(2 * time.Second)
	w.settle()
	if r := w.record("deployments", "default", "web"); string(r.Fields[0].Live) != "109" {
		t.Errorf("fields %+v", r.Fields)
	}
	if n := len(w.s.driftRecords()); n != 1 {
		t.Errorf("%d records", n)
	}
}

func TestR14_NoRecordHoldsASecretsValue(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: declared-value}\n"}))
	w.by("ann", "secrets", "default", "s", func(o api.Object) { o.(*corev1.Secret).Data["k"] = []byte("changed-value") })
	w.settle()
	r := w.record("secrets", "default", "s")
	if r == nil || len(r.Fields) != 1 || !r.Fields[0].Hidden || r.Fields[0].Path != "data.k" {
		t.Fatalf("record %+v", r)
	}
	for _, text := range []string{storeText(r), w.happened()} {
		for _, v := range []string{"declared-value", "changed-value", "ZGVjbGFyZWQtdmFsdWU=", "Y2hhbmdlZC12YWx1ZQ=="} {
			if strings.Contains(text, v) {
				t.Errorf("%s in %s", v, text)
			}
		}
	}
}

// TestTakingBackAHalfAppliedCommitIsNoDrift: what we wrote ourselves is nobody's
// edit.
func TestTakingBackAHalfAppliedCommitIsNoDrift(t *testing.T) {
	w := newWorld(t)
	w.bulk = 3
	w.open()
	w.push(w.repo.add("c1", "", configFiles(4)))
	changed := map[string]string{}
	for name, text := range configFiles(4) {
		changed[name] = strings.ReplaceAll(text, `"1"`, `"2"`)
	}
	c2 := w.repo.say(w.repo.add("c2", "c1", changed), "Allow-Delete: all")
	w.setRef("refs/heads/main", c2)
	w.commits = 0
	w.around = func(n int, commit func() (int64, error)) (int64, error) {
		if n > 2 {
			return 0, store.ErrUnavailable
		}
		return commit()
	}
	for range 5 {
		storetest.Settle(t, w.st)
		w.s.Step(context.Background())
	}
	w.around = nil
	w.push(w.repo.add("c3", "c2", map[string]string{"bad.yaml": "kind: [\n"}))
	w.finish()
	if r := w.s.driftRecords(); len(r) > 0 {
		t.Errorf("records %+v", r[0])
	}
}

// TestDriftIsToldWhilePaused: a pause stops healing, not telling.
func TestDriftIsToldWhilePaused(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.change("sources", "", "main", func(o api.Object) {
		o.(*api.Source).Orders.Pause = &api.Pause{Since: metav1.NewTime(w.now), Until: metav1.NewTime(w.now.Add(time.Hour)), By: "ann", Why: "a look"}
	})
	w.settle()
	w.by("ann", "deployments", "default", "web", scale(5))
	w.settle()
	if r := w.record("deployments", "default", "web"); r == nil || !r.Open() || !strings.HasPrefix(r.Why, "paused until 2026-01-01 01:00:0") || w.replicas() != 5 {
		t.Fatalf("replicas %d, record %+v", w.replicas(), r)
	}
	w.now = w.now.Add(61 * time.Minute)
	w.settle()
	if r := w.record("deployments", "default", "web"); r.Open() || w.replicas() != 3 || r.Actor.User != "ann" {
		t.Errorf("replicas %d, record %+v", w.replicas(), r)
	}
}

// What admission adds to the tolerations of a declared Pod is no drift.
func TestAdmittedTolerationsAreNoDrift(t *testing.T) {
	w := newWorld(t)
	pod := `apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
  containers: [{name: c, image: web:1}]
`
	c1 := w.repo.add("c1", "", map[string]string{"p.yaml": pod})
	w.push(c1)
	if p, _ := w.get("pods", "default", "p").(*corev1.Pod); p == nil || len(p.Spec.Tolerations) != 3 {
		t.Fatalf("pod %+v", p)
	}
	w.change("pods", "default", "p", func(o api.Object) { o.SetLabels(map[string]string{"x": "y"}) })
	w.now = w.now.Add(10 * time.Minute)
	w.settle()
	if r := w.record("pods", "default", "p"); r != nil {
		t.Errorf("drift %+v", r)
	}
	c2 := w.repo.add("c2", "c1", map[string]string{"p.yaml": edit(pod, "name: p}", "name: p, labels: {a: b}}")})
	w.push(c2)
	if st := w.status(); st.Applied != c2 {
		t.Errorf("status %+v", st)
	}
}

// TestDriftNamesTheFileThatSaysIt: of what a kustomization made, the field may stand in
// another file than the object.
func TestDriftNamesTheFileThatSaysIt(t *testing.T) {
	r := newRemote(t)
	first := r.commit("ada", map[string]string{
		"deploy/base/kustomization.yaml": "resources: [web.yaml]\n", "deploy/base/web.yaml": app,
		"deploy/over/kustomization.yaml": "resources: [../base]\nreplicas: [{name: web, count: 2}]\npatches: [{path: image.yaml}]\n",
		"deploy/over/image.yaml":         "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web, image: 'web:2'}]}}}\n",
	})
	w := forged(t, r)
	w.settle()
	if st := w.status(); st.Applied != first {
		t.Fatalf("status %+v", st)
	}
	w.change("deployments", "default", "web", func(o api.Object) {
		d := o.(*appsv1.Deployment)
		five := int32(5)
		d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image = &five, "web:9"
	})
	w.settle()
	contain(t, w.happened(), "changed spec.replicas 2 → 5, spec.template.spec.containers[web].image web:2 → web:9; put back as deploy/over/kustomization.yaml and deploy/over/image.yaml say")
}
