package syncer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/forge"
	"headway.dev/headway/syncer/git"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notebook is a notes ref in memory.
type notebook struct {
	notes  map[string]string
	writes []string // "commit text", each time that the ref moved
	step   func(name string) error
}

func (n *notebook) WriteNote(ctx context.Context, commit string, content []byte, _ git.Identity, _ time.Time, ready func(context.Context) error) error {
	if n.notes[commit] == string(content) {
		return nil
	}
	if err := n.step("read"); err != nil {
		return err
	}
	if err := ready(ctx); err != nil {
		return err
	}
	if err := n.step("ready"); err != nil {
		return err
	}
	n.notes[commit] = string(content)
	n.writes = append(n.writes, commit+" "+string(content))
	return n.step("written")
}

// reports are the statuses that were reported.
type reports struct{ all []forge.Report }

func (r *reports) Report(_ context.Context, report forge.Report) error {
	r.all = append(r.all, report)
	return nil
}
func (r *reports) Run(context.Context) error { return nil }

func (r *reports) phases(commit string) []forge.Phase {
	var out []forge.Phase
	for _, a := range r.all {
		if a.Commit == commit && (len(out) == 0 || out[len(out)-1] != a.Phase) {
			out = append(out, a.Phase)
		}
	}
	return out
}

func (r *reports) last(commit string) (out forge.Report) {
	for _, a := range r.all {
		if a.Commit == commit {
			out = a
		}
	}
	return out
}

// notedWorld is a world with a Noter.
type notedWorld struct {
	*world
	book   *notebook
	n      *Noter
	told   *reports
	around func(commit func() (int64, error)) (int64, error) // each write of the Noter
}

type noterWriter struct {
	*store.Store
	n *notedWorld
}

func (s noterWriter) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if s.n.around == nil {
		return s.Store.Commit(ctx, t)
	}
	return s.n.around(func() (int64, error) { return s.Store.Commit(ctx, t) })
}

func newNoted(t testing.TB, edit ...func(*Config)) *notedWorld {
	n := &notedWorld{
		world: newWorld(t, append(edit, func(c *Config) { c.Server = "node-1" })...),
		book:  &notebook{notes: map[string]string{}, step: func(string) error { return nil }}, told: &reports{},
	}
	n.reopen()
	return n
}

// reopen starts the process again.
func (n *notedWorld) reopen() {
	n.t.Helper()
	n.world.open()
	n.n = NewNoter(NoterConfig{
		Syncer: n.s, Store: noterWriter{n.st, n}, Fence: func() store.Fence { return store.Fence{} }, Notes: n.book, Cluster: "main",
		Now: func() time.Time { return n.now }, Log: n.cfg.Log,
	})
	n.n.statuses = n.told
	n.st.OnEvents(n.n.Handle)
}

// settle steps everything until nothing is left to do.
func (n *notedWorld) settle() {
	n.t.Helper()
	for range 10_000 {
		n.world.settle()
		if n.n.Step(context.Background()) {
			continue
		}
		if next := n.n.Next(); !next.IsZero() && next.Sub(n.now) <= time.Second {
			n.now = later(n.now, next)
			continue
		}
		more, err := n.st.Step(context.Background())
		if err != nil {
			n.t.Fatal(err)
		}
		if !more {
			return
		}
	}
	n.t.Fatal("does not settle")
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (n *notedWorld) push(commit string) {
	n.t.Helper()
	n.setRef("refs/heads/main", commit)
	n.settle()
}

func (n *notedWorld) receipt(commit string) api.ReceiptContent {
	n.t.Helper()
	r, ok := n.st.Get(receiptKey("main", commit)).(*api.Receipt)
	if !ok {
		n.t.Fatalf("no receipt of %s", commit)
	}
	fromNote, err := ParseNote([]byte(n.book.notes[commit]))
	if err != nil || !reflect.DeepEqual(fromNote, r.ReceiptContent) {
		n.t.Errorf("note of %s: %v\n%s\nreceipt %+v", short(commit), err, n.book.notes[commit], r.ReceiptContent)
	}
	return r.ReceiptContent
}

// runs makes what the controllers make of the Deployment web: a ReplicaSet with a
// pod that runs an image.
func (n *notedWorld) runs(digest string, available int32) {
	n.t.Helper()
	n.change("deployments", "default", "web", ready(available))
	d := n.get("deployments", "default", "web").(*appsv1.Deployment)
	owner := func(kind string, o api.Object) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}}
	}
	if rs := n.get("replicasets", "default", "web-1"); rs == nil {
		n.write(store.Create, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1", OwnerReferences: owner("Deployment", d), Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"},
		}})
		n.write(store.Create, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1-a", OwnerReferences: owner("ReplicaSet", n.get("replicasets", "default", "web-1"))},
			Spec:       d.Spec.Template.Spec,
		})
	}
	n.change("pods", "default", "web-1-a", func(o api.Object) {
		o.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Image: "web:1", ImageID: digest}}
	})
	n.settle()
}

