package probe

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestTally(t *testing.T) {
	for _, c := range []struct {
		success, failure int32
		results, want    string // s, f, u; a verdict after each: S, F, -
	}{
		{1, 3, "ffsff", "--SSS"},
		{1, 3, "sfff", "SSSF"},
		{1, 3, "sffsff", "SSSSSS"},
		{2, 1, "sfss", "-FFS"},
		{3, 2, "sssffs", "--SSFF"},
		{1, 1, "sufs", "SSFS"},
		{1, 0, "fff", "--F"}, // what is not said is 3
		{1, 2, "fuf", "--F"}, // what could not be asked does not count
	} {
		p := &corev1.Probe{SuccessThreshold: c.success, FailureThreshold: c.failure}
		var tally Tally
		got := ""
		for _, r := range c.results {
			tally = tally.Add(map[rune]Result{'s': Success, 'f': Failure, 'u': Unknown}[r], p)
			got += map[Result]string{Success: "S", Failure: "F", Unknown: "-"}[tally.Verdict]
		}
		if got != c.want {
			t.Errorf("%+v gives %s", c, got)
		}
	}
}

// A verdict changes exactly when so many results in a row say the other thing.
func TestTallyProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &corev1.Probe{SuccessThreshold: rapid.Int32Range(1, 4).Draw(t, "success"), FailureThreshold: rapid.Int32Range(1, 4).Draw(t, "failure")}
		var tally Tally
		said := ""
		for range rapid.IntRange(1, 40).Draw(t, "n") {
			r := rapid.SampledFrom([]Result{Success, Failure}).Draw(t, "result")
			before := tally.Verdict
			tally = tally.Add(r, p)
			said += string(r[0])
			reached := map[bool]bool{true: strings.HasSuffix(said, strings.Repeat("s", int(p.SuccessThreshold))), false: strings.HasSuffix(said, strings.Repeat("f", int(p.FailureThreshold)))}
			switch {
			case reached[true] && tally.Verdict != Success, reached[false] && tally.Verdict != Failure, !reached[true] && !reached[false] && tally.Verdict != before:
				t.Fatalf("after %s: %s, before %s (%+v)", said, tally.Verdict, before, p)
			}
		}
	})
}

func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		room := [2]int{rapid.IntRange(1, 3).Draw(t, "network"), rapid.IntRange(1, 3).Draw(t, "commands")}
		s := NewSchedule[int](room[0], room[1])
		in, busy, yielded := map[*Item[int]]bool{}, map[*Item[int]]bool{}, map[*Item[int]]bool{}
		for n := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				in[s.Add(n, now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "in"))*time.Second), rapid.Bool().Draw(t, "command"))] = true
			case 1:
				for it := range in {
					s.Remove(it)
					delete(in, it)
					break
				}
			case 2:
				for it := range busy {
					if s.Done(it, time.Duration(1+rapid.IntRange(0, 3).Draw(t, "period"))*time.Second, now) != in[it] {
						t.Fatal("a probe that was removed is put back, or one that was not is lost")
					}
					if in[it] && it.at.Before(now) {
						t.Fatal("due in the past")
					}
					delete(busy, it)
					delete(yielded, it)
					break
				}
			case 5: // one that takes long keeps nobody waiting, however often that is said
				for it := range busy {
					s.Yield(it)
					yielded[it] = true
					break
				}
			case 3:
				now = now.Add(time.Second)
			case 4:
				it := s.Take(now)
				due := false
				for other := range in {
					inLane := 0
					for b := range busy {
						if b.lane == other.lane && !yielded[b] {
							inLane++
						}
					}
					due = due || !busy[other] && !other.at.After(now) && inLane < room[other.lane]
				}
				if (it != nil) != due || it != nil && (!in[it] || busy[it] || it.at.After(now)) {
					t.Fatalf("took %+v, though something due is %v", it, due)
				}
				if it != nil {
					busy[it] = true
				}
			}
			if next := s.Next(); !next.IsZero() && !next.After(now) {
				if it := s.Take(now); it == nil {
					t.Fatal("it says that something is due, and gives nothing")
				} else {
					busy[it] = true
				}
			}
		}
	})
}
