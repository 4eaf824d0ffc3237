package memory

import (
	"context"
	"fmt"
	"strings"

	"headway.dev/headway/store"
)

// buffered is how many batches a watch's channel holds before delivery needs a
// goroutine of its own.
const buffered = 4096

type watch struct {
	prefix  string
	next    int64 // the next revision to look at
	out     chan store.Batch
	done    <-chan struct{} // the watcher's context
	broken  chan struct{}   // closed by end
	err     error           // why it was broken
	pumping bool            // a goroutine delivers; commits leave the channel alone
	ended   bool
}

// Watch implements store.KV.
func (k *KV) Watch(ctx context.Context, prefix string, from int64) (<-chan store.Batch, error) {
	if err := k.enter(ctx, "watch"); err != nil {
		return nil, err
	}
	defer k.mu.Unlock()
	w := &watch{prefix: prefix, next: from, out: make(chan store.Batch, buffered), done: ctx.Done(), broken: make(chan struct{})}
	k.watches[w] = struct{}{}
	if from < k.compacted {
		k.end(w, fmt.Errorf("watch from revision %d, history starts at %d: %w", from, k.compacted, store.ErrCompacted))
		return w.out, nil
	}
	k.deliver(w)
	context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.end(w, nil)
	})
	return w.out, nil
}

// Progress implements store.KV.
func (k *KV) Progress(ctx context.Context) error {
	if err := k.enter(ctx, "progress"); err != nil {
		return err
	}
	defer k.mu.Unlock()
	for w := range k.watches {
		// A full or pumped watch has batches to come, which say more.
		if !w.pumping && len(w.out) < cap(w.out)-1 {
			w.out <- store.Batch{Revision: k.revision}
		}
	}
	return nil
}

// Break ends every watch with err, as a lost connection does.
func (k *KV) Break(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := range k.watches {
		k.end(w, err)
	}
}

// feed delivers to every watch. The order among watches does not matter: each
// has its own channel.
func (k *KV) feed() {
	for w := range k.watches {
		k.deliver(w)
	}
}

// deliver puts into w's channel what fits. When the channel is full a goroutine goes on, so a commit never waits for a
// watcher.
func (k *KV) deliver(w *watch) {
	for !w.ended && !w.pumping {
		b, ok := k.pending(w)
		if !ok {
			return
		}
		if len(w.out) >= cap(w.out)-1 {
			w.pumping = true
			go k.pump(w)
			return
		}
		w.next = b.Revision + 1
		w.out <- b
	}
}

// pending returns the next batch for w, if the log has one.
func (k *KV) pending(w *watch) (store.Batch, bool) {
	for ; w.next <= k.revision; w.next++ {
		if w.next <= k.logFrom {
			continue // nothing is known to have happened there
		}
		b := k.log[w.next-k.logFrom-1]
		var changes []store.Change
		for _, c := range b.Changes {
			if strings.HasPrefix(c.Entry.Key, w.prefix) {
				changes = append(changes, c)
			}
		}
		if changes != nil {
			return store.Batch{Revision: b.Revision, Changes: changes}, true
		}
	}
	return store.Batch{}, false
}

// pump delivers to a watcher that was too slow for its buffer until it has
// caught up or gone.
func (k *KV) pump(w *watch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !w.ended {
		if w.next < k.compacted {
			k.end(w, fmt.Errorf("watch at revision %d, history starts at %d: %w", w.next, k.compacted, store.ErrCompacted))
			break
		}
		b, ok := k.pending(w)
		if !ok {
			w.pumping = false
			return
		}
		k.mu.Unlock()
		select {
		case w.out <- b:
		case <-w.done:
		case <-w.broken:
		}
		k.mu.Lock()
		w.next = b.Revision + 1
	}
	k.mu.Unlock()
	w.finish()
	k.mu.Lock()
}

// finish closes the channel, after the error if there is one.
func (w *watch) finish() {
	if w.err != nil {
		select {
		case w.out <- store.Batch{Err: w.err}:
		case <-w.done:
		}
	}
	close(w.out)
}

// end ends w with err, nil when its context did. Its channel is closed at once,
// or by its pump, or when the reader has made room for the error.
func (k *KV) end(w *watch, err error) {
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	delete(k.watches, w)
	close(w.broken)
	switch {
	case w.pumping:
	case err != nil && len(w.out) == cap(w.out):
		go w.finish()
	default:
		w.finish()
	}
}
