package syncer

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a receipt. A list ends at the count or at the bytes, whichever comes
// first; in sum they fit into one note.
const (
	maxListed   = 500 // objects of one list
	maxChanges  = 100 << 10
	maxRollout  = 200 << 10
	maxProblems = 100 << 10
	maxDone     = 500 << 10
	maxMessage  = 300  // bytes of a message
	maxProblem  = 1000 // bytes of a problem, and of a reason
	maxImages   = 20   // of one object
)

// draftReceipt is a receipt that is about to be written.
type draftReceipt struct {
	*api.Receipt
	verb    store.Verb
	changed bool // differs from what is in the store
}

func (d *draftReceipt) op() store.Op { return store.Op{Verb: d.verb, Object: d.Receipt} }

// written goes on from what the last write has stored.
func (d *draftReceipt) written() {
	d.Receipt, d.verb, d.changed = d.DeepCopyObject().(*api.Receipt), store.Update, false
}

func receiptKey(source, commit string) store.Key {
	return store.Key{GroupResource: api.Receipts(), Name: source + "." + commit}
}

// receipt is that of an attempt at a commit: of the one under way, or else of a new
// one.
func (s *Syncer) receipt(src *api.Source, commit string) *draftReceipt {
	key := receiptKey(s.cfg.Source, commit)
	d := &draftReceipt{verb: store.Update, changed: true}
	if old, ok := s.cfg.Store.Get(key).(*api.Receipt); ok {
		d.Receipt = old.DeepCopyObject().(*api.Receipt)
		if d.Result == api.ResultApplying {
			d.changed = false
			return d
		}
	} else {
		d.Receipt, d.verb = &api.Receipt{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, store.Create
		store.Stamp(d.Receipt, s.cfg.Now())
	}
	d.Attempt = s.cfg.Store.Revision()
	d.ReceiptContent = api.ReceiptContent{
		Result: api.ResultApplying, Commit: commit, Source: s.cfg.Source, Path: src.Spec.Path,
		Server: s.cfg.Server, Started: instant(s.cfg.Now()),
	}
	return d
}

// instant is a time as receipts have it.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// applies notes what a plan changes. When an attempt goes on, most of it is noted
// already: the plan of its beginning was the whole one.
func (d *draftReceipt) applies(v *Verdict, server string) {
	if d.Server != server || d.Objects != v.Objects {
		d.Server, d.Objects, d.changed = server, v.Objects, true
	}
	named := make(map[string]bool, len(d.Changes))
	for _, c := range d.Changes {
		named[c.Object] = true
	}
	all := shifts(v.steps)
	if total := d.Created + d.Updated + d.Deleted; total > 0 && total > len(d.Changes) {
		return // what is not named was counted then
	}
	size := 0
	for _, sh := range all {
		c := api.Changed{Verb: string(sh.verb), Object: titleOf(sh.step.Key)}
		if named[c.Object] {
			continue
		}
		d.changed = true
		switch sh.verb {
		case Create:
			d.Created++
		case Delete:
			d.Deleted++
		default:
			d.Updated++
		}
		if size += len(c.Object) + 40; len(d.Changes) < maxListed && size <= maxChanges {
			d.Changes = append(d.Changes, c)
		}
	}
}

// allows notes what an operator had to allow for the commit.
func (d *draftReceipt) allows(a api.Allowance) {
	if a.Commit == "" {
		d.changed = d.changed || d.Allowed != nil
		d.Allowed = nil
		return
	}
	by := api.Allowed{Rewind: a.Rewind, Unsigned: a.Unsigned, By: a.By, Why: a.Why, At: instant(a.At.Time)}
	if d.Allowed == nil || *d.Allowed != by {
		d.Allowed, d.changed = &by, true
	}
}

// paused notes the pauses that have ended since the commit before was applied.
func (d *draftReceipt) paused(src *api.Source) {
	var list []api.Paused
	for _, p := range src.Status.Pauses {
		if p.Commit == src.Status.Applied && !p.Ended.Time.Before(src.Status.AppliedTime.Time) {
			list = append(list, api.Paused{Since: instant(p.Since.Time), Ended: instant(p.Ended.Time), By: p.By, Why: p.Why, EndedBy: p.EndedBy})
		}
	}
	if !slices.Equal(d.Pauses, list) {
		d.Pauses, d.changed = list, true
	}
}

// applied is the receipt with the transaction that moves the applied commit.
func (d *draftReceipt) applied(now time.Time) {
	d.Result, d.Applied, d.changed = api.ResultRollingOut, instant(now), true
}

// refusedReceipt is the receipt of a commit that is refused; nil when it says so
// already. What the cluster did for it earlier stays.
func (s *Syncer) refusedReceipt(src *api.Source, v *Verdict) *draftReceipt {
	reason, problems := clip(v.Summary(), maxProblem), clipped(v.reasons(), maxProblem, maxProblems)
	old, _ := s.cfg.Store.Get(receiptKey(s.cfg.Source, v.Commit)).(*api.Receipt)
	if old != nil && old.Result == api.ResultRefused && old.Reason == reason && slices.Equal(old.Problems, problems) {
		return nil
	}
	d := s.receipt(src, v.Commit)
	if old != nil && !old.Applied.IsZero() {
		d.ReceiptContent = old.ReceiptContent.Clone()
	}
	if old != nil {
		d.Attempt = s.cfg.Store.Revision()
	}
	d.Result, d.Reason, d.Problems, d.Objects = api.ResultRefused, reason, problems, v.Objects
	if d.Applied.IsZero() {
		d.Ended = instant(s.cfg.Now())
	}
	return d
}

// keyNamed is the key behind a title; false when no kind that can be declared is
// called so.
func keyNamed(text string) (store.Key, bool) {
	name, rest, _ := strings.Cut(text, " ")
	for _, k := range api.Kinds() {
		if k.Kind != name || !k.Declarable {
			continue
		}
		key := store.Key{GroupResource: k.GroupResource(), Name: rest}
		if k.Namespaced {
			key.Namespace, key.Name, _ = strings.Cut(rest, "/")
		}
		return key, key.Name != ""
	}
	return store.Key{}, false
}

// clip cuts text to most bytes, and says so.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// clipped bounds lines, each and in sum.
func clipped(lines []string, each, sum int) []string {
	var out []string
	for i, line := range lines {
		line = clip(line, each)
		if sum -= 2*len(line) + 8; sum < 0 { // quoted, a character may take more
			return append(out, "… and "+thousands(len(lines)-i)+" more")
		}
		out = append(out, line)
	}
	return out
}
