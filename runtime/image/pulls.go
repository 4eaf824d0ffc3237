package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// pull is one that is going on, with everyone who waits for it.
type pull struct {
	cancel   context.CancelCauseFunc
	progress Progress
	begun    chan struct{} // closed when it has its place
	waiters  int
	done     chan struct{}
	image    Image
	err      error
}

// pull joins the image's pull with the same credentials, or begins it. The last one
// to leave ends it.
// say hears how far it is, ever more rarely.
func (i *Images) pull(ctx context.Context, ref string, ring Keyring, say func(string)) (Image, error) {
	key := ref + " " + ring.fingerprint()
	i.mu.Lock()
	p := i.pulls[key]
	if p == nil {
		work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		p = &pull{cancel: cancel, begun: make(chan struct{}), done: make(chan struct{})}
		i.pulls[key] = p
		go i.fetch(work, key, ref, ring, p)
	}
	p.waiters++
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if p.waiters--; p.waiters == 0 {
			p.cancel(nil)
			if i.pulls[key] == p {
				delete(i.pulls, key)
			}
		}
	}()
	start, wait := time.Now(), firstWord
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-p.done:
			return p.image, p.err
		case <-ctx.Done():
			return Image{}, ctx.Err()
		case <-timer.C:
			say(p.state(time.Since(start)))
			wait = min(2*wait, lastWord)
			timer.Reset(wait)
		}
	}
}

// When a pull that takes long is told of: first after firstWord, then after twice the
// time each, at last every lastWord.
const firstWord, lastWord = 30 * time.Second, 15 * time.Minute

func (p *pull) state(since time.Duration) string {
	select {
	case <-p.begun:
		return fmt.Sprintf("%.1f MiB came in %s", float64(p.progress.Bytes())/(1<<20), since.Round(time.Second))
	default:
		return fmt.Sprintf("it waits for other pulls since %s", since.Round(time.Second))
	}
}

func (i *Images) fetch(ctx context.Context, key, ref string, ring Keyring, p *pull) {
	defer close(p.done)
	defer p.cancel(nil)
	host := Host(ref)
	if p.err = i.lanes.enter(ctx, host); p.err != nil {
		return
	}
	defer i.lanes.leave(host)
	close(p.begun)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { i.watch(host, p, over) })
	p.image, p.err = i.fetchWith(ctx, ref, ring, &p.progress)
	close(over)
	watching.Wait()
	if cause := context.Cause(ctx); p.err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		p.err = cause // why it was given up says more than that it was
	}
	i.mu.Lock()
	if i.pulls[key] == p { // who asks from now on begins anew
		delete(i.pulls, key)
	}
	i.mu.Unlock()
}

// watch ends a pull that gets nothing, or that gets too little for the place it takes.
func (i *Images) watch(host string, p *pull, over <-chan struct{}) {
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
			if err := p.progress.look(host, i.lanes.wanted(host), time.Now()); err != nil {
				p.cancel(err)
				return
			}
		}
	}
}

// fetchWith tries one credential after the other, as Kubernetes does: which of them
// opens a repository is not known before. With none it asks as anybody.
func (i *Images) fetchWith(ctx context.Context, ref string, ring Keyring, progress *Progress) (Image, error) {
	if err := i.trust.begin(ref); err != nil {
		return Image{}, err
	}
	before, had := i.cfg.Engine.Find(ctx, ref)
	var errs []error
	for at := 0; at == 0 || at < len(ring); at++ {
		var c *Credential
		if len(ring) > 0 {
			c = &ring[at]
		}
		img, err := i.cfg.Engine.Pull(ctx, ref, c, progress)
		if err == nil {
			return img, i.trust.pulled(ref, img, c)
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	after, err := i.cfg.Engine.Find(undo, ref)
	var left *Image
	if !errors.Is(err, ErrNotFound) && (err != nil || had != nil || after.ID != before.ID) {
		left = &after
	}
	errs = append(errs, i.trust.failed(ref, left))
	return Image{}, errors.Join(errs...)
}

// undoTime bounds what is looked at though whoever asked has gone.
const undoTime = 10 * time.Second
