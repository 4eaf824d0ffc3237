package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// conn is one server's connection to the backend, and what goes wrong on it.
type conn struct {
	w    *World
	s    *server
	cut  bool
	feed *feed // the newest watch; nil: none yet
}

var _ store.KV = (*conn)(nil)

// feed is one watch: what the backend has delivered and the server has not taken.
type feed struct {
	in     <-chan store.Batch
	out    chan store.Batch
	cancel context.CancelFunc
	last   store.Batch // that was delivered
	ended  bool
}

// late is a transaction that is still on its way although its sender has given up.
type late struct {
	sent     sent
	compares []store.Compare
	writes   []store.Write
	due      time.Time
}

func lost(op string) error { return fmt.Errorf("%s: simulated: %w", op, store.ErrUnavailable) }

func (c *conn) ask(op string) error {
	if c.cut {
		return lost(op)
	}
	if c.w.chance(failures) {
		c.w.fault(c.s.name, "%s fails", op)
		return lost(op)
	}
	return nil
}

func (c *conn) Range(ctx context.Context, r store.RangeRequest) (store.RangeResponse, error) {
	if err := c.ask("range"); err != nil {
		return store.RangeResponse{}, err
	}
	return c.w.kv.Range(ctx, r)
}

func (c *conn) Commit(_ context.Context, compares []store.Compare, writes []store.Write) (store.Committed, error) {
	w := c.w
	if c.cut {
		return store.Committed{}, lost("commit")
	}
	if w.chance(badCommits) {
		switch w.rand.IntN(3) {
		case 0:
			w.fault(w.actor.String(), "commit is lost: %s", describe(writes))
		case 1:
			w.fault(w.actor.String(), "the answer to a commit is lost")
			if _, err := w.commit(w.sent(), compares, writes); err != nil {
				w.trace.add(w.actor.String(), "refused: %v", err)
			}
		default:
			w.fault(w.actor.String(), "commit is late: %s", describe(writes))
			w.late = append(w.late, late{sent: w.sent(), compares: compares, writes: writes, due: time.Now().Add(w.between(time.Millisecond, 40*time.Second))})
		}
		return store.Committed{}, lost("commit")
	}
	return w.commit(w.sent(), compares, writes)
}

// sent is who wrote a transaction, and what they believed when they did.
type sent struct {
	who     actor
	at      time.Time    // by their clock
	fence   int64        // of the term that they believed in
	head    string       // newest commit that they knew of
	applied string       // commit that they took as applied
	quotas  []api.Object // that they knew of
	pods    []api.Object // that a budget's status was decided on
}

func (w *World) sent() sent {
	x := sent{who: w.actor, at: time.Now()}
	s := w.actor.server
	if s == nil {
		return x
	}
	x.at, x.fence = s.now(), s.fence().Revision
	if ref, ok := s.store.Get(refKey()).(*api.GitRef); ok {
		x.head = ref.Commit
	}
	if source, ok := s.store.Get(sourceKey()).(*api.Source); ok {
		x.applied = source.Status.Applied
	}
	x.quotas = s.store.List(api.ResourceQuotas(), "default")
	if x.who.part == "disruption" {
		x.pods = s.store.List(api.Pods(), "default")
	}
	return x
}

func sourceKey() store.Key { return store.Key{GroupResource: api.Sources(), Name: api.MainSource} }

// commit lets a transaction take effect, or not, and checks what it did.
func (w *World) commit(x sent, compares []store.Compare, writes []store.Write) (store.Committed, error) {
	w.observe(nil) // what leases that have ended took away
	out, err := w.kv.Commit(context.Background(), compares, writes)
	if err != nil || !out.OK {
		return out, err
	}
	w.trace.add(x.who.String(), "revision %d: %s", out.Revision, describe(writes))
	w.rules.fenced(&x)
	w.observe(&x)
	return out, nil
}

// observe takes in what has changed in the store, by whom, and has the rules checked.
func (w *World) observe(x *sent) {
	for {
		w.news = nil
		more, err := w.truth.Step(context.Background())
		if err != nil {
			w.fail("the store can be read", "%v", err)
			return
		}
		if !more {
			return
		}
		w.rules.after(x, w.news)
	}
}

// describe lists writes for a person.
func describe(writes []store.Write) string {
	var parts []string
	events := 0
	for _, write := range writes {
		name := strings.TrimPrefix(write.Key, store.Prefix)
		if strings.HasPrefix(name, "core/events/") {
			events++
			continue
		}
		verb := "write "
		if write.Delete {
			verb = "delete "
		}
		parts = append(parts, verb+name)
	}
	if events > 0 {
		parts = append(parts, fmt.Sprintf("%d events", events))
	}
	return strings.Join(parts, ", ")
}

func (c *conn) Watch(_ context.Context, prefix string, from int64) (<-chan store.Batch, error) {
	if err := c.ask("watch"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	in, err := c.w.kv.Watch(ctx, prefix, from)
	if err != nil {
		cancel()
		return nil, err
	}
	if c.feed != nil {
		c.feed.cancel() // the server has left it
	}
	f := &feed{in: in, out: make(chan store.Batch, 4096), cancel: cancel}
	c.feed = f
	return f.out, nil
}

// deliver moves one batch on its way, if there is one.
func (c *conn) deliver() {
	f := c.feed
	if f == nil || f.ended || c.cut {
		return
	}
	select {
	case b, ok := <-f.in:
		if !ok {
			c.end(f, lost("watch"))
			return
		}
		f.out <- b
		if c.w.chance(repeats) && f.last.Changes != nil {
			c.w.fault(c.s.name, "a watch repeats revision %d", f.last.Revision)
			f.out <- f.last
		}
		f.last = b
	default:
	}
}

// waiting says whether there is something for the server's cache.
func (c *conn) waiting() bool {
	f := c.feed
	return f == nil || len(f.out) > 0 || !f.ended && !c.cut && len(f.in) > 0 || f.ended
}

func (c *conn) end(f *feed, err error) {
	if f.ended {
		return
	}
	f.ended = true
	f.cancel()
	f.out <- store.Batch{Err: err}
	close(f.out)
}

// breakWatches ends the watches, as a lost connection does.
func (c *conn) breakWatches() {
	if c.feed != nil {
		c.end(c.feed, lost("watch"))
	}
}

func (c *conn) Progress(ctx context.Context) error {
	if err := c.ask("progress"); err != nil {
		return err
	}
	return c.w.kv.Progress(ctx)
}

func (c *conn) Compact(ctx context.Context, revision int64) error {
	return c.w.kv.Compact(ctx, revision)
}

func (c *conn) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := c.ask("grant"); err != nil {
		return 0, err
	}
	return c.w.kv.Grant(ctx, ttl)
}

func (c *conn) KeepAlive(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	if err := c.ask("keepalive"); err != nil {
		return 0, err
	}
	return c.w.kv.KeepAlive(ctx, id)
}

func (c *conn) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := c.ask("revoke"); err != nil {
		return err
	}
	return c.w.kv.Revoke(ctx, id)
}
