package syncer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"headway.dev/headway/api"
	"sigs.k8s.io/yaml"
)

// noteVersion is the form of a note's text. A later one that older readers would
// misread gets another number.
const noteVersion = 1

// noteMark begins the paragraph that is the receipt.
const noteMark = "headway-receipt:"

// maxNote bounds the text of a note that is read.
const maxNote = 1 << 20

// ErrNoReceipt says that a note has no receipt in it.
var ErrNoReceipt = errors.New("no receipt")

// NoteText is a receipt as the note says it: one paragraph of YAML, whose fields
// are those of api.ReceiptContent, in the order in which a person wants them.
func NoteText(r api.ReceiptContent) []byte {
	w := &noteWriter{}
	w.field("headway-receipt", strconv.Itoa(noteVersion))
	w.text("result", string(r.Result))
	w.text("reason", r.Reason)
	w.field("commit", quoted(r.Commit)) // always, as some would be numbers without
	w.text("source", r.Source)
	w.text("path", r.Path)
	w.text("server", r.Server)
	w.time("started", r.Started)
	w.time("applied", r.Applied)
	w.time("ended", r.Ended)
	w.number("seconds", r.Seconds)
	w.field("objects", strconv.Itoa(r.Objects))
	w.field("created", strconv.Itoa(r.Created))
	w.field("updated", strconv.Itoa(r.Updated))
	w.field("deleted", strconv.Itoa(r.Deleted))
	if a := r.Allowed; a != nil {
		w.b.WriteString("allowed: ")
		w.allowed(*a)
	}
	section(w, "changes", r.Changes, func(c api.Changed) { w.flow("verb", c.Verb, "object", c.Object) })
	section(w, "rollout", r.Rollout, w.rollout)
	w.count("moreRollout", r.MoreRuns)
	section(w, "problems", r.Problems, func(p string) { w.line(scalar(p)) })
	section(w, "pauses", r.Pauses, w.paused)
	section(w, "done", r.Done, w.done)
	w.count("moreDone", r.MoreDone)
	return w.b.Bytes()
}

// noteHash names a text.
func noteHash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

type noteWriter struct{ b bytes.Buffer }

func (w *noteWriter) line(s string) { w.b.WriteString(s + "\n") }

func (w *noteWriter) field(name, value string) { w.line(name + ": " + value) }

func (w *noteWriter) text(name, value string) {
	if value != "" {
		w.field(name, scalar(value))
	}
}

func (w *noteWriter) time(name string, t time.Time) {
	if !t.IsZero() {
		w.field(name, t.Format(time.RFC3339Nano))
	}
}

func (w *noteWriter) number(name string, f float64) {
	if f != 0 {
		w.field(name, decimal(f))
	}
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (w *noteWriter) count(name string, n int) {
	if n != 0 {
		w.field(name, strconv.Itoa(n))
	}
}

// flow writes an item of a list on one line: {name: value, …}.
func (w *noteWriter) flow(pairs ...string) {
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, pairs[i]+": "+scalar(pairs[i+1]))
	}
	w.line("{" + strings.Join(parts, ", ") + "}")
}

func section[T any](w *noteWriter, name string, list []T, item func(T)) {
	if len(list) == 0 {
		return
	}
	w.line(name + ":")
	for _, v := range list {
		w.b.WriteString("- ")
		item(v)
	}
}

func (w *noteWriter) allowed(a api.Allowed) {
	var what []string
	if a.Rewind {
		what = append(what, "rewind: true")
	}
	if a.Unsigned {
		what = append(what, "unsigned: true")
	}
	what = append(what, "by: "+scalar(a.By), "why: "+scalar(a.Why), fmt.Sprintf("at: %q", a.At.UTC().Format(time.RFC3339Nano)))
	w.line("{" + strings.Join(what, ", ") + "}")
}

