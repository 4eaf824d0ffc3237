package syncer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pauseFor pauses as an operator does.
func (w *world) pauseFor(d time.Duration) {
	w.t.Helper()
	w.order(func(o *api.SourceOrders) {
		o.Pause = &api.Pause{Since: metav1.NewTime(w.now), Until: metav1.NewTime(w.now.Add(d)), By: "ada", Why: "a migration"}
	})
	w.settle()
}

// While a cluster is paused nothing is applied or healed, and when the pause ends by
// itself everything that waited is done.
func TestPause(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1"), "job.yaml": migrate}
	c1 := w.repo.add("c1", "", files)
	w.push(c1)
	w.pauseFor(time.Hour)
	value := func(name string) string {
		obj, _ := w.get("configmaps", "default", name).(*corev1.ConfigMap)
		if obj == nil {
			return "gone"
		}
		return obj.Data["k"]
	}
	w.change("configmaps", "default", "a", func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = "by hand" })
	w.remove("configmaps", "default", "b")
	w.settle()
	if value("a") != "by hand" || value("b") != "gone" {
		t.Errorf("healed while paused: a %s, b %s", value("a"), value("b"))
	}
	// What was done by hand is recorded all the same.
	if rs := w.s.driftRecords(); len(rs) != 2 || !rs[0].Open() || !strings.HasPrefix(rs[0].Why, "paused until ") {
		t.Errorf("records %+v", rs)
	}
	// A Job that ends now is recorded now, so that it is not run again (R3).
	w.change("jobs", "default", "migrate", func(o api.Object) {
		o.(*batchv1.Job).Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
	})
	w.settle()
	if w.get("donerecords", "default", "migrate") == nil {
		t.Error("the Job that is done has no record")
	}
	// A new commit is judged and waits; of one with a problem it is said at once (R2).
	files["c.yaml"] = configMap("c", "1")
	c2 := w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1"), "job.yaml": migrate, "c.yaml": configMap("c", "1")})
	bad := w.repo.add("c3", "c2", map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nnope: 1\n", "b.yaml": configMap("b", "1"), "job.yaml": migrate})
	w.push(bad)
	if st := w.status(); st.Refused != bad || st.Applied != c1 {
		t.Errorf("status %+v", st)
	}
	w.push(c2)
	until := "paused until 2026-01-01 01:00:0"
	if st := w.status(); st.Applied != c1 || st.Head != c2 || st.Refused != "" || !strings.Contains(st.Message, until) || value("c") != "gone" {
		t.Errorf("status %+v", st)
	}
	if r := w.s.Status(); r.State != Progressing || r.Pause == nil || !strings.Contains(r.Reason, "commit "+short(c2)+" waits: the cluster is "+until) {
		t.Errorf("report %+v", r)
	}
	var page bytes.Buffer
	if err := w.s.Follow(t.Context(), c2, &page); err != nil || !strings.Contains(page.String(), "accepted: this cluster is "+until) {
		t.Errorf("%v: %s", err, page.String())
	}
	renders, commits := w.repo.renders, w.commits
	for range 3 { // nothing is judged or written again while nothing changes
		w.s.loop.Wake(w.s.key)
		w.settle()
	}
	if w.repo.renders != renders || w.commits != commits {
		t.Errorf("%d renders and %d writes while nothing changed", w.repo.renders-renders, w.commits-commits)
	}
	// The process starts again, and the pause still holds.
	w.open()
	w.settle()
	if value("a") != "by hand" || w.status().Applied != c1 {
		t.Error("a start ended the pause")
	}
	w.now = w.now.Add(59 * time.Minute)
	w.settle()
	if w.status().Applied != c1 {
		t.Error("the pause ended early")
	}
	w.now = w.now.Add(2 * time.Minute)
	w.settle()
	if st := w.status(); st.Applied != c2 || st.Message != "" || w.s.source().Orders.Pause != nil {
		t.Errorf("status %+v", st)
	}
	if value("a") != "1" || value("b") != "1" || value("c") != "1" || w.get("jobs", "default", "migrate") == nil {
		t.Errorf("a %s, b %s, c %s", value("a"), value("b"), value("c"))
	}
	// One that is ended by hand ends at once, but for the back-off of what drifts again.
	w.pauseFor(time.Hour)
	w.change("configmaps", "default", "a", func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = "by hand" })
	w.settle()
	w.order(func(o *api.SourceOrders) { o.Pause = nil })
	w.settle()
	w.now = w.now.Add(2 * lookPause)
	w.settle()
	if value("a") != "1" {
		t.Error("not healed after the end of the pause")
	}
}

