package syncer

import (
	"errors"
	"testing"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/syncer/forge"
)

func TestR4_IntentsAreKept(t *testing.T) {
	w := newWorld(t)
	fence := store.Fence{}
	s := &Intents{Store: w.st, Fence: func() store.Fence { return fence }, Now: func() time.Time { return someTime }}
	i := forge.Intent{Key: "0123456789abcdef0123456789abcdef", Repository: "https://git.example.org/app", Context: "headway/main", Commit: commitID("c1"),
		Ref: "refs/heads/main", Attempt: 3, Revision: 5, State: forge.Running, Description: "rolling out"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	only := func(want ...forge.Intent) {
		t.Helper()
		got, err := s.List(t.Context())
		if err != nil || len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
	must(s.Put(t.Context(), i))
	only(i)
	must(s.Done(t.Context(), i))
	settled := i
	settled.Settled = true
	only(settled)
	i.Revision, i.State = 9, forge.Success
	must(s.Put(t.Context(), i))
	must(s.Done(t.Context(), settled)) // of what is not there any more
	only(i)
	fence = store.Fence{Key: store.ElectionKey, Revision: 7}
	if err := s.Put(t.Context(), i); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a deposed leader: %v", err)
	}
	if err := Holds(t.Context(), w.st, fence); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a deposed leader holds: %v", err)
	}
	fence = store.Fence{}
	must(Holds(t.Context(), w.st, fence))
	must(s.Drop(t.Context(), i.Key))
	must(s.Drop(t.Context(), i.Key))
	must(s.Done(t.Context(), i))
	only()
}
