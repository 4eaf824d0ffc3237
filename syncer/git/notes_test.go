package git

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	us   = Identity{"Headway", "headway@main"}
	noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func writeNote(t testing.TB, r *Repository, commit, content string) {
	t.Helper()
	if err := r.WriteNote(context.Background(), commit, []byte(content), us, noon, nil); err != nil {
		t.Fatal(err)
	}
}

// import fills a repository from a stream of git fast-import.
func (w *work) fastImport(stream string) {
	w.t.Helper()
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Env, cmd.Stdin = w.dir, append(cleanEnv(), "MALLOC_TRIM_THRESHOLD_=67108864"), strings.NewReader(stream)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git fast-import: %v\n%s", err, out)
	}
}

// history makes n commits that change nothing, oldest first.
func (w *work) history(n int) []string {
	w.t.Helper()
	var in strings.Builder
	for i := range n {
		message := fmt.Sprintf("commit %d", i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Bob <bob@example.org> %d +0000\ndata %d\n%s\n", 1700000000+i, len(message), message)
	}
	w.fastImport(in.String())
	return strings.Fields(w.git("rev-list", "--reverse", "main"))
}

func TestNotes(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first := w.commit("a", "1")
	second := w.commit("a", "2")
	r := bareOf(t, w)
	if _, err := r.ReadNote(ctx, first); !errors.Is(err, ErrNotFound) {
		t.Errorf("a note before there is any: %v", err)
	}
	if notes, err := r.Notes(ctx, 5); err != nil || len(notes) != 0 {
		t.Errorf("notes %v: %v", notes, err)
	}
	writeNote(t, r, first, "applied: 12:00\nby: server-1\x1b[31m\n\n")
	writeNote(t, r, second, "applied: 12:05")
	tip := w.git("rev-parse", "refs/notes/headway/main")
	writeNote(t, r, second, "applied: 12:05\n")
	if again := w.git("rev-parse", "refs/notes/headway/main"); again != tip {
		t.Error("the same note was written again")
	}
	writeNote(t, r, first, "applied: 12:00\nrollout: healthy")
	if got, err := r.ReadNote(ctx, first); err != nil || string(got) != "applied: 12:00\nrollout: healthy\n" {
		t.Errorf("read %q: %v", got, err)
	}
	log := w.git("log", "--notes=headway/*")
	for _, want := range []string{"Notes (headway/main):", "    applied: 12:05", "    rollout: healthy"} {
		if !strings.Contains(log, want) {
			t.Errorf("git log does not show %q:\n%s", want, log)
		}
	}
	notes, err := r.Notes(ctx, 5)
	if err != nil || len(notes) != 2 || notes[0].Commit != first || notes[1].Commit != second || !notes[0].Written.Equal(noon) || !bytes.Contains(notes[0].Content, []byte("healthy")) {
		t.Errorf("notes %+v: %v", notes, err)
	}
	if notes, err := r.Notes(ctx, 1); err != nil || len(notes) != 1 || notes[0].Commit != first {
		t.Errorf("one note %+v: %v", notes, err)
	}
	if who := w.git("log", "-1", "--format=%an <%ae> %at", "refs/notes/headway/main"); who != fmt.Sprint("Headway <headway@main> ", noon.Unix()) {
		t.Errorf("written by %s", who)
	}
	w.git("fsck", "--strict")

	for name, try := range map[string]struct{ commit, content, want string }{
		"no such commit": {strings.Repeat("ab", 20), "x", "not found"},
		"not a commit":   {w.git("rev-parse", "HEAD^{tree}"), "x", "it is a tree"},
		"a short hash":   {first[:12], "x", "not a full commit hash"},
		"empty":          {first, " \n", "it says nothing"},
		"too large":      {first, strings.Repeat("x", maxNote+1), "too large"},
	} {
		if err := r.WriteNote(ctx, try.commit, []byte(try.content), us, noon, nil); err == nil || !strings.Contains(err.Error(), try.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.WriteNote(ctx, first, []byte("x"), Identity{" <> ", ""}, noon, nil); err == nil || !strings.Contains(err.Error(), "says nothing") {
		t.Errorf("nobody: %v", err)
	}
}

// Thousands of notes, some of them written by git, are read by git and by us alike.
func TestNotesFanout(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	commits := w.history(1500)
	r := bareOf(t, w)
	for i, c := range commits[:300] {
		writeNote(t, r, c, fmt.Sprint("note ", i))
	}
	w.git("notes", "--ref=headway/main", "add", "-m", "note 300", commits[300]) // git lays the tree out as it likes
	for i, c := range commits[301:400] {
		writeNote(t, r, c, fmt.Sprint("note ", 301+i))
	}
	var in strings.Builder // fast-import has a layout of its own
	in.WriteString("commit refs/notes/headway/main\ncommitter Bob <bob@example.org> 1700000000 +0000\ndata 1\nx\nfrom refs/notes/headway/main^0\n")
	for i, c := range commits[400:1400] {
		fmt.Fprintf(&in, "N inline %s\ndata <<.\nnote %d\n.\n", c, 400+i)
	}
	w.fastImport(in.String())
	for i, c := range commits[1400:] {
		writeNote(t, r, c, fmt.Sprint("note ", 1400+i))
	}
	if got := len(strings.Split(w.git("notes", "--ref=headway/main", "list"), "\n")); got != 1500 {
		t.Errorf("git lists %d notes", got)
	}
	for _, i := range []int{0, 255, 256, 257, 299, 300, 301, 399, 400, 1000, 1399, 1400, 1499} {
		want := fmt.Sprint("note ", i)
		if got := w.git("notes", "--ref=headway/main", "show", commits[i]); got != want {
			t.Errorf("git shows %q, want %q", got, want)
		}
		if got, err := r.ReadNote(ctx, commits[i]); err != nil || string(got) != want+"\n" {
			t.Errorf("read %q, want %q: %v", got, want, err)
		}
		writeNote(t, r, commits[i], want+" again")
		if got := w.git("notes", "--ref=headway/main", "show", commits[i]); got != want+" again" {
			t.Errorf("git shows %q after it was written again", got)
		}
	}
	if got := len(strings.Split(w.git("notes", "--ref=headway/main", "list"), "\n")); got != 1500 {
		t.Errorf("git lists %d notes at the end", got)
	}
	w.git("fsck", "--strict")
}

// What is in the tree and is no note stays there.
func TestNotesBesideOthers(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	commits := w.history(maxFlat + 10)
	name := strings.Repeat("z", 40)
	w.fastImport("commit refs/notes/headway/main\ncommitter Bob <bob@example.org> 1700000000 +0000\ndata 1\nx\n" +
		"M 100644 inline README\ndata 1\na\nM 100755 inline " + name + "\ndata 1\nb\nM 100644 inline zz/x\ndata 1\nc\n")
	r := bareOf(t, w)
	for _, c := range commits {
		writeNote(t, r, c, "of "+c)
	}
	for _, c := range commits {
		if got, err := r.ReadNote(ctx, c); err != nil || string(got) != "of "+c+"\n" {
			t.Errorf("%s: %q %v", c, got, err)
		}
	}
	if got := w.git("ls-tree", "-r", "--format=%(objectmode) %(path)", "refs/notes/headway/main", "README", name, "zz/"); got != "100644 README\n100644 zz/x\n100755 "+name {
		t.Errorf("left are\n%s", got)
	}
	w.git("fsck", "--strict")
}

// A tree of notes holds what was put last for each commit, whatever its layout.
func TestPutNote(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	w.commit("a", "1")
	r := bareOf(t, w)
	for _, shape := range []struct{ notes, crowded int }{{1, 0}, {3, 4}, {300, 0}, {1500, 0}, {800, 3}, {700, 4}} {
		var objects additions
		want := map[string]string{}
		tree := ""
		for i := range shape.notes {
			sum := sha1.Sum([]byte{byte(i), byte(i >> 8)})
			if i%10 == 9 {
				sum = sha1.Sum([]byte{byte(i / 2), byte(i >> 9)}) // maybe a second note of one commit
			}
			if i%4 < shape.crowded { // so that several levels split
				sum[0], sum[1] = 0xab, sum[1]&1
			}
			key := fmt.Sprintf("%x", sum)
			blob := objects.add("blob", []byte{byte(i), byte(i >> 8)})
			var err error
			if tree, err = r.putNote(ctx, tree, key, blob, &objects); err != nil {
				t.Fatal(err)
			}
			want[key] = blob
		}
		if err := r.store(ctx, &objects); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		out, err := r.program.run(ctx, nil, "ls-tree", "-r", tree)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			key := strings.ReplaceAll(f[3], "/", "")
			if got[key] != "" {
				t.Errorf("%v: %s stands at two places", shape, key)
			}
			if strings.Count(f[3], "/") >= noteLevels {
				t.Errorf("%v: %s is not looked for", shape, f[3])
			}
			got[key] = f[2]
		}
		if !maps.Equal(got, want) {
			t.Errorf("%v: %d notes, want %d", shape, len(got), len(want))
		}
	}
}

// Notes of several writers at once are all kept.
func TestNotesTogether(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	commits := w.history(12)
	var writers sync.WaitGroup
	for i := range 3 {
		r := bareOf(t, w) // as if they were several processes
		writers.Go(func() {
			for _, c := range commits[4*i : 4*i+4] {
				err := ErrMoved
				for errors.Is(err, ErrMoved) {
					err = r.WriteNote(ctx, c, []byte("of "+c), us, noon, nil)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	r := bareOf(t, w)
	for _, c := range commits {
		if got, err := r.ReadNote(ctx, c); err != nil || string(got) != "of "+c+"\n" {
			t.Errorf("%s: %q %v", c, got, err)
		}
	}
}

// Nothing that is written while git gc runs is lost, and nothing waits for it.
func TestWriteBesideGC(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	commits := w.history(60)
	r := bareOf(t, w)
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			_, err := r.program.run(ctx, nil, "-c", "gc.auto=0", "gc", "--quiet", "--prune=2.weeks.ago")
			select {
			case <-stop:
				done <- err
				return
			default:
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	live := ""
	for i, c := range commits {
		writeNote(t, r, c, fmt.Sprint("note ", i))
		if err := r.Keep(ctx, commits[:i]); err != nil {
			t.Fatal(err)
		}
		var err error
		if live, err = r.WriteLive(ctx, liveOf(live, c, Edit{Path: "a/b", Content: []byte(c)}), nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.git("fsck", "--strict")
	for i, c := range commits {
		if got, err := r.ReadNote(ctx, c); err != nil || string(got) != fmt.Sprintf("note %d\n", i) {
			t.Errorf("%s: %q %v", c, got, err)
		}
	}
	if got, err := r.Live(ctx); err != nil || got != live {
		t.Errorf("live is %s: %v", got, err)
	}
}

// Whoever is overtaken between reading the ref and moving it asks again whether it
// may write at all (R4).
func TestR4_NotesAskBeforeTheRefMoves(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first, second := w.commit("a", "1"), w.commit("a", "2")
	r := bareOf(t, w)
	deposed := errors.New("deposed")
	asked := 0
	err := r.WriteNote(ctx, first, []byte("late"), us, noon, func(ctx context.Context) error {
		if asked++; asked > 1 {
			return deposed
		}
		return r.WriteNote(ctx, first, []byte("of the new leader"), us, noon, nil) // that is faster
	})
	if !errors.Is(err, deposed) || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if got, err := r.ReadNote(ctx, first); err != nil || string(got) != "of the new leader\n" {
		t.Errorf("%q %v", got, err)
	}
	asked = 1
	refuse := func(context.Context) error { return deposed }
	if err := r.WriteNote(ctx, second, []byte("x"), us, noon, refuse); !errors.Is(err, deposed) {
		t.Errorf("%v", err)
	}
	if _, err := r.ReadNote(ctx, second); !errors.Is(err, ErrNotFound) {
		t.Errorf("it was written all the same: %v", err)
	}
	if err := r.WriteNote(ctx, first, []byte("of the new leader"), us, noon, refuse); err != nil {
		t.Errorf("nothing is to be written, so nobody is asked: %v", err)
	}
}

// The notes of an earlier cluster are taken over once, and never over our own.
func TestRestoreNotes(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first, second := w.commit("a", "1"), w.commit("a", "2")
	r := bareOf(t, w)
	writeNote(t, r, first, "before")
	old, err := r.at(ctx, r.notesRef())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.edit(ctx, []edit{{ref: r.notesRef(), old: old}}); err != nil {
		t.Fatal(err)
	}
	if err := r.RestoreNotes(ctx, strings.Repeat("1", 40)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a commit that is not there: %v", err)
	}
	if err := r.RestoreNotes(ctx, old); err != nil {
		t.Fatal(err)
	}
	writeNote(t, r, second, "after")
	if err := r.RestoreNotes(ctx, old); err != nil {
		t.Fatal(err)
	}
	for commit, want := range map[string]string{first: "before\n", second: "after\n"} {
		if got, err := r.ReadNote(ctx, commit); err != nil || string(got) != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
}
