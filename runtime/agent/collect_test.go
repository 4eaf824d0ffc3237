package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestExcess(t *testing.T) {
	for _, tc := range []struct {
		used    int64 // of 1000
		collect Collect
		want    int64
	}{
		{849, Collect{}, 0}, {850, Collect{}, 50}, {1000, Collect{}, 200},
		{1000, Collect{High: 100}, 0}, {500, Collect{High: 50, Low: 10}, 400},
	} {
		if got := excess(DiskSpace{Capacity: 1000, Available: 1000 - tc.used}, tc.collect); got != tc.want {
			t.Errorf("%d used of 1000, %+v: %d, want %d", tc.used, tc.collect, got, tc.want)
		}
	}
	if excess(DiskSpace{}, Collect{}) != 0 {
		t.Error("a disk of no size is full")
	}
	for _, bad := range []Collect{{High: 101}, {High: 80, Low: 80}, {Low: -1}, {High: -1}, {MinAge: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if err := (Collect{High: 85, Low: 80, MinAge: time.Minute}).Validate(); err != nil {
		t.Error(err)
	}
}

// No image goes that is needed, kept or new, and who was used last goes last.
func TestRemovable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		past, names := map[string]pastUse{}, map[string]bool{}
		var found []PresentImage
		for i := range rapid.IntRange(0, 8).Draw(t, "images") {
			id := string(rune('a' + i))
			found = append(found, PresentImage{ID: id, Names: []string{id + ":1", id + ":2"}, Kept: rapid.Bool().Draw(t, "kept")})
			past[id] = pastUse{
				Seen: now.Add(-time.Duration(rapid.IntRange(0, 240).Draw(t, "seen")) * time.Second),
				Used: now.Add(-time.Duration(rapid.IntRange(0, 240).Draw(t, "used")) * time.Second),
			}
			names[id+":2"] = rapid.Bool().Draw(t, "needed")
		}
		got := removable(found, past, func(n string) bool { return names[n] }, 2*time.Minute, now)
		want := 0
		for _, i := range found {
			if !i.Kept && !names[i.ID+":2"] && now.Sub(past[i.ID].Seen) >= 2*time.Minute {
				want++
			}
		}
		for k, i := range got {
			if i.Kept || names[i.ID+":2"] || now.Sub(past[i.ID].Seen) < 2*time.Minute {
				t.Fatalf("%s goes", i.ID)
			}
			if k > 0 && past[i.ID].Used.Before(past[got[k-1].ID].Used) {
				t.Fatalf("%s, which was used before, goes after", i.ID)
			}
		}
		if len(got) != want {
			t.Fatalf("%d go, want %d", len(got), want)
		}
	})
}

func TestRemember(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	found := []PresentImage{{ID: "new"}, {ID: "old"}, {ID: "used", Names: []string{"used:1"}}, {ID: "future"}}
	past := map[string]pastUse{
		"old": {Seen: now.Add(-time.Hour), Used: now.Add(-time.Minute)}, "used": {Seen: now.Add(-time.Hour)},
		"gone": {Seen: now}, "future": {Seen: now.Add(time.Hour), Used: now.Add(time.Hour)},
	}
	path := filepath.Join(t.TempDir(), "images.json")
	if err := writePast(path, remember(found, past, func(n string) bool { return n == "used:1" }, now)); err != nil {
		t.Fatal(err)
	}
	got := readPast(path)
	if len(got) != 4 || !got["new"].Seen.Equal(now) || !got["new"].Used.IsZero() || !got["old"].Used.Equal(now.Add(-time.Minute)) ||
		!got["used"].Used.Equal(now) || !got["future"].Seen.Equal(now) || !got["future"].Used.Equal(now) {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "{", strings.Repeat("x", 10)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readPast(path); len(got) != 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}
