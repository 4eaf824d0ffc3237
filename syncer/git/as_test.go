package git

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Two sources that follow one repository share its clone and each fetch, and have
// a live ref and notes of their own there.
func TestForgeAs(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := w.commit("deploy/web.yaml", "replicas: 1\n")
	bare := filepath.Join(t.TempDir(), "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	theirs := &work{t: t, dir: bare}
	first := openForge(t, ForgeConfig{URL: bare})
	second := first.As("main.team-a")
	if _, err := first.Fetch(ctx, "main", 0); err != nil {
		t.Fatal(err)
	}
	// The repository is away: only a fetch that is shared can answer.
	if err := os.Rename(bare, bare+".away"); err != nil {
		t.Fatal(err)
	}
	if got, err := second.Fetch(ctx, "main", time.Hour); err != nil || got != head {
		t.Errorf("a shared fetch: %q, %v", got, err)
	}
	if _, err := second.Fetch(ctx, "main", 0); err == nil {
		t.Error("a new fetch is answered by an old one")
	}
	if err := os.Rename(bare+".away", bare); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*Forge{"main": first, "main.team-a": second} {
		if _, err := f.WriteLive(ctx, liveOf("", head, Edit{Path: "deploy/web.yaml", Content: []byte("by " + name + "\n")}), nil); err != nil {
			t.Fatal(err)
		}
		writeNote(t, f.Repository, head, "by "+name)
		if err := f.Keep(ctx, []string{head}); err != nil {
			t.Fatal(err)
		}
		if err := f.Push(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"main", "main.team-a"} {
		if got := theirs.git("show", "refs/heads/headway/"+name+"/live:deploy/web.yaml"); got != "by "+name {
			t.Errorf("live ref of %s: %q", name, got)
		}
		if got := theirs.git("notes", "--ref=refs/notes/headway/"+name, "show", head); got != "by "+name {
			t.Errorf("note of %s: %q", name, got)
		}
	}
	if err := second.Keep(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if kept, err := first.refs(ctx, "refs/headway/main/keep/"); err != nil || len(kept) != 1 {
		t.Errorf("one keeps what the other does not: %v, %v", kept, err)
	}
}
