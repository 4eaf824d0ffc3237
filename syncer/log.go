package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
)

// History is a repository as far as its log goes.
type History interface {
	Finder
	// Log returns a commit and those before it along first parents, with their notes.
	Log(ctx context.Context, from string, n int) ([]git.Entry, error)
	// Notes returns the notes that were written last.
	Notes(ctx context.Context, limit int) ([]git.Note, error)
}

// maxHistory bounds how many commits are walked back in search of something.
const maxHistory = 10_000

// LogEntry is one commit with its receipt. Its JSON is what `headway log -o json`
// prints: names in it do not change.
type LogEntry struct {
	Commit   string              `json:"commit"`
	Author   string              `json:"author"`
	Authored time.Time           `json:"authored"`
	Subject  string              `json:"subject"`
	Receipt  *api.ReceiptContent `json:"receipt,omitempty"`
	// With is the later commit that was applied with this one in it: they were
	// pushed together.
	With string `json:"with,omitempty"`
	// Unread is why the note could not be read; empty when it could, or there is none.
	Unread string `json:"unread,omitempty"`
}

// Log lists n commits, newest first, from the one that is named (see Find) or, without
// a name, the newest of the source's ref.
func (s *Syncer) Log(ctx context.Context, h History, from string, n int) ([]LogEntry, error) {
	head := s.newest()
	if from != "" {
		var err error
		if head, err = s.Find(ctx, h, from); err != nil {
			return nil, err
		}
	}
	if head == "" {
		return nil, nil
	}
	commits, err := h.Log(ctx, head, n)
	if err != nil {
		return nil, err
	}
	out := make([]LogEntry, len(commits))
	with := ""
	for i, c := range commits {
		e := LogEntry{Commit: c.Hash, Author: c.Author, Authored: c.Authored.UTC(), Subject: c.Subject}
		e.Receipt, err = s.receiptOf(c.Hash, c.Note)
		switch {
		case err != nil && !errors.Is(err, ErrNoReceipt):
			e.Unread = err.Error()
		case e.Receipt != nil && !e.Receipt.Applied.IsZero():
			with = c.Hash
		case e.Receipt == nil:
			e.With = with
		}
		out[i] = e
	}
	return out, nil
}

// newest is the newest commit that is known of the ref.
func (s *Syncer) newest() string {
	src := s.source()
	if src == nil {
		return ""
	}
	if s.cfg.Fetch == nil {
		if head := s.hosted(src); head != "" {
			return head
		}
	}
	return cmp.Or(src.Status.Head, src.Status.Applied)
}

// receiptOf is the receipt of a commit: the store's, which is the newest word, or
// else the note's.
func (s *Syncer) receiptOf(commit string, note []byte) (*api.ReceiptContent, error) {
	if r, ok := s.cfg.Store.Get(receiptKey(s.cfg.Source, commit)).(*api.Receipt); ok {
		c := r.ReceiptContent.Clone()
		return &c, nil
	}
	if note == nil {
		return nil, ErrNoReceipt
	}
	c, err := ParseNote(note)
	if err != nil {
		return nil, err
	}
	if c.Commit != commit {
		return nil, fmt.Errorf("the receipt is of commit %.60q", c.Commit)
	}
	return &c, nil
}

// eachBack calls each with a commit and its first parents, newest first, until it
// returns false.
func eachBack(ctx context.Context, h History, from string, each func(git.Entry) (bool, error)) error {
	const chunk = 200
	for walked := 0; from != "" && walked < maxHistory; walked += chunk {
		entries, err := h.Log(ctx, from, chunk)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if more, err := each(e); err != nil || !more {
				return err
			}
		}
		from = ""
		if len(entries) == chunk && len(entries[chunk-1].Parents) > 0 {
			from = entries[chunk-1].Parents[0]
		}
	}
	return nil
}

// DoneBefore is for Config.Receipts: the Jobs that are done according to the note
// of the nearest commit, from this one back, that was applied. A note that cannot
// be read is an error: what it says could be that a Job must not run again (R3).
func DoneBefore(ctx context.Context, h History, source, commit string) ([]Done, error) {
	var done []Done
	err := eachBack(ctx, h, commit, func(e git.Entry) (bool, error) {
		if e.Note == nil {
			return true, nil
		}
		r, err := ParseNote(e.Note)
		switch {
		case errors.Is(err, ErrNoReceipt):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("note of commit %s: %w; mend it, or remove it with git notes remove", e.Hash, err)
		case r.Source != source || r.Applied.IsZero():
			return true, nil
		}
		done = r.Done
		return false, nil
	})
	return done, err
}

