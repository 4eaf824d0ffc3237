package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	"headway.dev/headway/syncer/git"
	corev1 "k8s.io/api/core/v1"
)

// branch is a live ref in memory. Its rules are those of git.Repository.WriteLive,
// which has tests of its own.
type branch struct {
	commits []git.LiveCommit // oldest first
	fail    func(n int) (before, after bool)
	calls   int
}

var errDown = errors.New("the disk is full")

func (b *branch) name(i int) string { return fmt.Sprintf("%040d", i) }

func (b *branch) Live(context.Context) (string, error) {
	if len(b.commits) == 0 {
		return "", git.ErrNotFound
	}
	return b.name(len(b.commits)), nil
}

func (b *branch) Commit(_ context.Context, hash string) (git.Commit, error) {
	for i, c := range b.commits {
		if b.name(i+1) == hash {
			return git.Commit{Hash: hash, Trailers: append([]git.Trailer{{Key: "Headway-Commit", Value: c.Applied}}, c.Trailers...)}, nil
		}
	}
	return git.Commit{}, git.ErrNotFound
}

func (b *branch) WriteLive(ctx context.Context, c git.LiveCommit, ready func(context.Context) error) (string, error) {
	b.calls++
	before, after := false, false
	if b.fail != nil {
		before, after = b.fail(b.calls)
	}
	if before {
		return "", errDown
	}
	now, _ := b.Live(ctx)
	if c.Old != now {
		return "", git.ErrMoved
	}
	n := len(b.commits)
	if n > 0 && b.commits[n-1].Applied == c.Applied && tree(b.commits[n-1]) == tree(c) {
		return now, nil
	}
	if err := ready(ctx); err != nil {
		return "", err
	}
	b.commits = append(b.commits, c)
	if after {
		return "", errDown
	}
	return b.name(n + 1), nil
}

// tree is what a commit's files show.
func tree(c git.LiveCommit) string {
	files := map[string]string{}
	for _, e := range c.Edits {
		files[e.Path] = string(e.Content)
	}
	var out []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		out = append(out, path+"="+files[path])
	}
	return strings.Join(out, " ")
}

// plainEdits is a file for each drift.
func plainEdits(_ context.Context, _ string, drift []Shown) ([]git.Edit, error) {
	var out []git.Edit
	for _, d := range drift {
		text := "deleted"
		if !d.Deleted {
			spec, _ := d.Live["spec"].(map[string]any)
			raw, err := json.Marshal([]any{spec["replicas"], d.Live["data"], d.Fields})
			if err != nil {
				return nil, err
			}
			text = string(raw)
		}
		out = append(out, git.Edit{Path: d.Manifest.Path, Content: []byte(text)})
	}
	return out, nil
}

// telling is a world with a live ref.
type telling struct {
	*world
	b *branch
	l *LiveRef
	p *Publisher // nil: hosted
}

func newTelling(t testing.TB, edit ...func(*LiveConfig)) *telling {
	w := &telling{world: newWorld(t), b: &branch{}}
	w.restart(edit...)
	return w
}

// restart starts the live ref's half of the process again.
func (w *telling) restart(edit ...func(*LiveConfig)) {
	cfg := LiveConfig{Repository: w.b, Edits: plainEdits, Cluster: "main"}
	for _, e := range edit {
		e(&cfg)
	}
	w.l = NewLiveRef(w.s, cfg)
	w.st.OnEvents(w.l.Handle)
}

