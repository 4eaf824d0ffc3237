package api

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A slot that was taken stays so, whatever else is taken and in which order, the
// record stays small, and its spans are in order and apart.
func TestSlotRecordForgetsNothing(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		var r SlotRecord
		taken := map[time.Time]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "slots") {
			at := noon.Add(time.Duration(rapid.IntRange(-500, 500).Draw(t, "minutes")) * time.Minute)
			before := r.Has(at)
			if !before && taken[at] {
				t.Fatalf("%s is free again", at)
			}
			r.Take(at)
			taken[at] = true
			for at := range taken {
				if !r.Has(at) {
					t.Fatalf("%s is not taken", at)
				}
			}
			if len(r.Taken) > maxSpans {
				t.Fatalf("%d spans", len(r.Taken))
			}
			for i, s := range r.Taken {
				if s.Last.Before(&s.First) || i > 0 && !r.Taken[i-1].Last.Before(&s.First) {
					t.Fatalf("spans %v", r.Taken)
				}
			}
			if len(taken) <= maxSpans && len(r.Taken) != len(taken) {
				t.Fatalf("%d slots in %d spans", len(taken), len(r.Taken))
			}
		}
	})
}

// Slots of a clock that was wrong by years do not take those between.
func TestSlotRecordKeepsTheWidestGap(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var r SlotRecord
	for i := range 1000 {
		r.Take(noon.Add(time.Duration(i) * time.Minute))
	}
	for i := range 1000 {
		r.Take(noon.AddDate(4, 0, 0).Add(time.Duration(i) * time.Minute))
	}
	for at, want := range map[time.Time]bool{noon.Add(999 * time.Minute): true, noon.Add(1000 * time.Minute): false, noon.AddDate(3, 0, 0): false, noon.AddDate(4, 0, 0): true, noon.Add(-time.Minute): false} {
		if got := r.Has(at); got != want {
			t.Errorf("%s is taken: %v", at, got)
		}
	}
	if got, want := r.Newest(), noon.AddDate(4, 0, 0).Add(999*time.Minute); !got.Equal(want) {
		t.Errorf("the newest is %s, want %s", got, want)
	}
}
