package forge

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// rollout reports a commit from the beginning to its end, a second apart, until an
// error. It says whether the end was stored.
func rollout(s *Statuses) bool {
	for i, phase := range []Phase{Waiting, Applying, RollingOut, Healthy} {
		r := Report{Commit: aCommit, Attempt: 1, Revision: int64(i + 1), Phase: phase}
		if err := s.Report(context.Background(), r); err != nil {
			return false
		}
		time.Sleep(time.Second) // the bubble's
	}
	return true
}

// check says what must hold at the end, however it came about.
func check(t *testing.T, w *world, point int) {
	t.Helper()
	if last := w.last(aCommit); last.state != "success" {
		t.Errorf("stopped at point %d: the forge shows %q at the end, after %s", point, last.state, w.states(aCommit))
	}
	if all := w.states(aCommit); strings.Contains(all, "success pending") {
		t.Errorf("stopped at point %d: not monotonic: %s", point, all)
	}
	for key, raw := range w.intents {
		if !strings.Contains(string(raw), `"settled":true`) {
			t.Errorf("stopped at point %d: intent %s is left open: %s", point, key, raw)
		}
	}
}

// The process is killed before and after every call that it makes to the store, the
// fence and the forge. The next leader ends right, and says nothing if all that was
// to be said is in the store.
func TestR4_KilledBetweenAnyTwoSteps(t *testing.T) {
	point := 0
	for again := true; again; point++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			first := w.process()
			first.stop = point
			s, _, stop := first.start(t, nil)
			stored := rollout(s)
			time.Sleep(time.Minute)
			stop()
			again = first.reached()
			if !again {
				check(t, w, point)
				return
			}
			w.depose()
			second := w.process()
			s, _, stop = second.start(t, nil)
			if !stored {
				if err := s.Report(context.Background(), Report{Commit: aCommit, Attempt: 1, Revision: 9, Phase: Healthy}); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute)
			stop()
			check(t, w, point)
		})
	}
	if point < 20 {
		t.Errorf("only %d points: the test does not test", point)
	}
	t.Logf("killed at %d points", point)
}

// The process is suspended at every such point and goes on when another has been
// the leader for a while: nothing of it arrives any more, and what the other says
// stands. When it goes on soon enough that a request of it still arrives, the other
// has waited for that.
func TestR4_NothingIsSentByADeposedLeader(t *testing.T) {
	for _, asleep := range []time.Duration{5 * time.Second, 2 * requestTimeout} {
		point := 0
		for again := true; again; point++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				first := w.process()
				first.stop, first.release = point, make(chan struct{})
				s, _, stopFirst := first.start(t, nil)
				reported := make(chan bool, 1)
				go func() { reported <- rollout(s) }()
				time.Sleep(10 * time.Second)
				again = first.reached()
				w.depose()
				deposed := time.Now()

				second := w.process()
				s2, _, stopSecond := second.start(t, nil)
				if err := s2.Report(context.Background(), Report{Commit: aCommit, Attempt: 1, Revision: 9, Phase: Healthy}); err != nil {
					t.Error(err)
				}
				time.Sleep(asleep)
				close(first.release)
				time.Sleep(time.Minute)
				stopFirst()
				<-reported
				stopSecond()
				check(t, w, point)
				for _, got := range w.shown {
					// It may send what it had checked the fence for, as long as that is good for.
					if got.by == 1 && got.at.After(deposed.Add(requestTimeout)) {
						t.Errorf("asleep %s at point %d: the deposed leader sent %q %s later", asleep, point, got.state, got.at.Sub(deposed))
					}
					if got.by == 1 && got.at.After(deposed) && asleep > requestTimeout {
						t.Errorf("asleep %s at point %d: the deposed leader sent %q", asleep, point, got.state)
					}
				}
			})
		}
		if point < 20 {
			t.Errorf("only %d points: the test does not test", point)
		}
	}
}
