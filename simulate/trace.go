package simulate

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"time"
)

// kept is how many lines of a trace are shown when a run fails.
const kept = 80

// trace is what happened: a line per step that did something. All lines are in the
// hash, the last ones are kept.
type trace struct {
	began time.Time
	lines []string
	hash  uint64
	count int
	all   func(string) // hears every line; may be nil
}

func (t *trace) add(who, format string, args ...any) {
	at := time.Since(t.began)
	line := fmt.Sprintf("%02d:%02d:%06.3f  %-16s %s", int(at.Hours()), int(at.Minutes())%60, (at % time.Minute).Seconds(), who, fmt.Sprintf(format, args...))
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %s", t.hash, line)
	t.hash = h.Sum64()
	t.count++
	if t.all != nil {
		t.all(line)
	}
	if len(t.lines) == 2*kept {
		t.lines = append(t.lines[:0], t.lines[kept:]...)
	}
	t.lines = append(t.lines, line)
}

// text is the last lines.
func (t *trace) text() string {
	last := t.lines[max(0, len(t.lines)-kept):]
	head := ""
	if t.count > len(last) {
		head = fmt.Sprintf("… %d lines before\n", t.count-len(last))
	}
	return head + strings.Join(last, "\n")
}

// journal is a log that goes into the trace. Warnings and errors only: what
// components decide shows in what they write. A panic fails the run.
type journal struct {
	w   *World
	who string
}

func (w *World) log(who string) *slog.Logger { return slog.New(journal{w, who}) }

func (j journal) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (j journal) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	j.w.trace.add(j.who, "log: %s", b.String())
	if strings.Contains(r.Message, "panicked") {
		j.w.fail("no panics", "%s: %s", j.who, b.String())
	}
	return nil
}

func (j journal) WithAttrs([]slog.Attr) slog.Handler { return j }
func (j journal) WithGroup(string) slog.Handler      { return j }
