package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxNote bounds the content of one note.
const maxNote = 1 << 20

// Note is what a note says of a commit.
type Note struct {
	Commit  string
	Content []byte
	Written time.Time
}

// ReadNote returns the note of a commit, at most 1 MiB of it, or ErrNotFound.
func (r *Repository) ReadNote(ctx context.Context, commit string) ([]byte, error) {
	if !isHash(commit) {
		return nil, fmt.Errorf("note of %.60q: not a full commit hash", commit)
	}
	notes, err := r.readNotes(ctx, []string{commit})
	if err != nil {
		return nil, err
	}
	if notes[0] == nil {
		return nil, fmt.Errorf("note of commit %s: %w", commit, ErrNotFound)
	}
	return notes[0], nil
}

// noteLevels is in how many depths of folders a note is looked for: with folders
// of 256, enough for 4 billion notes.
const noteLevels = 4

// maxNotes bounds the contents of the notes that one call reads.
const maxNotes = 64 << 20

// readNotes returns the notes of commits, in their order; nil where there is none.
func (r *Repository) readNotes(ctx context.Context, commits []string) ([][]byte, error) {
	notes := make([][]byte, len(commits))
	tip, err := r.at(ctx, r.notesRef())
	if err != nil || tip == "" {
		return notes, err
	}
	total := 0
	names := make([]string, 0, noteLevels*len(commits))
	for _, commit := range commits {
		for level := range noteLevels {
			names = append(names, tip+":"+notePath(commit, level))
		}
	}
	err = r.contents(ctx, names, func(i int, h header, body io.Reader) error {
		if h.kind != "blob" {
			return nil
		}
		note, commit := &notes[i/noteLevels], commits[i/noteLevels]
		content, err := io.ReadAll(io.LimitReader(body, maxNote))
		if total += len(content); total > maxNotes {
			err = fmt.Errorf("more than %d bytes of notes; ask for fewer commits", maxNotes)
		}
		if err != nil {
			return fmt.Errorf("note of commit %s: %w", commit, err)
		}
		if *note != nil { // at two places, which git reads one after the other
			*note = append(*note, '\n')
		}
		*note = append(*note, content...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	return notes, nil
}

// notePath is where a note may stand: ab/cd/ef… with that many slashes.
func notePath(commit string, level int) string {
	var path strings.Builder
	for range level {
		path.WriteString(commit[:2] + "/")
		commit = commit[2:]
	}
	path.WriteString(commit)
	return path.String()
}

// WriteNote makes content the note of a commit of this repository, by a commit on
// refs/notes/headway/<cluster>, which `git log --notes='headway/*'` shows. What
// has that content already is left alone. Control characters become question
// marks, and the content ends with a line. The notes of other commits stay, also
// those that somebody else writes at the same time.
//
// ready, unless it is nil, is called between reading the ref and moving it from
// there; its error ends the call, and nothing has changed. So who passes it and is
// overtaken by another writer does not move the ref any more (R4).
func (r *Repository) WriteNote(ctx context.Context, commit string, content []byte, as Identity, when time.Time, ready func(context.Context) error) error {
	if err := r.writeNote(ctx, commit, content, as, when, ready); err != nil {
		return fmt.Errorf("write the note of commit %.60q: %w", commit, err)
	}
	return nil
}

func (r *Repository) writeNote(ctx context.Context, commit string, content []byte, as Identity, when time.Time, ready func(context.Context) error) error {
	if _, err := r.Commit(ctx, commit); err != nil {
		return err
	}
	text := strings.TrimRight(printable(string(content)), " \t\n") + "\n"
	switch {
	case text == "\n":
		return errors.New("it says nothing")
	case len(text) > maxNote:
		return fmt.Errorf("%d bytes is too large, at most %d are written", len(text), maxNote)
	}
	const attempts = 5
	var err error
	for range attempts {
		if err = r.addNote(ctx, commit, text, as, when, ready); !errors.Is(err, ErrMoved) {
			return err
		}
	}
	return err
}

// addNote writes a note on top of the notes as they are now.
func (r *Repository) addNote(ctx context.Context, commit, text string, as Identity, when time.Time, ready func(context.Context) error) error {
	old, err := r.at(ctx, r.notesRef())
	if err != nil {
		return err
	}
	d := draft{author: as, authored: when, committer: as, committed: when}
	before := ""
	if old != "" {
		tip, err := r.Commit(ctx, old)
		if err != nil {
			return fmt.Errorf("the notes: %w", err)
		}
		before, d.parents = tip.Tree, []string{old}
	}
	var objects additions
	if d.tree, err = r.putNote(ctx, before, commit, objects.add("blob", []byte(text)), &objects); err != nil || d.tree == before {
		return err
	}
	d.message, err = withTrailers("Receipt of "+commit[:12], []Trailer{{Key: appliedTrailer, Value: commit}})
	if err != nil {
		return err
	}
	raw, err := d.encode()
	if err != nil {
		return err
	}
	tip := objects.add("commit", raw)
	if err := r.store(ctx, &objects); err != nil {
		return err
	}
	if ready != nil {
		if err := ready(ctx); err != nil {
			return err
		}
	}
	return r.swap(ctx, r.notesRef(), old, tip)
}

// maxFlat is how many notes stand in one folder before it is split into those of
// the next two digits. Git splits at about as many, and reads any layout.
const maxFlat = 256

// putNote returns the folder of notes, or of the notes that share some first
// digits, with one note in it: key is what is left of the commit's digits. It
// reads and writes one folder per level.
func (o *Objects) putNote(ctx context.Context, hash, key, blob string, into *additions) (string, error) {
	folder, err := o.folder(ctx, hash, into)
	if err != nil {
		return "", fmt.Errorf("the notes: %w", err)
	}
	flat, fanned := 0, false
	for _, e := range folder {
		fanned = fanned || e.mode == rawDir && len(e.name) == 2 && isHex(e.name)
		if noteEntry(e, len(key)) {
			flat++
		}
	}
	if flat >= maxFlat && !fanned && len(key) > 2 {
		folder, fanned = split(folder, len(key), into), true
	}
	now := rawEntry{mode: rawFile, name: key, hash: blob}
	if fanned {
		// A note that git left at this level would be read beside the one below.
		if i := folder.find(key); i >= 0 && folder[i].mode != rawDir {
			folder = append(folder[:i:i], folder[i+1:]...)
		}
		now = rawEntry{mode: rawDir, name: key[:2]}
		if i := folder.find(now.name); i >= 0 && folder[i].mode == rawDir {
			now.hash = folder[i].hash
		}
		if now.hash, err = o.putNote(ctx, now.hash, key[2:], blob, into); err != nil {
			return "", err
		}
	}
	if i := folder.find(now.name); i >= 0 {
		folder[i] = now
	} else {
		folder = append(folder, now)
	}
	if hashOf("tree", folder.encode()) == hash {
		return hash, nil
	}
	return into.addTree(folder), nil
}

// noteEntry says whether an entry is a note, when so many digits are left.
func noteEntry(e rawEntry, digits int) bool {
	return e.mode != rawDir && len(e.name) == digits && isHex(e.name)
}

// split moves the notes of a folder into one folder for each next two digits.
func split(folder rawTree, digits int, into *additions) rawTree {
	var rest rawTree
	below := map[string]rawTree{}
	for _, e := range folder {
		if !noteEntry(e, digits) {
			rest = append(rest, e)
			continue
		}
		to := e.name[:2]
		e.name = e.name[2:]
		below[to] = append(below[to], e)
	}
	for name, notes := range below { // encode sorts them
		rest = append(rest, rawEntry{mode: rawDir, name: name, hash: into.addTree(notes)})
	}
	return rest
}

// RestoreNotes makes tip, a commit of notes that this repository has, the notes of
// this cluster, when there are none yet: the receipts of an earlier cluster, which
// were pushed to another name.
func (r *Repository) RestoreNotes(ctx context.Context, tip string) error {
	old, err := r.at(ctx, r.notesRef())
	if err != nil || old != "" {
		return err
	}
	if _, err := r.Commit(ctx, tip); err != nil {
		return fmt.Errorf("restore the notes: %w", err)
	}
	if err := r.swap(ctx, r.notesRef(), "", tip); err != nil && !errors.Is(err, ErrMoved) {
		return fmt.Errorf("restore the notes: %w", err)
	}
	return nil
}

// Notes returns the notes that were written last, newest first, at most limit. A
// note that was written several times counts once.
func (r *Repository) Notes(ctx context.Context, limit int) ([]Note, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	tip, err := r.at(ctx, r.notesRef())
	if err != nil || tip == "" {
		return nil, err
	}
	var notes []Note
	seen := map[string]bool{}
	for tip != "" && len(notes) < limit {
		history, next, err := r.history(ctx, tip, limit)
		if err != nil {
			return nil, fmt.Errorf("list notes: %w", err)
		}
		for _, c := range history {
			of := value(c.Trailers, appliedTrailer)
			if isHash(of) && !seen[of] && len(notes) < limit {
				seen[of] = true
				notes = append(notes, Note{Commit: of, Written: c.Committed})
			}
		}
		tip = next
	}
	commits := make([]string, len(notes))
	for i, n := range notes {
		commits[i] = n.Commit
	}
	contents, err := r.readNotes(ctx, commits)
	if err != nil {
		return nil, err
	}
	there := notes[:0]
	for i, n := range notes {
		if n.Content = contents[i]; n.Content != nil {
			there = append(there, n)
		}
	}
	return there, nil
}
