package syncer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	batchv1 "k8s.io/api/batch/v1"
)

func TestR3_ANewClusterDoesNotRunWhatAReceiptSaysIsDone(t *testing.T) {
	files := map[string]string{
		"job.yaml": migrate, "n.yaml": namespaceFile("team"),
		"team.yaml":  edit(migrate, "{name: migrate}", "{name: migrate, namespace: team}"),
		"other.yaml": edit(migrate, "{name: migrate}", "{name: other}"),
	}
	// The cluster that was.
	old := newWorld(t)
	c1 := old.repo.add("c1", "", files)
	old.push(c1)
	old.finishJob("migrate", batchv1.JobComplete)
	old.change("jobs", "team", "migrate", func(o api.Object) {
		o.(*batchv1.Job).Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True"}}
	})
	old.settle()
	var receipt []Done
	for _, obj := range old.st.List(api.DoneRecords(), "") {
		d := obj.(*api.DoneRecord)
		receipt = append(receipt, Done{Kind: "Job", Namespace: d.Namespace, Name: d.Name, Hash: d.Hash, Outcome: d.Outcome, FinishedAt: d.FinishedAt.Time})
	}
	if len(receipt) != 2 {
		t.Fatalf("receipt %+v", receipt)
	}
	asked := 0
	fail := errors.New("the notes cannot be read")
	w := newWorld(t, func(c *Config) {
		c.Receipts = func(_ context.Context, commit string) ([]Done, error) {
			asked++
			if commit != c1 {
				t.Errorf("asked about %s", commit)
			}
			return receipt, fail
		}
	})
	w.repo.add("c1", "", files)
	// What cannot be read runs nothing.
	w.setRef("refs/heads/main", c1)
	for range 10 {
		if _, err := w.st.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.s.Step(t.Context())
	}
	if n := len(w.st.List(api.Jobs(), "")); n != 0 || w.status().Applied != "" {
		t.Fatalf("%d Jobs run without the receipt", n)
	}
	fail = nil
	w.now = w.now.Add(time.Hour)
	w.settle()
	if w.status().Applied != c1 || w.get("jobs", "default", "migrate") != nil || w.get("jobs", "team", "migrate") != nil {
		t.Fatalf("they run again: %+v", w.status())
	}
	if w.get("jobs", "default", "other") == nil {
		t.Error("what had not finished does not run")
	}
	d, ok := w.get("donerecords", "default", "migrate").(*api.DoneRecord)
	if !ok || d.Outcome != "Complete" || !d.FinishedAt.Time.Equal(old.now) || d.UID == "" {
		t.Errorf("record %+v", d)
	}
	for _, o := range w.s.Status().Objects {
		if o.Name == "migrate" && (o.Namespace == "team") == (o.State == Healthy) {
			t.Errorf("%+v", o)
		}
	}
	// Later the records in the store are what counts, and receipts are not asked.
	before := asked
	w.write("delete", w.get("donerecords", "default", "migrate"))
	w.settle()
	if w.get("jobs", "default", "migrate") == nil {
		t.Error("a record that was deleted by hand did not run the Job")
	}
	w.push(w.repo.add("c2", "c1", map[string]string{"job.yaml": migrate, "n.yaml": namespaceFile("team"), "team.yaml": edit(files["team.yaml"], "migrate:1", "migrate:2")}))
	if w.get("jobs", "team", "migrate") == nil || asked != before {
		t.Error("a Job whose manifest changed did not run, or receipts were asked")
	}
}

func TestDoneFromReceipt(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := Done{Kind: "Job", Namespace: "a", Name: "j", Hash: "h", Outcome: "Failed", FinishedAt: at}
	bad := func(edit func(*Done)) Done { d := good; d.Name = "bad"; edit(&d); return d }
	got := DoneFromReceipt("main", []Done{
		{Kind: "Job", Namespace: "a", Name: "j", Hash: "older", Outcome: "Complete"}, good,
		bad(func(d *Done) { d.Kind = "Pod" }), bad(func(d *Done) { d.Namespace = "" }), bad(func(d *Done) { d.Name = "" }),
		bad(func(d *Done) { d.Hash = "" }), bad(func(d *Done) { d.Outcome = "Running" }),
	})
	d := got[key("jobs", "a", "j")]
	if len(got) != 1 || d == nil || d.Hash != "h" || d.Outcome != "Failed" || d.Source != "main" || !d.FinishedAt.Time.Equal(at) {
		t.Errorf("%+v", got)
	}
}

// TTL, kubectl delete and a restart in between leave a finished Job done; this is
// what judging says of it, too.
func TestR3_JudgingADoneJobPlansNothing(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"job.yaml": migrate})
	w.push(c1)
	w.finishJob("migrate", batchv1.JobComplete)
	w.settle()
	w.remove("jobs", "default", "migrate")
	w.settle()
	v, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.add("c2", "c1", map[string]string{"job.yaml": "# x\n" + migrate})})
	if err != nil || !v.OK() || v.Create+v.Update+v.Delete > 0 || !strings.HasPrefix(v.Summary(), "0 of 1 object change") {
		t.Errorf("%+v %v", v, err)
	}
}