func TestReceiptOfARollout(t *testing.T) {
	n := newNoted(t)
	c1 := n.repo.add("c1", "", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	c2 := n.repo.add("c2", "c1", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "2")})
	n.push(c1)
	r := n.receipt(c1)
	if r.Result != api.ResultRollingOut || r.Created != 3 || r.Objects != 3 || r.Server != "node-1" || r.Applied.IsZero() || !r.Ended.IsZero() {
		t.Errorf("while it rolls out: %+v", r)
	}
	n.now = n.now.Add(4200 * time.Millisecond)
	n.runs("example.org/web@sha256:aa", 3)
	r = n.receipt(c1)
	want := []api.Rollout{{Object: "Deployment default/web", State: "Healthy", Message: "3/3 ready", Seconds: r.Rollout[0].Seconds,
		Images: []api.Ran{{Container: "web", Image: "web:1", Digest: "example.org/web@sha256:aa"}}}}
	if r.Result != api.ResultHealthy || !reflect.DeepEqual(r.Rollout, want) || r.Rollout[0].Seconds < 4.2 || r.Rollout[0].Seconds > 5 || r.Seconds < 4.2 {
		t.Errorf("healthy: %+v", r)
	}
	if want := []api.Changed{{Verb: "create", Object: "ConfigMap default/a"}, {Verb: "create", Object: "ConfigMap default/b"}, {Verb: "create", Object: "Deployment default/web"}}; !reflect.DeepEqual(r.Changes, want) {
		t.Errorf("changes %+v", r.Changes)
	}
	if got := n.told.phases(c1); !slices.Equal(got, []forge.Phase{forge.RollingOut, forge.Healthy}) {
		t.Errorf("statuses %v", got)
	}
	if len(n.book.writes) != 2 {
		t.Errorf("%d notes were written for one rollout:\n%s", len(n.book.writes), strings.Join(n.book.writes, "\n"))
	}
	n.push(c2)
	r = n.receipt(c2)
	if r.Result != api.ResultHealthy || r.Created != 0 || r.Updated != 1 || r.Deleted != 1 || len(r.Rollout) != 0 {
		t.Errorf("the second: %+v", r)
	}
	// Nothing more is written when things happen later.
	before := len(n.book.writes)
	n.change("deployments", "default", "web", ready(1))
	n.settle()
	if len(n.book.writes) != before {
		t.Errorf("written again: %s", n.book.writes[before:])
	}
}