// Then is what was declared and what ran at some time. Its JSON is what `headway
// at -o json` prints: names in it do not change.
type Then struct {
	Commit  string              `json:"commit"`
	Author  string              `json:"author"`
	Subject string              `json:"subject"`
	Time    *time.Time          `json:"time,omitempty"` // that was asked for
	Receipt *api.ReceiptContent `json:"receipt,omitempty"`
	Objects []ThenObject        `json:"objects"`
}

// ThenObject is one declared object, and what its pods ran.
type ThenObject struct {
	Object  string    `json:"object"`
	Path    string    `json:"path"`
	Line    int       `json:"line"`
	State   string    `json:"state,omitempty"`   // of its last rollout; empty when no receipt tells
	Images  []api.Ran `json:"images,omitempty"`  // likewise
	Rollout string    `json:"rollout,omitempty"` // the commit whose receipt tells State and Images
}

// AtTime is what was declared and ran at a time: the commit that was applied last
// before it.
func (s *Syncer) AtTime(ctx context.Context, h History, at time.Time) (*Then, error) {
	notes, err := h.Notes(ctx, maxReceipts*5)
	if err != nil {
		return nil, err
	}
	var best, first *api.ReceiptContent
	consider := func(r *api.ReceiptContent, err error) {
		if err != nil || r.Source != s.cfg.Source || r.Applied.IsZero() {
			return // it tells of no time
		}
		if first == nil || r.Applied.Before(first.Applied) {
			first = r
		}
		if !r.Applied.After(at) && (best == nil || r.Applied.After(best.Applied)) {
			best = r
		}
	}
	for _, r := range s.receipts() {
		consider(&r.ReceiptContent, nil)
	}
	for _, n := range notes {
		consider(s.receiptOf(n.Commit, n.Content))
	}
	if best == nil {
		why := "no commit has been applied yet"
		if first != nil {
			why = "the first commit that there is a receipt of was applied at " + first.Applied.Format(time.RFC3339)
		}
		return nil, unknown("nothing is known of what ran at %s: %s", at.UTC().Format(time.RFC3339), why)
	}
	then, err := s.at(ctx, h, best.Commit)
	if err == nil {
		at = at.UTC()
		then.Time = &at
	}
	return then, err
}

// AtCommit is what a commit declares, and what ran when it was applied. Find says how
// it is named.
func (s *Syncer) AtCommit(ctx context.Context, h History, name string) (*Then, error) {
	commit, err := s.Find(ctx, h, name)
	if err != nil {
		return nil, err
	}
	return s.at(ctx, h, commit)
}

func (s *Syncer) at(ctx context.Context, h History, commit string) (*Then, error) {
	entries, err := h.Log(ctx, commit, 1)
	if err != nil {
		return nil, err
	}
	then := &Then{Commit: commit, Author: entries[0].Author, Subject: entries[0].Subject, Objects: []ThenObject{}}
	path := s.cfg.Spec.Path
	if r, err := s.receiptOf(commit, entries[0].Note); err == nil {
		then.Receipt, path = r, r.Path
	}
	rendered, err := s.cfg.Commits.Render(ctx, commit, path)
	if err != nil {
		return nil, err
	}
	ran := map[string]ThenObject{}
	if then.Receipt != nil && !then.Receipt.Applied.IsZero() {
		if ran, err = s.ran(ctx, h, commit, rendered.Manifests); err != nil {
			return nil, err
		}
	}
	for _, m := range rendered.Manifests {
		o := ran[titleOf(keyOf(m))]
		o.Object, o.Path, o.Line = titleOf(keyOf(m)), m.Path, m.Line
		then.Objects = append(then.Objects, o)
	}
	slices.SortFunc(then.Objects, func(a, b ThenObject) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), strings.Compare(a.Object, b.Object))
	})
	return then, nil
}

// ran is what the newest receipts, from a commit back, say of the rollout of the
// manifests that run pods.
func (s *Syncer) ran(ctx context.Context, h History, commit string, manifests []*api.Manifest) (map[string]ThenObject, error) {
	open := map[string]bool{}
	for _, m := range manifests {
		switch m.Kind.Kind {
		case "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Pod":
			open[titleOf(keyOf(m))] = true
		}
	}
	out := map[string]ThenObject{}
	err := eachBack(ctx, h, commit, func(e git.Entry) (bool, error) {
		r, err := s.receiptOf(e.Hash, e.Note)
		if err != nil || r.Applied.IsZero() {
			return true, nil // it tells nothing of what ran
		}
		for _, o := range r.Rollout {
			if open[o.Object] {
				delete(open, o.Object)
				out[o.Object] = ThenObject{State: o.State, Images: o.Images, Rollout: e.Hash}
			}
		}
		return len(open) > 0, nil
	})
	return out, err
}