func (w *noteWriter) paused(p api.Paused) {
	at := func(t time.Time) string { return strconv.Quote(t.UTC().Format(time.RFC3339Nano)) }
	text := "since: " + at(p.Since) + ", ended: " + at(p.Ended) + ", by: " + scalar(p.By) + ", why: " + scalar(p.Why)
	if p.EndedBy != "" {
		text += ", endedBy: " + scalar(p.EndedBy)
	}
	w.line("{" + text + "}")
}

func (w *noteWriter) rollout(r api.Rollout) {
	w.field("object", scalar(r.Object))
	w.line("  state: " + scalar(r.State))
	if r.Seconds != 0 {
		w.line("  seconds: " + decimal(r.Seconds))
	}
	if r.Message != "" {
		w.line("  message: " + scalar(r.Message))
	}
	if len(r.Images) == 0 {
		return
	}
	w.line("  images:")
	for _, i := range r.Images {
		w.b.WriteString("  - ")
		w.flow("container", i.Container, "image", i.Image, "digest", i.Digest)
	}
}

func (w *noteWriter) done(d api.DoneJob) {
	w.line(fmt.Sprintf("{kind: %s, namespace: %s, name: %s, hash: %s, outcome: %s, finishedAt: %q}", scalar(d.Kind), scalar(d.Namespace), scalar(d.Name),
		quoted(d.Hash), scalar(d.Outcome), d.FinishedAt.UTC().Format(time.RFC3339Nano)))
}

// plain is text that YAML reads as that very text without quotes, also within
// braces. What could be read as a number, a time or a word of YAML is quoted.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*$`)

// scalar is text as YAML has it: plain, or else as a JSON string, which YAML reads
// too.
func scalar(s string) string {
	if plain.MatchString(s) {
		switch strings.ToLower(s) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		default:
			return s
		}
	}
	return quoted(s)
}

func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(strings.ToValidUTF8(s, "\uFFFD")); err != nil {
		return strconv.QuoteToASCII(s)
	}
	// Characters that a line may not have, or that YAML takes for its end.
	return strings.NewReplacer("\u007f", `\u007f`, "\u0085", `\u0085`).Replace(strings.TrimSuffix(b.String(), "\n"))
}

// ParseNote reads the receipt out of a note. What people have added to the note as
// paragraphs of their own is left aside. ErrNoReceipt says that there is none.
func ParseNote(text []byte) (api.ReceiptContent, error) {
	if len(text) > maxNote {
		return api.ReceiptContent{}, fmt.Errorf("a note of %d bytes, at most %d are read", len(text), maxNote)
	}
	found := false
	var paragraph strings.Builder
	for line := range strings.Lines(string(text)) {
		switch blank := strings.TrimSpace(line) == ""; {
		case !found && strings.HasPrefix(line, noteMark):
			found = true
		case !found:
			continue
		case blank:
			return parseReceipt(paragraph.String())
		}
		paragraph.WriteString(line)
	}
	if !found {
		return api.ReceiptContent{}, ErrNoReceipt
	}
	return parseReceipt(paragraph.String())
}

func parseReceipt(text string) (api.ReceiptContent, error) {
	first, rest, _ := strings.Cut(text, "\n")
	number := strings.TrimSpace(strings.TrimPrefix(first, noteMark))
	version, err := strconv.Atoi(number)
	switch {
	case err != nil || version < 1:
		return api.ReceiptContent{}, fmt.Errorf("line %.60q of the receipt names no version", first)
	case version > noteVersion:
		return api.ReceiptContent{}, fmt.Errorf("the receipt is of version %d, written by a newer Headway; this one reads version %d", version, noteVersion)
	}
	var r api.ReceiptContent
	if err := yaml.UnmarshalStrict([]byte(rest), &r); err != nil {
		return api.ReceiptContent{}, fmt.Errorf("read the receipt: %.300s", err.Error())
	}
	switch r.Result {
	case api.ResultApplying, api.ResultRollingOut, api.ResultHealthy, api.ResultFailed, api.ResultRefused, api.ResultSuperseded:
	default:
		return api.ReceiptContent{}, fmt.Errorf("read the receipt: no such result as %.40q", string(r.Result))
	}
	return r, nil
}
