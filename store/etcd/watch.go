package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"headway.dev/headway/store"
)

// watchBuffer is how many batches wait for a reader before etcd's client does
// the buffering.
const watchBuffer = 64

func (k *kv) Watch(ctx context.Context, prefix string, from int64) (<-chan store.Batch, error) {
	w, err := k.streams.open()
	if err != nil {
		return nil, err
	}
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithProgressNotify()}
	responses := w.Watch(k.streamContext(ctx), prefix, opts...)
	out := make(chan store.Batch, watchBuffer)
	go func() {
		defer k.streams.end(w)
		pass(ctx, responses, out)
	}()
	return out, nil
}

// streamContext makes an outside watch end, and be tried elsewhere, when its
// member has no leader. Watches and Progress must have the same: the client picks
// the stream by it. Within a process it has no effect, so a member that is cut
// off keeps showing what it last knew.
func (k *kv) streamContext(ctx context.Context) context.Context {
	if k.outside {
		return clientv3.WithRequireLeader(ctx)
	}
	return ctx
}

func (k *kv) Progress(ctx context.Context) error {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	for _, w := range k.streams.list() {
		if err := w.RequestProgress(k.streamContext(ctx)); err != nil && k.streams.has(w) {
			return fmt.Errorf("request progress: %w", k.classify(err))
		}
	}
	return nil
}

// pass turns responses into batches until the watch ends.
func pass(ctx context.Context, responses clientv3.WatchChan, out chan<- store.Batch) {
	defer close(out)
	send := func(b store.Batch) bool {
		select {
		case out <- b:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for r := range responses {
		if err := r.Err(); err != nil {
			if ctx.Err() == nil {
				send(store.Batch{Err: fmt.Errorf("watch: %w", classify(err))})
			}
			return
		}
		if r.IsProgressNotify() && !send(store.Batch{Revision: r.Header.Revision}) {
			return
		}
		for _, b := range batches(r.Events) {
			if !send(b) {
				return
			}
		}
	}
}

// batches groups events by revision. etcd sends each revision whole within one
// response, in order.
func batches(events []*clientv3.Event) []store.Batch {
	var out []store.Batch
	for _, e := range events {
		revision := e.Kv.ModRevision
		if len(out) == 0 || out[len(out)-1].Revision != revision {
			out = append(out, store.Batch{Revision: revision})
		}
		b := &out[len(out)-1]
		b.Changes = append(b.Changes, store.Change{Entry: entry(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete})
	}
	for _, b := range out {
		slices.SortFunc(b.Changes, func(x, y store.Change) int { return strings.Compare(x.Entry.Key, y.Entry.Key) })
	}
	return out
}
