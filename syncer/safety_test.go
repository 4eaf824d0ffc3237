package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

const migrate = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: c
        image: migrate:1
`

// variants are the forms that each file of a drawn commit may have.
func variants() map[string][]string {
	var maps []string
	for i := range 3 {
		maps = append(maps, configMap("a", fmt.Sprint(i)))
	}
	return map[string][]string{
		"a.yaml": maps,
		"b.yaml": {configMap("b", "1"), configMap("b", "1") + "---\n" + configMap("b2", "1")},
		"c.yaml": {configMap("c", "1")},
		"n.yaml": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: ns1}\n---\n" + edit(configMap("x", "1"), "name: x", "name: x, namespace: ns1"),
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: ns1, labels: {l: x}}\n",
		},
		"web.yaml": {
			app, edit(app, "web:1", "web"), edit(app, "web:1", "web:2", "  replicas: 3\n", "  replicas: 2\n"),
			edit(app, "  replicas: 3\n", "  replicas: 3\n  strategy: {type: Recreate}\n"),
			edit(app, "  replicas: 3\n", "  replicas: 3\n  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}\n  minReadySeconds: 3\n"),
			edit(app, "        - {containerPort: 80}", "        - {containerPort: 53, protocol: UDP}\n        - {containerPort: 53}\n        env: [{name: A, value: b}]"),
			app + "        env: [{name: B, value: c}, {name: A, value: b}]\n        command: [x, z]\n        resources: {limits: {cpu: 1000m, memory: 1Gi}}\n      nodeSelector: {disk: ssd}\n      tolerations: [{key: a, operator: Exists}]\n",
			app + "        resources: {requests: {cpu: 1}, limits: {cpu: \"1\"}}\n      restartPolicy: Always\n      terminationGracePeriodSeconds: 5\n",
		},
		"job.yaml":    {migrate, edit(migrate, "migrate:1", "migrate:2"), edit(migrate, "spec:\n  template", "spec:\n  parallelism: 2\n  template")},
		"secret.yaml": {"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hunter2}\n", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {k: aHVudGVyMw==}\n"},
	}
}

func drawFiles(t *rapid.T, label string) map[string]string {
	files := map[string]string{"README.md": "x"}
	all := variants()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if i := rapid.IntRange(-1, len(all[name])-1).Draw(t, label+" "+name); i >= 0 {
			files[name] = all[name][i]
		}
	}
	return files
}

// finish settles, and does what the namespace controller would.
func (w *world) finish() {
	w.t.Helper()
	for {
		w.settle()
		again := false
		for _, obj := range w.st.List(api.Namespaces(), "") {
			if obj.GetDeletionTimestamp() != nil {
				w.write(store.Delete, obj)
				again = true
			}
		}
		if !again {
			return
		}
	}
}

// state is what the cluster declares, without what differs between two clusters
// that were told the same.
func (w *world) state() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, k := range api.Kinds() {
		switch k.GroupResource() {
		case api.GitRefs(), api.Sources(), api.Receipts(): // the last tells of the way, not of where it ends
			continue
		}
		for _, obj := range w.st.List(k.GroupResource(), "") {
			obj = obj.DeepCopyObject().(api.Object)
			uid := string(obj.GetUID())
			clearAssigned(obj)
			a := obj.GetAnnotations()
			delete(a, api.AnnotationCommit)
			obj.SetAnnotations(a)
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				w.t.Fatal(err)
			}
			out[store.KeyOf(obj).String()] = strings.ReplaceAll(fmt.Sprint(fields), uid, "UID")
		}
	}
	return out
}

func difference(a, b map[string]string) string {
	var out []string
	for k, v := range a {
		if b[k] != v {
			out = append(out, fmt.Sprintf("%s\n  %s\n  %s", k, v, b[k]))
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok {
			out = append(out, fmt.Sprintf("%s\n  (none)\n  %s", k, v))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// quiet is a world without a log, whose commits may delete what they want.
func quiet(t testing.TB, bulk int) *world {
	w := newWorld(t, func(c *Config) { c.Log = nil })
	w.repo.always = []Trailer{{Key: TrailerAllowDelete, Value: "all"}}
	w.bulk = bulk
	w.open()
	return w
}

// direct is the state of a cluster that was given one commit and nothing else.
func direct(t testing.TB, files map[string]string) map[string]string {
	w := quiet(t, 0)
	w.push(w.repo.add("d", "", files))
	w.finish()
	if st := w.status(); st.Applied != commitID("d") {
		t.Fatalf("not applied: %+v", st)
	}
	return w.state()
}

// Whatever is applied, a newer commit that comes between any two writes takes
// over, and the end is that of the newer commit alone.
func TestR13_ANewerCommitSupersedesAtEveryStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var files []map[string]string
		for i := range 3 {
			files = append(files, drawFiles(rt, fmt.Sprint(i)))
		}
		want := direct(t, files[2])
		for at := 1; ; at++ {
			w := quiet(t, 3)
			var ids []string
			for i, f := range files {
				parent := ""
				if i > 0 {
					parent = fmt.Sprintf("c%d", i-1)
				}
				ids = append(ids, w.repo.add(fmt.Sprintf("c%d", i), parent, f))
			}
			w.push(ids[0])
			first := w.commits
			moved := false
			w.around = func(n int, commit func() (int64, error)) (int64, error) {
				rev, err := commit()
				if n == first+at && !moved {
					moved = true
					w.setRef("refs/heads/main", ids[2])
					for {
						if more, err := w.st.Step(context.Background()); err != nil || !more {
							break
						}
					}
				}
				return rev, err
			}
			w.push(ids[1])
			w.finish()
			if !moved {
				return // the apply has no more writes than this
			}
			if st := w.status(); st.Applied != ids[2] || st.Applying != "" || st.Head != ids[2] {
				rt.Fatalf("superseded after write %d: %+v", at, st)
			}
			if d := difference(w.state(), want); d != "" {
				rt.Fatalf("superseded after write %d:\n%s", at, d)
			}
		}
	})
}

var errKilled = errors.New("killed")

// Killed before or after any write and started again, an apply ends in the same
// state.
func TestR2_ApplyingIsResumable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before, after := drawFiles(rt, "before"), drawFiles(rt, "after")
		want := direct(t, after)
		for at := 1; ; at++ {
			w := quiet(t, 3)
			c1 := w.repo.add("c1", "", before)
			c2 := w.repo.add("c2", "c1", after)
			w.push(c1)
			first, killed := w.commits, false
			happens := rapid.Bool().Draw(rt, "the write happens")
			w.around = func(n int, commit func() (int64, error)) (int64, error) {
				if n < first+at {
					return commit()
				}
				if !killed && happens {
					_, err := commit()
					if err != nil {
						return 0, err
					}
				}
				killed = true
				return 0, errKilled
			}
			w.setRef("refs/heads/main", c2)
			for range 1000 {
				more, err := w.st.Step(context.Background())
				if err != nil {
					rt.Fatal(err)
				}
				if !w.s.Step(context.Background()) && !more || killed {
					break
				}
			}
			if !killed {
				return
			}
			w.around = nil
			w.open()
			w.finish()
			if st := w.status(); st.Applied != c2 || st.Applying != "" {
				rt.Fatalf("killed at write %d: %+v", at, st)
			}
			if d := difference(w.state(), want); d != "" {
				rt.Fatalf("killed at write %d:\n%s", at, d)
			}
		}
	})
}

// A deposed leader writes nothing.
func TestR4_EveryWriteCarriesTheFence(t *testing.T) {
	fence := store.Fence{}
	w := newWorld(t, func(c *Config) { c.Fence = func() store.Fence { return fence } })
	w.push(w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "web.yaml": app}))
	fence = store.Fence{Key: "/headway/_election/leader", Revision: 1} // nobody's
	revision := w.st.Revision()
	w.setRef("refs/heads/main", w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "2")}))
	for range 20 {
		if _, err := w.st.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.s.Step(context.Background())
	}
	if got := w.st.Revision(); got != revision+1 {
		t.Errorf("a deposed leader wrote: revision %d, was %d and a push", got, revision)
	}
	if st := w.status(); st.Applied != commitID("c1") {
		t.Errorf("status %+v", st)
	}
}

// finishJob does what the Job controller does.
func (w *world) finishJob(name string, c batchv1.JobConditionType) {
	w.change("jobs", "default", name, func(o api.Object) {
		o.(*batchv1.Job).Status.Conditions = []batchv1.JobCondition{{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
	})
}

func TestR3_AFinishedJobRunsAgainOnlyWhenItsManifestChanges(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"job.yaml": migrate}
	w.push(w.repo.add("c1", "", files))
	uid := w.get("jobs", "default", "migrate").GetUID()
	// Not finished and deleted by hand: that is drift.
	w.remove("jobs", "default", "migrate")
	w.settle()
	job := w.get("jobs", "default", "migrate")
	if job == nil || job.GetUID() == uid {
		t.Fatal("a deleted Job that had not finished was not made again")
	}
	w.finishJob("migrate", batchv1.JobComplete)
	w.settle()
	d, ok := w.get("donerecords", "default", "migrate").(*api.DoneRecord)
	if !ok || d.Outcome != "Complete" || d.Source != "main" || !d.FinishedAt.Time.Equal(w.now) {
		t.Fatalf("record %+v", d)
	}
	// Its TTL removes it; another commit, a restart and a resync do not run it.
	w.remove("jobs", "default", "migrate")
	w.settle()
	w.push(w.repo.add("c2", "c1", map[string]string{"job.yaml": "# a comment\n" + migrate, "a.yaml": configMap("a", "1")}))
	w.open()
	w.settle()
	w.now = w.now.Add(6 * time.Minute)
	w.settle()
	if w.get("jobs", "default", "migrate") != nil {
		t.Fatal("it ran again")
	}
	if r := w.s.Status(); len(r.Objects) != 2 || r.Objects[1].State != Healthy || !strings.HasPrefix(r.Objects[1].Message, "complete since") {
		t.Errorf("report %+v", r.Objects)
	}
	// Its manifest changes: it runs.
	w.push(w.repo.add("c3", "c2", map[string]string{"job.yaml": edit(migrate, "migrate:1", "migrate:2")}))
	if w.get("jobs", "default", "migrate") == nil {
		t.Fatal("a changed Job did not run")
	}
	w.finishJob("migrate", batchv1.JobFailed)
	w.settle()
	if d := w.get("donerecords", "default", "migrate").(*api.DoneRecord); d.Outcome != "Failed" {
		t.Errorf("record %+v", d)
	}
	// Its manifest goes: the record goes too.
	w.push(w.repo.add("c4", "c3", map[string]string{"README.md": ""}))
	if w.get("donerecords", "default", "migrate") != nil || w.get("jobs", "default", "migrate") != nil {
		t.Error("left behind")
	}
}

func TestR3_AJobThatIsDeletedBeforeItsRecordIsWrittenIsDone(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"job.yaml": migrate}))
	w.finishJob("migrate", batchv1.JobComplete)
	job := w.get("jobs", "default", "migrate")
	w.write(store.Delete, job)
	w.settle()
	if w.get("jobs", "default", "migrate") != nil || w.get("donerecords", "default", "migrate") == nil {
		t.Error("it runs again")
	}
}

func TestJobIsReplacedWhenItsTemplateChanges(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"job.yaml": migrate}))
	uid := w.get("jobs", "default", "migrate").GetUID()
	c2 := w.repo.add("c2", "c1", map[string]string{"job.yaml": edit(migrate, "migrate:1", "migrate:2")})
	v, err := w.s.Judge(t.Context(), Candidate{Commit: c2})
	if err != nil || !v.OK() || v.Update != 1 || v.Create+v.Delete != 0 {
		t.Errorf("verdict %+v %v", v, err)
	}
	w.push(c2)
	job := w.get("jobs", "default", "migrate").(*batchv1.Job)
	if job.UID == uid || job.Spec.Template.Spec.Containers[0].Image != "migrate:2" || job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] != string(job.UID) {
		t.Errorf("job %+v", job)
	}
}

func TestR14_NoSecretValueIsPrintedOrKept(t *testing.T) {
	var log strings.Builder
	w := newWorld(t, func(c *Config) { c.Log = textLog(&log) })
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hunter2}\n"
	w.push(w.repo.add("c1", "", map[string]string{"s.yaml": secret}))
	w.change("secrets", "default", "s", func(o api.Object) { o.(*corev1.Secret).Data["k"] = []byte("swordfish") })
	w.settle()
	if got := string(w.get("secrets", "default", "s").(*corev1.Secret).Data["k"]); got != "hunter2" {
		t.Fatalf("not healed: %s", got)
	}
	w.push(w.repo.add("c2", "c1", map[string]string{"s.yaml": edit(secret, "hunter2", "trustno1") + "immutable: 3\n"}))
	w.push(w.repo.add("c3", "c2", map[string]string{"s.yaml": edit(secret, "hunter2", "trustno1", "{name: s}", "{name: s}\ntype: other")}))
	if w.status().Refused != commitID("c3") {
		t.Fatalf("status %+v", w.status())
	}
	text := log.String() + strings.Join(w.status().Problems, "\n") + w.status().Message + fmt.Sprintf("%+v", w.s.Status())
	for _, value := range []string{"hunter2", "aHVudGVyMg", "swordfish", "c3dvcmRmaXNo", "trustno1", "dHJ1c3Rubz"} {
		if strings.Contains(text, value) {
			t.Errorf("%q stands in\n%s", value, text)
		}
	}
}