// A pause counts between any two transactions of a commit, and the commit goes on
// where it was.
func TestR2_PauseInTheMiddleOfACommit(t *testing.T) {
	for at := 1; at < 12; at++ {
		w := newWorld(t)
		w.bulk = 3
		w.open()
		files := map[string]string{}
		for _, name := range strings.Split("abcdefgh", "") {
			files[name+".yaml"] = configMap(name, "1")
		}
		c1 := w.repo.add("c1", "", files)
		w.settle()
		first, later := w.commits, 0
		begun := false
		w.around = func(n int, commit func() (int64, error)) (int64, error) {
			if n == first+at && !begun {
				begun = true
				w.order(func(o *api.SourceOrders) {
					o.Pause = &api.Pause{Until: metav1.NewTime(w.now.Add(time.Hour)), By: "ada", Why: "stop"}
				})
			} else if begun {
				later++
			}
			return commit()
		}
		w.push(c1)
		if !begun {
			if at < 3 {
				t.Fatalf("only %d transactions", at)
			}
			break
		}
		made := len(w.st.List(api.ConfigMaps(), ""))
		if w.status().Applied != "" && made < 8 || w.status().Applied == "" && made > (at-1)*2 {
			t.Errorf("paused before transaction %d: %d objects were made", at, made)
		}
		w.around = nil
		w.now = w.now.Add(2 * time.Hour)
		w.settle()
		if w.status().Applied != c1 || len(w.st.List(api.ConfigMaps(), "")) != 8 {
			t.Errorf("paused before transaction %d: %+v", at, w.status())
		}
	}
}

// headway sync asks the forge at once, also while it is left alone because it
// failed, and the status says so. A refused commit is judged again.
func TestSyncLooksNow(t *testing.T) {
	repo := newHistory()
	c1 := repo.add("c1", "", map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: team}\n"})
	head, asked, broken := c1, 0, errors.New("the forge is down")
	w := newWorld(t, func(c *Config) {
		c.Spec.URL, c.Commits = "https://forge.example.org/a.git", repo
		c.Fetch = func(context.Context, api.SourceSpec, time.Duration) (string, error) { asked++; return head, broken }
	})
	w.repo = repo
	w.settle()
	for range 20 { // until it is asked every five minutes only
		w.now = w.now.Add(5 * time.Minute)
		w.settle()
	}
	before := asked
	sync := func(id string) {
		t.Helper()
		w.order(func(o *api.SourceOrders) { o.Sync = id })
		w.settle()
		if got := w.s.Status().Synced; got != id {
			t.Errorf("answered %q, want %q", got, id)
		}
	}
	sync("1")
	if asked != before+1 || w.status().Message != "the forge is down" {
		t.Errorf("asked %d times, %+v", asked-before, w.status())
	}
	w.settle()
	if asked != before+1 {
		t.Errorf("asked %d times", asked-before)
	}
	broken = nil
	sync("2")
	if st := w.status(); asked != before+2 || st.Refused != c1 {
		t.Errorf("asked %d times, %+v", asked-before, st)
	}
	// What it lacked is there now, which nothing told.
	w.write(store.Create, &corev1.Namespace{ObjectMeta: metaOf("", "team", nil)})
	w.settle()
	if st := w.status(); st.Refused != c1 {
		t.Errorf("status %+v", st)
	}
	sync("3")
	if st := w.status(); st.Applied != c1 {
		t.Errorf("status %+v", st)
	}
}

