package syncer

import (
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// Killed at every write between the entry's coming and what it brings, and again
// between its going and what that lets go, the cluster ends in the same state (R2).
func TestR2_FurtherSourcesSurviveKills(t *testing.T) {
	for _, trailer := range []string{"", "Allow-Delete: Source/a"} {
		for _, done := range []bool{true, false} { // whether the write that is the last one arrives
			n := 1
			for survives(t, n, done, trailer) {
				n++
			}
			if n < 10 {
				t.Errorf("only %d writes were stood around", n)
			}
		}
	}
}

// survives says whether there was an n-th write to be killed at.
func survives(t *testing.T, n int, done bool, trailer string) (killed bool) {
	f := newFleet(t)
	f.bulk = 4
	f.again()
	dead := false
	f.commits = 0
	f.around = func(i int, commit func() (int64, error)) (int64, error) {
		if dead || i == n {
			if !dead && done {
				if _, err := commit(); err != nil {
					return 0, err
				}
			}
			dead, killed = true, true
			return 0, store.ErrUnavailable
		}
		return commit()
	}
	through := func() {
		f.settle()
		if dead {
			dead = false
			f.again()
			f.settle()
		}
		f.pass(time.Minute)
		if dead {
			dead = false
			f.again()
			f.pass(time.Minute)
		}
	}
	f.heads["a"] = f.repo("a").add("a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1"), "v.yaml": mapIn("a", "v", "1"), "z.yaml": mapIn("a", "z", "1")})
	f.heads["b"] = f.repo("b").add("b1", "", map[string]string{"x.yaml": mapIn("b", "x", "1")})
	f.setRef("refs/heads/main", f.world.repo.add("m1", "", two()))
	through()
	for _, name := range []string{"x", "v", "z"} {
		if o := f.owner("a", name); o != "a" {
			t.Fatalf("killed at write %d (done: %v): %s belongs to %q", n, done, name, o)
		}
	}
	files := two()
	files[api.ConfigFile] = naming("b: b")
	m2 := f.world.repo.add("m2", "m1", files)
	want := "none"
	if trailer != "" {
		f.world.repo.say(m2, trailer)
		want = ""
	}
	f.setRef("refs/heads/main", m2)
	through()
	for _, name := range []string{"x", "v", "z"} {
		if o := f.owner("a", name); o != want {
			t.Fatalf("killed at write %d (done: %v): %s belongs to %q, want %q", n, done, name, o, want)
		}
	}
	if f.of("a") != nil || len(f.s.leaves("a")) != 0 || f.status().Applied != m2 || f.owner("b", "x") != "b" {
		t.Fatalf("killed at write %d (done: %v): Source %v, left %v, main %+v", n, done, f.of("a"), f.s.leaves("a"), f.status())
	}
	return killed
}

// A commit that adds a source and comes no further than a part is taken back with it.
func TestAHalfAppliedEntryIsTakenBack(t *testing.T) {
	f := newFleet(t)
	f.bulk = 4
	f.again()
	f.main(f.world.repo.add("m1", "", map[string]string{"m.yaml": configMap("m", "1"), "a.yaml": space("a")}))
	files := two()
	for i := range 10 {
		files[fmt.Sprintf("n%d.yaml", i)] = configMap(fmt.Sprintf("n%d", i), "1")
	}
	m2 := f.world.repo.add("m2", "m1", files)
	f.world.repo.add("m3", "m2", map[string]string{"m.yaml": "kind: Nonsense\n"})
	sources := 0
	f.around = func(_ int, commit func() (int64, error)) (int64, error) {
		if len(f.s.sources()) > sources && f.s.hosted(f.s.source()) == m2 {
			sources = 1000
			f.setRef("refs/heads/main", commitID("m3"))
		}
		return commit()
	}
	f.heads["a"] = f.repo("a").add("a1", "", map[string]string{"x.yaml": mapIn("a", "x", "1")})
	f.main(m2)
	f.pass(time.Minute)
	if st := f.status(); st.Applied != m2 && (f.of("a") != nil || st.Refused != commitID("m3")) {
		t.Errorf("Source %v, main %+v", f.of("a"), st)
	}
}