// run lets both loops work for so long.
func (w *telling) run(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for range 1_000_000 {
		storetest.Settle(w.t, w.st)
		if w.s.Step(context.Background()) || w.l.Step(context.Background()) || w.p != nil && w.p.Step(context.Background()) {
			continue
		}
		next := end
		wakes := []time.Time{w.s.Next(), w.l.Next()}
		if w.p != nil {
			wakes = append(wakes, w.p.Next())
		}
		for _, at := range wakes {
			if !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		if !w.now.Before(end) {
			return
		}
		w.now = maxTime(next, w.now.Add(time.Millisecond))
	}
	w.t.Fatal("does not settle")
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// log is the live ref: author, subject and files of each commit.
func (w *telling) log() string {
	var out []string
	for _, c := range w.b.commits {
		subject, _, _ := strings.Cut(c.Message, "\n")
		out = append(out, fmt.Sprintf("%s <%s>: %s {%s}", c.Author.Name, c.Author.Mail, subject, tree(c)))
	}
	return strings.Join(out, "\n")
}

func (w *telling) expect(lines ...string) {
	w.t.Helper()
	if got, want := w.log(), strings.Join(lines, "\n"); got != want {
		w.t.Errorf("the live ref is\n%s\nwant\n%s", got, want)
	}
}

func TestLiveRefTellsDriftAndHeal(t *testing.T) {
	w := newTelling(t)
	c1 := w.repo.add("c1", "", map[string]string{"web.yaml": app})
	w.setRef("refs/heads/main", c1)
	w.run(time.Second)
	w.expect("Headway <headway@main>: applied: c10000000000 {}")
	w.by("ann", "deployments", "default", "web", scale(5))
	w.run(999 * time.Millisecond)
	if len(w.b.commits) != 1 {
		t.Errorf("told before it was sure to be one change:\n%s", w.log())
	}
	w.run(time.Second)
	w.expect("Headway <headway@main>: applied: c10000000000 {}",
		`ann <ann@headway>: drift: Deployment default/web spec.replicas 3 → 5 {web.yaml=[5,null,["spec.replicas"]]}`,
		"Headway <headway@main>: healed: Deployment default/web {}")
	drift := w.b.commits[1]
	want := []git.Trailer{{Key: "Headway-Event", Value: "drift"}, {Key: "Headway-Actor", Value: "ann (kubectl-edit)"}, {Key: "Headway-Object", Value: "Deployment default/web"}}
	if drift.Applied != c1 || !slices.Equal(drift.Trailers, want) || !strings.Contains(drift.Message, "Deployment default/web, declared in web.yaml:1\n  spec.replicas 3 → 5") {
		t.Errorf("commit %+v", drift)
	}
	// Nothing is left to tell, and in an hour the record goes.
	n := w.commits
	w.run(50 * time.Minute)
	if len(w.b.commits) != 3 || w.record("deployments", "default", "web") == nil {
		t.Errorf("%s", w.log())
	}
	w.run(time.Hour)
	if w.record("deployments", "default", "web") != nil {
		t.Error("the record stays for ever")
	}
	if w.commits-n > 2 {
		t.Errorf("%d writes while nothing happened", w.commits-n)
	}
}

func TestLiveRefCoalescesABurst(t *testing.T) {
	w := newTelling(t)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"report/web.yaml": app}))
	w.run(time.Second)
	for i := range 9 {
		w.by("ann", "deployments", "default", "web", scale(int32(i+10)))
		w.run(100 * time.Millisecond)
	}
	w.run(3 * time.Second)
	// The first look saw 10, the next one, a second later, the last value.
	if n := len(w.b.commits); n > 3 || !strings.Contains(tree(w.b.commits[n-1]), "[18,") {
		t.Errorf("the live ref is\n%s", w.log())
	}
}

