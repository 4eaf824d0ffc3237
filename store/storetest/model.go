package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"pgregory.net/rapid"
)

// Model runs random programs on a backend and on the one in memory, and wants
// the same answers, to the revision, and the same events. open returns a backend
// that the programs share one after the other.
func Model(t *testing.T, open func(testing.TB) store.KV) {
	kv := open(t)
	program := 0
	rapid.Check(t, func(t *rapid.T) {
		program++
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		m := &model{
			ctx:    ctx,
			prefix: fmt.Sprintf("%smodel-%d/", store.Prefix, program),
			sides:  []*side{newSide(t, ctx, kv, program), newSide(t, ctx, memory.New(), program)},
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit":  m.commit,
			"range":   m.scan,
			"compact": m.compact,
			"grant":   m.grant,
			"revoke":  m.revoke,
		})
	})
}

type model struct {
	ctx       context.Context
	prefix    string
	sides     []*side
	last      int64 // revision after the start
	compacted int64
	leases    int
}

// side is one of the two backends. Its revisions are counted from its start, and
// its leases by when they were granted.
type side struct {
	kv      store.KV
	start   int64
	batches <-chan store.Batch
	leases  []store.LeaseID
}

func newSide(t *rapid.T, ctx context.Context, kv store.KV, program int) *side {
	r, err := kv.Range(ctx, store.RangeRequest{Start: store.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := kv.Watch(ctx, fmt.Sprintf("%smodel-%d/", store.Prefix, program), r.Revision+1)
	if err != nil {
		t.Fatal(err)
	}
	return &side{kv: kv, start: r.Revision, batches: batches}
}

func (s *side) lease(id store.LeaseID) int {
	for n, l := range s.leases {
		if l == id {
			return n + 1
		}
	}
	return int(id)
}

func (s *side) entries(in []store.Entry) string {
	var out string
	for _, e := range in {
		out += fmt.Sprintf(" %s=%q created %d modified %d lease %d;", e.Key, e.Value, e.CreateRevision-s.start, e.ModRevision-s.start, s.lease(e.Lease))
	}
	return out
}

// class names an error by the classes that callers branch on.
func class(err error) string {
	if err == nil {
		return "ok"
	}
	for _, c := range []error{store.ErrCompacted, store.ErrFuture, store.ErrLeaseGone, store.ErrTooLarge, store.ErrFull, store.ErrUnavailable} {
		if errors.Is(err, c) {
			return c.Error()
		}
	}
	return "other: " + err.Error()
}

// both asks both sides and wants one answer.
func (m *model) both(t *rapid.T, what string, ask func(*side) string) string {
	t.Helper()
	got, want := ask(m.sides[0]), ask(m.sides[1])
	if got != want {
		t.Fatalf("%s:\nbackend: %s\nmemory:  %s", what, got, want)
	}
	return got
}

// events compares what the watches say of a revision that was just written.
func (m *model) events(t *rapid.T) {
	t.Helper()
	m.both(t, "watch", func(s *side) string {
		for {
			select {
			case b, ok := <-s.batches:
				if !ok || b.Err != nil {
					return fmt.Sprintf("ended: %v", b.Err)
				}
				if len(b.Changes) == 0 {
					continue
				}
				out := fmt.Sprintf("at %d:", b.Revision-s.start)
				for _, c := range b.Changes {
					if c.Deleted {
						out += fmt.Sprintf(" %s deleted at %d;", c.Entry.Key, c.Entry.ModRevision-s.start)
					} else {
						out += s.entries([]store.Entry{c.Entry})
					}
				}
				return out
			case <-m.ctx.Done():
				return "no event"
			}
		}
	})
}

func (m *model) key(t *rapid.T) string {
	return m.prefix + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
}

func (m *model) revision(t *rapid.T) int64 {
	return rapid.Int64Range(0, m.last+1).Draw(t, "revision")
}

func (m *model) commit(t *rapid.T) {
	type write struct {
		key, value string
		lease      int
		del        bool
	}
	var writes []write
	seen := map[string]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "writes") {
		w := write{key: m.key(t), value: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"), del: rapid.Bool().Draw(t, "delete")}
		if !w.del {
			w.lease = rapid.IntRange(0, m.leases).Draw(t, "lease")
		}
		if !seen[w.key] {
			writes = append(writes, w)
		}
		seen[w.key] = true
	}
	type condition struct {
		key      string
		create   bool
		revision int64
	}
	var conditions []condition
	for range rapid.IntRange(0, 2).Draw(t, "compares") {
		conditions = append(conditions, condition{m.key(t), rapid.Bool().Draw(t, "create"), m.revision(t)})
	}
	var revision int64
	m.both(t, fmt.Sprintf("commit %+v if %+v", writes, conditions), func(s *side) string {
		var then []store.Write
		for _, w := range writes {
			x := store.Write{Key: w.key, Delete: w.del}
			if !w.del {
				x.Value = []byte(w.value)
			}
			if w.lease > 0 {
				x.Lease = s.leases[w.lease-1]
			}
			then = append(then, x)
		}
		var compares []store.Compare
		for _, c := range conditions {
			x := store.Compare{Key: c.key, Create: c.create}
			if c.revision > 0 {
				x.Revision = s.start + c.revision
			}
			compares = append(compares, x)
		}
		out, err := s.kv.Commit(m.ctx, compares, then)
		if err != nil {
			return class(err)
		}
		answer := fmt.Sprintf("%t at %d, failed", out.OK, out.Revision-s.start)
		revision = out.Revision - s.start
		for _, f := range out.Failed {
			have := f.Revision
			if have != 0 {
				have -= s.start
			}
			answer += fmt.Sprintf(" %d has %d;", f.Index, have)
		}
		return answer
	})
	m.wrote(t, revision)
}

// wrote compares the events if there is a new revision.
func (m *model) wrote(t *rapid.T, revision int64) {
	if revision > m.last {
		m.last = revision
		m.events(t)
	}
}

func (m *model) scan(t *rapid.T) {
	at, limit := m.revision(t), rapid.IntRange(0, 3).Draw(t, "limit")
	start, one := m.key(t), rapid.Bool().Draw(t, "one key")
	m.both(t, fmt.Sprintf("range from %s at %d", start, at), func(s *side) string {
		r := store.RangeRequest{Start: start, Limit: limit}
		if !one {
			r.End = m.prefix + "e"
		}
		if at > 0 {
			r.Revision = s.start + at
		}
		got, err := s.kv.Range(m.ctx, r)
		if err != nil {
			return class(err)
		}
		return fmt.Sprintf("%d at %d:%s", got.Count, got.Revision-s.start, s.entries(got.Entries))
	})
}

func (m *model) compact(t *rapid.T) {
	at := m.revision(t)
	if at == 0 || rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	m.both(t, fmt.Sprintf("compact to %d", at), func(s *side) string { return class(s.kv.Compact(m.ctx, s.start+at)) })
}

func (m *model) grant(t *rapid.T) {
	if m.leases == 3 {
		t.Skip("enough leases")
	}
	m.leases++
	m.both(t, "grant", func(s *side) string {
		id, err := s.kv.Grant(m.ctx, time.Hour)
		s.leases = append(s.leases, id)
		return class(err)
	})
}

func (m *model) revoke(t *rapid.T) {
	if m.leases == 0 {
		t.Skip("no lease")
	}
	n := rapid.IntRange(1, m.leases).Draw(t, "lease")
	m.both(t, fmt.Sprintf("revoke lease %d", n), func(s *side) string { return class(s.kv.Revoke(m.ctx, s.leases[n-1])) })
	var revision int64
	m.both(t, "revision after", func(s *side) string {
		r, err := s.kv.Range(m.ctx, store.RangeRequest{Start: m.prefix})
		revision = r.Revision - s.start
		return fmt.Sprint(revision, class(err))
	})
	m.wrote(t, revision)
}
