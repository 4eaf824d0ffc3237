package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stage keeps count of which followers run.
type stage struct {
	mu    sync.Mutex
	runs  []string // "+team" began, "-team" ended, "x team" was closed
	fails map[string]error
}

func (s *stage) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, what)
}

func (s *stage) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.runs
	s.runs = nil
	return out
}

// acting is a part that runs until it is told to end.
type acting struct {
	s    *stage
	name string
}

func (a acting) Run(ctx context.Context) error {
	a.s.note("+" + a.name)
	<-ctx.Done()
	a.s.note("-" + a.name)
	return ctx.Err()
}

// Followers come and go with their Sources, and run on the leader alone; one never
// runs twice at once.
func TestFollowersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		st := store.New(memory.New(), store.Options{Seal: storetest.SealKey()})
		s := &stage{fails: map[string]error{}}
		all := newSources(st, slog.New(slog.DiscardHandler))
		all.clones = &clones{}
		all.stale = func(*follower) bool { return false }
		all.open = func(_ context.Context, src *api.Source) (*follower, error) {
			if err := s.fails[src.Name]; err != nil {
				return nil, err
			}
			f := &follower{name: src.Name, uid: src.UID, spec: src.Spec}
			f.add("part", acting{s, src.Name + " " + src.Spec.Ref})
			return f, nil
		}
		all.close = func(f *follower) { s.note("x " + f.name) }
		main := &follower{name: api.MainSource}
		main.add("part", acting{s, "main"})
		all.put(main)
		st.OnEvents(all.Handle)
		if err := st.Load(ctx); err != nil {
			t.Fatal(err)
		}
		var kept sync.WaitGroup
		kept.Go(func() { all.keep(ctx) })
		expect := func(when string, want ...string) {
			t.Helper()
			storetest.Settle(t, st)
			synctest.Wait()
			got := s.take()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		write := func(verb store.Verb, src *api.Source) *api.Source {
			t.Helper()
			out := src.DeepCopyObject().(*api.Source)
			if _, err := st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: verb, Object: out}}}); err != nil {
				t.Fatal(err)
			}
			return out
		}
		source := func(name string) *api.Source {
			src := &api.Source{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: api.SourceSpec{URL: "/x", Ref: "one", Namespaces: []string{"a"}}}
			store.Stamp(src, metav1.Now().Time)
			return src
		}
		team := write(store.Create, source("team"))
		expect("not the leader")
		if _, err := all.get("team"); err != nil {
			t.Error(err)
		}
		var bad *badRequest
		if _, err := all.get("nobody"); !errors.As(err, &bad) {
			t.Errorf("nobody: %v", err)
		}

		lead, depose := context.WithCancel(ctx)
		var led sync.WaitGroup
		led.Go(func() {
			if err := all.Run(lead); err != nil {
				t.Error(err)
			}
		})
		expect("the leader", "+main", "+team one")
		team.Spec.Ref = "two"
		team = write(store.Update, team)
		expect("another ref", "-team one", "x team", "+team two")
		s.fails["broken"] = errors.New("no disk")
		broken := write(store.Create, source("broken"))
		expect("one that cannot be opened")
		if _, err := all.get("broken"); err == nil || err.Error() != "source broken cannot be followed: no disk" {
			t.Errorf("broken: %v", err)
		}
		delete(s.fails, "broken")
		broken.Status.Message = "x"
		broken = write(store.Update, broken)
		expect("it can be opened", "+broken one")
		at := metav1.Now()
		team.DeletionTimestamp = &at
		write(store.Update, team)
		expect("marked", "-team two", "x team")
		depose()
		led.Wait()
		expect("deposed", "-main", "-broken one")
		write(store.Delete, broken)
		expect("gone", "x broken")
		cancel()
		kept.Wait()
	})
}

// Webhooks are remembered once for each source.
func TestPokes(t *testing.T) {
	p := newPokes()
	for _, name := range []string{"b", "a", "b"} {
		p.add(name)
	}
	if got := p.take(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if got := p.take(); len(got) != 0 {
		t.Errorf("again: %v", got)
	}
}

// A further source has files of its own, or else the main source's; a repository
// behind nothing has none.
func TestAccessOfAFurtherSource(t *testing.T) {
	dir := dataDir(t.TempDir())
	c := &cluster{cfg: clusterConfig{dir: dir, source: sourceConfig{netrc: "/etc/main-netrc"}}}
	own := dir.path("credentials", "team", "netrc")
	https := api.SourceSpec{URL: "https://x.example/a.git"}
	if a := c.accessOf("team", https); a.netrc != "/etc/main-netrc" || !a.netrcMayBe || a.sshKey != "" {
		t.Errorf("the main source's: %+v", a)
	}
	if err := replaceFile(own, []byte("machine x.example login a password b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := c.accessOf("team", https); a.netrc != own {
		t.Errorf("its own: %+v", a)
	}
	if a := c.accessOf("team", api.SourceSpec{URL: "git@x.example:a.git"}); a.sshKey != dir.path("credentials", "team", "ssh-key") || a.knownHosts == "" || a.netrc != "" {
		t.Errorf("ssh: %+v", a)
	}
	if a := c.accessOf("team", api.SourceSpec{URL: "/srv/a.git"}); a != (access{url: "/srv/a.git"}) {
		t.Errorf("a path: %+v", a)
	}
}