func TestLiveRefShowsWhatIsOnlyReported(t *testing.T) {
	w := newTelling(t)
	files := map[string]string{"report/web.yaml": app, "report/a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}
	w.setRef("refs/heads/main", w.repo.add("c1", "", files))
	w.run(time.Second)
	w.by("ann", "deployments", "default", "web", scale(5))
	w.run(3 * time.Second)
	w.by("bob", "configmaps", "default", "a", nil)
	w.run(3 * time.Second)
	files = maps.Clone(files)
	files["b.yaml"] = configMap("b", "2")
	w.setRef("refs/heads/main", w.repo.add("c2", "c1", files))
	w.run(3 * time.Second)
	w.by("ann", "deployments", "default", "web", scale(3))
	w.run(3 * time.Second)
	w.expect("Headway <headway@main>: applied: c10000000000 {}",
		`ann <ann@headway>: drift: Deployment default/web spec.replicas 3 → 5 {report/web.yaml=[5,null,["spec.replicas"]]}`,
		`bob <bob@headway>: drift: ConfigMap default/a deleted {report/a.yaml=deleted report/web.yaml=[5,null,["spec.replicas"]]}`,
		`Headway <headway@main>: applied: c20000000000 {report/a.yaml=deleted report/web.yaml=[5,null,["spec.replicas"]]}`,
		`ann <ann@headway>: healed: Deployment default/web {report/a.yaml=deleted}`)
	if w.b.commits[3].Applied != commitID("c2") || w.b.commits[2].Applied != commitID("c1") {
		t.Error("the trailer names another commit")
	}
}

// TestLiveRefTellsWhatCameBeforeACommit: a drift that is healed by the very commit
// that comes within the second.
func TestLiveRefTellsWhatCameBeforeACommit(t *testing.T) {
	w := newTelling(t)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.run(time.Second)
	w.by("ann", "deployments", "default", "web", scale(5))
	w.run(100 * time.Millisecond)
	w.setRef("refs/heads/main", w.repo.add("c2", "c1", map[string]string{"web.yaml": edit(app, "web:1", "web:2")}))
	w.run(3 * time.Second)
	w.expect("Headway <headway@main>: applied: c10000000000 {}",
		`ann <ann@headway>: drift: Deployment default/web spec.replicas 3 → 5 {web.yaml=[5,null,["spec.replicas"]]}`,
		"Headway <headway@main>: healed: Deployment default/web {}",
		"Headway <headway@main>: applied: c20000000000 {}")
}

// TestR4_TheLiveRefIsResumable kills the process before and after every write to
// the store and to the ref, and starts it again: the ref tells the same.
func TestR4_TheLiveRefIsResumable(t *testing.T) {
	want := ""
	for _, after := range []bool{false, true} {
		for _, ref := range []bool{false, true} {
			for kill := 1; ; kill++ {
				w := newTelling(t)
				killed, dead := false, false
				w.b.fail = func(n int) (bool, bool) {
					if dead {
						return true, false
					}
					if ref && n == kill {
						killed, dead = true, true
						return !after, after
					}
					return false, false
				}
				w.around = func(n int, commit func() (int64, error)) (int64, error) {
					if dead {
						return 0, store.ErrUnavailable
					}
					if !ref && n == kill {
						killed, dead = true, true
						if after {
							if _, err := commit(); err != nil {
								return 0, err
							}
						}
						return 0, store.ErrUnavailable
					}
					return commit()
				}
				alive := func(d time.Duration) {
					w.run(d)
					if dead {
						dead, w.b.fail, w.around = false, nil, nil
						w.open()
						w.restart()
						w.run(d)
					}
				}
				w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
				alive(2 * time.Second)
				w.by("ann", "deployments", "default", "web", scale(5))
				alive(5 * time.Second)
				if want == "" && !killed {
					t.Fatal("nothing was written")
				}
				if want == "" {
					want = w.log()
					if len(w.b.commits) != 3 {
						t.Fatalf("the live ref is\n%s", want)
					}
				}
				if got := w.log(); got != want {
					t.Errorf("kill %d after=%t ref=%t: the live ref is\n%s\nwant\n%s", kill, after, ref, got, want)
				}
				if r := w.record("deployments", "default", "web"); r == nil || r.Told != r.Digest() || r.Shown {
					t.Errorf("kill %d after=%t ref=%t: record %+v", kill, after, ref, r)
				}
				if !killed {
					break
				}
			}
		}
	}
}

func TestR4_ADeposedLeaderDoesNotWriteTheLiveRef(t *testing.T) {
	w := newTelling(t)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	w.run(time.Second)
	w.by("ann", "deployments", "default", "web", scale(5))
	w.settle() // recorded and healed
	w.s.cfg.Fence = func() store.Fence { return store.Fence{Key: store.ElectionKey, Revision: 1<<63 - 1} }
	commits, calls := len(w.b.commits), w.b.calls
	w.run(10 * time.Second)
	if w.b.calls == calls || len(w.b.commits) != commits {
		t.Errorf("tried %d times, and written without the fence:\n%s", w.b.calls-calls, w.log())
	}
}

// What another leader has left at the forge is taken over before we write on, in each
// leadership anew; a forge that is away does not keep us from what is here.
func TestLiveRefAsksTheForgeFirst(t *testing.T) {
	adopts := 0
	var fail error
	w := newTelling(t, func(c *LiveConfig) { c.Adopt = func(context.Context) error { adopts++; return fail } })
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"web.yaml": app}))
	// A new clone waits for the forge: the live ref may be there.
	fail = git.ErrUnreachable
	w.run(10 * time.Second)
	if adopts < 2 || len(w.b.commits) != 0 {
		t.Errorf("asked %d times, the live ref is\n%s", adopts, w.log())
	}
	fail = nil
	w.run(time.Minute)
	asked := adopts
	w.by("ann", "deployments", "default", "web", scale(5))
	w.run(5 * time.Second)
	if adopts != asked || len(w.b.commits) != 3 {
		t.Errorf("asked %d times more, the live ref is\n%s", adopts-asked, w.log())
	}
	// The next leadership asks again, ever more seldom, and writes on.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.l.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	fail, asked = git.ErrUnreachable, adopts
	for i := range 300 {
		w.by("ann", "deployments", "default", "web", scale(int32(10+i)))
		w.run(time.Second)
	}
	if n := adopts - asked; n < 2 || n > 6 || len(w.b.commits) < 5 { // after 10, 20, 40, … seconds
		t.Errorf("asked %d times in five minutes, the live ref is\n%s", n, w.log())
	}
	fail = nil
	w.run(longRetry)
	w.by("ann", "deployments", "default", "web", scale(5))
	w.run(time.Minute)
	asked = adopts
	w.by("ann", "deployments", "default", "web", scale(6))
	w.run(time.Minute)
	if adopts != asked {
		t.Errorf("asked %d times after it had answered", adopts-asked)
	}
}