func TestReceiptOfWhatFails(t *testing.T) {
	n := newNoted(t)
	broken := strings.Replace(configMap("a", "1"), "data: {k", "dat: {k", 1)
	c1 := n.repo.add("c1", "", map[string]string{"job.yaml": migrate, "web.yaml": app})
	c2 := n.repo.add("c2", "c1", map[string]string{"job.yaml": migrate, "a.yaml": broken})
	c3 := n.repo.add("c3", "c2", map[string]string{"job.yaml": migrate, "web.yaml": app, "a.yaml": configMap("a", "1")})
	n.push(c1)
	n.finishJob("migrate", batchv1.JobFailed)
	n.settle()
	if r := n.receipt(c1); r.Result != api.ResultRollingOut {
		t.Errorf("the Deployment is still under way: %+v", r)
	}
	n.runs("web@sha256:aa", 3)
	r := n.receipt(c1)
	if r.Result != api.ResultFailed || !strings.HasPrefix(r.Reason, "Job default/migrate: failed") || len(r.Done) != 1 || r.Done[0].Outcome != "Failed" || r.Done[0].Name != "migrate" || r.Done[0].Hash == "" {
		t.Errorf("%+v", r)
	}
	if r.Rollout[0].State != "Failed" || r.Rollout[1].State != "Healthy" {
		t.Errorf("what failed does not come first: %+v", r.Rollout)
	}
	n.push(c2)
	r2 := n.receipt(c2)
	if r2.Result != api.ResultRefused || len(r2.Problems) == 0 || !strings.HasPrefix(r2.Problems[0], "a.yaml:4") || !r2.Applied.IsZero() || len(r2.Changes) != 0 {
		t.Errorf("refused: %+v", r2)
	}
	if got := n.told.phases(c2); !slices.Equal(got, []forge.Phase{forge.Refused}) || !strings.HasPrefix(n.told.last(c2).Reason, "a.yaml:4") {
		t.Errorf("status %v %+v", got, n.told.last(c2))
	}
	if got := n.receipt(c1); !reflect.DeepEqual(got, r) {
		t.Errorf("the refusal of another changed it: %+v", got)
	}
	// Judged again, for the same reasons: no word more.
	before := len(n.book.writes)
	n.now = n.now.Add(10 * time.Minute)
	n.settle()
	if len(n.book.writes) != before {
		t.Errorf("written again: %s", n.book.writes[before:])
	}
	n.push(c3)
	if r := n.receipt(c3); r.Result != api.ResultHealthy || len(r.Done) != 1 {
		t.Errorf("the mended one: %+v", r)
	}
}