func TestOrderOfAnUnknownSource(t *testing.T) {
	w := newWorld(t)
	_, err := Order(t.Context(), w.st, "other", func(*api.Source) error { t.Error("called"); return nil })
	if !errors.Is(err, ErrNoSource) {
		t.Errorf("%v", err)
	}
}

// TestPauseIsRecorded: a pause leaves who, when and why behind, in the status, in an
// Event and in the receipt of the next commit alone, however it ended.
func TestPauseIsRecorded(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")})
	w.push(c1)
	start := w.now
	w.pauseFor(time.Hour)
	if p := w.status().Pause; p == nil || p.By != "ada" {
		t.Errorf("while it holds: %+v", w.status())
	}
	w.open() // it is known after a start
	w.now = w.now.Add(2 * time.Hour)
	w.settle() // 1: over by itself
	w.pauseFor(time.Hour)
	w.order(func(o *api.SourceOrders) {
		o.Pause = &api.Pause{Since: metav1.NewTime(w.now), Until: metav1.NewTime(w.now.Add(2 * time.Hour)), By: "bob", Why: "longer"}
	})
	w.settle() // 2: another one is in its place
	if _, err := Order(t.Context(), w.st, "main", func(src *api.Source) error {
		if p := EndPause(src, "eve", w.now); p == nil || p.By != "bob" {
			t.Errorf("ended %+v", p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.settle() // 3: ended by hand
	w.order(func(o *api.SourceOrders) {
		o.Pause = &api.Pause{Since: metav1.NewTime(w.now), Until: metav1.NewTime(w.now.Add(time.Minute)), By: "joe", Why: "unseen"}
	})
	w.now = w.now.Add(time.Hour)
	w.settle() // 4: nobody led meanwhile
	var got []string
	for _, p := range w.status().Pauses {
		got = append(got, p.By+" "+p.Why+" "+p.EndedBy+" "+p.Ended.Sub(p.Since.Time).String()+" "+short(p.Commit))
	}
	want := []string{"ada a migration  1h0m0s " + short(c1), "ada a migration bob 0s " + short(c1), "bob longer eve 0s " + short(c1), "joe unseen  1m0s " + short(c1)}
	if !slices.Equal(got, want) || w.status().Pause != nil || w.s.source().Orders.Pause != nil {
		t.Errorf("pauses %q, want %q; %+v", got, want, w.s.source())
	}
	reasons := map[string]int{}
	for _, obj := range w.st.List(api.Events(), "") {
		if e := obj.(*corev1.Event); e.InvolvedObject.Kind == "Source" {
			reasons[e.Reason]++
		}
	}
	if reasons["Paused"] == 0 || reasons["PauseOver"] != 4 {
		t.Errorf("events %v", reasons)
	}
	c2 := w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "2")})
	w.push(c2)
	r, _ := w.st.Get(receiptKey("main", c2)).(*api.Receipt)
	if r == nil || len(r.Pauses) != 4 || !r.Pauses[0].Since.Equal(start) || r.Pauses[2].EndedBy != "eve" {
		t.Fatalf("receipt %+v", r)
	}
	if back, err := ParseNote(NoteText(r.ReceiptContent)); err != nil || !slices.Equal(back.Pauses, r.Pauses) {
		t.Errorf("%v: %+v\n%s", err, back.Pauses, NoteText(r.ReceiptContent))
	}
	w.push(w.repo.add("c3", "c2", map[string]string{"a.yaml": configMap("a", "3")}))
	if r, _ := w.st.Get(receiptKey("main", commitID("c3"))).(*api.Receipt); r == nil || r.Pauses != nil {
		t.Errorf("told again: %+v", r)
	}
	for range api.MaxPauses + 3 {
		w.pauseFor(time.Minute)
		w.now = w.now.Add(2 * time.Minute)
		w.settle()
	}
	if n := len(w.status().Pauses); n != api.MaxPauses {
		t.Errorf("%d pauses are kept", n)
	}
}