func TestLiveRefIsRateBounded(t *testing.T) {
	w := newTelling(t)
	const objects = 200
	files := map[string]string{}
	for i := range objects {
		name := fmt.Sprintf("c%03d", i)
		files["report/"+name+".yaml"] = configMap(name, "1")
	}
	w.setRef("refs/heads/main", w.repo.add("c1", "", files))
	w.run(time.Second)
	for i := range objects {
		w.by("robot", "configmaps", "default", fmt.Sprintf("c%03d", i), func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = "2" })
	}
	w.run(time.Minute)
	last := w.b.commits[len(w.b.commits)-1]
	if n := len(w.b.commits); n > 5 || len(last.Edits) != objects || last.Author.Name != "robot" {
		t.Errorf("%d commits, the last with %d files by %s", n, len(last.Edits), last.Author.Name)
	}
	// Somebody changes one object once a second for ten minutes.
	n := len(w.b.commits)
	for i := range 600 {
		w.by("robot", "configmaps", "default", "c000", func(o api.Object) { o.(*corev1.ConfigMap).Data["k"] = fmt.Sprint(i + 10) })
		w.run(time.Second)
	}
	if got := len(w.b.commits) - n; got > liveBurst+int(10*time.Minute/liveRefill)+1 {
		t.Errorf("%d commits in ten minutes", got)
	}
}

func TestR14_NoSecretInTheLiveRef(t *testing.T) {
	w := newTelling(t)
	w.setRef("refs/heads/main", w.repo.add("c1", "", map[string]string{"report/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: declared-value}\n"}))
	w.run(time.Second)
	w.by("ann", "secrets", "default", "s", func(o api.Object) { o.(*corev1.Secret).Data["k"] = []byte("changed-value") })
	w.run(5 * time.Second)
	text := fmt.Sprintf("%+v %s", w.b.commits, w.log())
	contain(t, text, "drift: Secret default/s data.k differs", `report/s.yaml=[null,{"k":"other"},["data.k"]]`)
	for _, v := range []string{"declared-value", "changed-value", "ZGVjbGFyZWQtdmFsdWU=", "Y2hhbmdlZC12YWx1ZQ=="} {
		if strings.Contains(text, v) {
			t.Errorf("%s in %s", v, text)
		}
	}
}