// A commit that another one takes over from says so, and a rewound branch does not
// wipe out what was done for a commit.
func TestReceiptOfWhatIsSuperseded(t *testing.T) {
	n := newNoted(t)
	c1 := n.repo.add("c1", "", map[string]string{"web.yaml": app})
	c2 := n.repo.add("c2", "c1", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1")})
	n.push(c1)
	n.push(c2)
	r := n.receipt(c1)
	if r.Result != api.ResultSuperseded || r.Reason != "by commit "+c2 || r.Applied.IsZero() || r.Ended.IsZero() {
		t.Errorf("%+v", r)
	}
	if got := n.told.phases(c1); !slices.Equal(got, []forge.Phase{forge.RollingOut, forge.Superseded}) {
		t.Errorf("statuses %v", got)
	}
	if r2 := n.receipt(c2); r2.Result != api.ResultHealthy {
		t.Errorf("%+v", r2)
	}
	n.push(c1)
	again := n.receipt(c1)
	if again.Result != api.ResultRefused || !strings.Contains(again.Reason, "not a descendant") || again.Applied != r.Applied || !reflect.DeepEqual(again.Changes, r.Changes) {
		t.Errorf("refused later: %+v", again)
	}
}

// A conflict in the middle of a transaction, and another server that goes on after
// it, lose nothing of what was done.
func TestReceiptOfAConflict(t *testing.T) {
	n := newNoted(t)
	c1 := n.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	c2 := n.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "2"), "b.yaml": configMap("b", "2")})
	n.push(c1)
	n.setRef("refs/heads/main", c2)
	n.world.around = func(_ int, commit func() (int64, error)) (int64, error) {
		n.world.around = nil
		// Somebody is faster.
		live, _, err := n.st.GetAt(t.Context(), key("configmaps", "default", "a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		edited := live.DeepCopyObject().(*corev1.ConfigMap)
		edited.Data["mine"] = "x"
		n.write(store.Update, edited)
		n.world.around = func(i int, commit func() (int64, error)) (int64, error) {
			n.s.cfg.Server = "node-2"
			return commit()
		}
		return commit()
	}
	n.settle()
	r := n.receipt(c2)
	if r.Result != api.ResultHealthy || r.Updated != 2 || len(r.Changes) != 2 || r.Objects != 2 {
		t.Errorf("%+v", r)
	}
	if r.Server != "node-2" {
		t.Errorf("it was ended by %s", r.Server)
	}
}

func TestReceiptIsBounded(t *testing.T) {
	n := newNoted(t)
	files := map[string]string{}
	for i := range 3000 {
		files[fmt.Sprintf("f%04d.yaml", i)] = configMap(fmt.Sprintf("a-config-map-with-a-long-name-%04d", i), "1")
	}
	c1 := n.repo.add("c1", "", files)
	n.push(c1)
	r := n.receipt(c1)
	if r.Result != api.ResultHealthy || r.Created != 3000 || len(r.Changes) != maxListed {
		t.Errorf("%s %d created, %d named", r.Result, r.Created, len(r.Changes))
	}
	if size := len(n.book.notes[c1]); size > 100<<10 {
		t.Errorf("a note of %d bytes", size)
	}
	long := strings.Repeat("x", 5000)
	if got := clipped([]string{long, long}, 1000, 3000); len(got) != 2 || len(got[0]) > 1000 || !strings.HasPrefix(got[1], "… and 1 more") {
		t.Errorf("%q", got)
	}
	if clip("aé", 3) != "aé" || clip("éé", 3) != "…" || clip("ééé", 5) != "é…" {
		t.Errorf("%q %q", clip("éé", 3), clip("ééé", 5))
	}
}

func TestOldReceiptsGo(t *testing.T) {
	n := newNoted(t)
	last := ""
	for i := range maxReceipts + 5 {
		name := fmt.Sprintf("c%dx", i)
		before := last
		last = name
		n.push(n.repo.add(name, before, map[string]string{"a.yaml": configMap("a", name)}))
	}
	if got := len(n.n.receipts()); got != maxReceipts {
		t.Errorf("%d receipts are kept", got)
	}
	if len(n.book.notes) != maxReceipts+5 {
		t.Errorf("%d notes", len(n.book.notes))
	}
	n.receipt(commitID(last))
}

// Killed between any two steps, of the syncer and of the Noter, and started again:
// the receipt and its note end as if nothing had happened, and no text is written
// twice (R2, R4).
func TestR4_NotesSurviveAKillAtEveryStep(t *testing.T) {
	job := migrate
	play := func(kill int) (steps int, notes map[string]string) {
		n := newNoted(t)
		n.bulk = 4
		n.reopen()
		at, dead := 0, false
		// Nothing that a dead process does has an effect.
		step := func() error {
			if at++; at == kill {
				dead = true
			}
			if dead {
				return errKilled
			}
			return nil
		}
		guard := func(commit func() (int64, error)) (int64, error) {
			if err := step(); err != nil {
				return 0, err
			}
			rev, err := commit()
			if killed := step(); killed != nil {
				return 0, killed
			}
			return rev, err
		}
		n.book.step = func(string) error { return step() }
		n.around = guard
		n.world.around = func(_ int, commit func() (int64, error)) (int64, error) { return guard(commit) }
		run := func(what func()) {
			if what(); dead {
				dead = false
				n.reopen()
				what()
			}
		}
		c1 := n.repo.add("c1", "", map[string]string{"web.yaml": app, "job.yaml": job, "a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1"), "d.yaml": configMap("d", "1")})
		c2 := n.repo.add("c2", "c1", map[string]string{"web.yaml": app, "job.yaml": job, "a.yaml": configMap("a", "2"), "c.yaml": configMap("c", "1")})
		n.setRef("refs/heads/main", c1)
		run(n.settle)
		n.finishJob("migrate", batchv1.JobComplete)
		n.change("deployments", "default", "web", ready(3))
		run(n.settle)
		n.setRef("refs/heads/main", c2)
		run(n.settle)
		n.around, n.world.around, n.book.step = nil, nil, func(string) error { return nil }
		n.reopen()
		n.settle()
		seen := map[string]bool{}
		for _, w := range n.book.writes {
			if seen[w] {
				t.Errorf("kill at step %d: written twice: %s", kill, w)
			}
			seen[w] = true
		}
		if len(n.book.writes) > 6 {
			t.Errorf("kill at step %d: %d notes for two commits", kill, len(n.book.writes))
		}
		for _, c := range []string{c1, c2} {
			if r := n.receipt(c); r.Result != api.ResultHealthy {
				t.Errorf("kill at step %d: %+v", kill, r)
			}
		}
		return at, n.book.notes
	}
	total, want := play(0)
	if total < 20 {
		t.Fatalf("only %d steps are seen", total)
	}
	for kill := 1; kill <= total; kill++ {
		_, got := play(kill)
		for commit, text := range want {
			if timeless(t, text) != timeless(t, got[commit]) {
				t.Fatalf("kill at step %d of %d: got\n%s\nwant\n%s", kill, total, got[commit], text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("kill at step %d: notes of %v", kill, slices.Sorted(maps.Keys(got)))
		}
	}
}

// timeless is a note without its times.
func timeless(t *testing.T, text string) string {
	r, err := ParseNote([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Started, r.Applied, r.Ended, r.Seconds = time.Time{}, time.Time{}, time.Time{}, 0
	for i := range r.Rollout {
		r.Rollout[i].Seconds = 0
	}
	for i := range r.Done {
		r.Done[i].FinishedAt = time.Time{}
	}
	return string(NoteText(r))
}

// A leader that was deposed writes no note, and what cannot be written now is
// written later.
func TestR4_ADeposedLeaderWritesNoNote(t *testing.T) {
	n := newNoted(t)
	fence := store.Fence{Key: store.ElectionKey, Revision: 1 << 40}
	lead := true
	n.n.cfg.Fence = func() store.Fence {
		if lead {
			return store.Fence{}
		}
		return fence
	}
	n.book.step = func(name string) error { lead = name != "read" && lead; return nil }
	c1 := n.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")})
	n.push(c1)
	if len(n.book.writes) != 0 {
		t.Fatalf("written: %s", n.book.writes)
	}
	n.book.step = func(string) error { return nil }
	lead = true
	n.reopen()
	n.settle()
	n.receipt(c1)
}

// Why commit statuses do not reach the forge stands in the status until they do.
func TestCommitStatusesThatDoNotArrive(t *testing.T) {
	n := newNoted(t)
	n.setRef("refs/heads/main", n.repo.add("c1", "", map[string]string{"web.yaml": app}))
	n.settle()
	n.n.tell("the token may not")
	n.settle()
	if got := n.s.Status().CommitStatus; got != "the token may not" {
		t.Errorf("status %q", got)
	}
	// It is kept across commits.
	n.setRef("refs/heads/main", n.repo.add("c2", "c1", map[string]string{"web.yaml": edit(app, "web:1", "web:2")}))
	n.settle()
	if r := n.s.Status(); r.Applied != commitID("c2") || r.CommitStatus != "the token may not" {
		t.Errorf("status %+v", r)
	}
	// A leader that sends none any more says nothing of them.
	n.reopen()
	n.settle()
	if got := n.s.Status().CommitStatus; got != "" {
		t.Errorf("status %q", got)
	}
	before := n.st.Revision()
	n.n.tell("")
	n.settle()
	if n.st.Revision() != before {
		t.Error("written although nothing is new")
	}
}

// Receipts of another source are its own Noter's.
func TestNotersKeepToTheirSource(t *testing.T) {
	n := newNoted(t)
	n.push(n.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")}))
	other := &api.Receipt{ObjectMeta: metav1.ObjectMeta{Name: receiptKey("team", commitID("t1")).Name}, ReceiptContent: api.ReceiptContent{
		Result: api.ResultRollingOut, Commit: commitID("t1"), Source: "team", Applied: n.now,
	}}
	n.write(store.Create, other)
	n.settle()
	if r := n.st.Get(store.KeyOf(other)).(*api.Receipt); r.Result != api.ResultRollingOut || r.Noted != "" || n.book.notes[commitID("t1")] != "" {
		t.Errorf("the main source's Noter has touched it: %+v, note %q", r, n.book.notes[commitID("t1")])
	}
}
