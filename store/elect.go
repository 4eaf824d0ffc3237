package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ElectionKey is the key whose holder is the leader; its value is the leader's
// identity.
const ElectionKey = Prefix + "_election/leader"

// Leadership is the right to act as the leader, until Done is closed. Fence goes
// into every transaction (R4): the right may have ended before anyone here knows.
type Leadership struct {
	Fence Fence

	store    *Store
	lease    LeaseID
	ttl      time.Duration
	deadline time.Time // by this process's monotonic clock: not ours after it; used by who renews
	stop     context.CancelFunc
	done     chan struct{}
	once     sync.Once
	ended    chan struct{} // the keeping goroutine has returned
}

// Elect waits until identity is the leader. The leadership is renewed until ctx
// ends, it is lost, or it is resigned; it ends by itself ttl after the last
// renewal.
func (s *Store) Elect(ctx context.Context, identity string, ttl time.Duration) (*Leadership, error) {
	wait := retryFirst
	for {
		l, err := s.campaign(ctx, identity, ttl)
		if l != nil || err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLeaseGone) && !errors.Is(err, ErrCompacted) {
			return l, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("elect %s: %w", identity, ctx.Err())
		}
		if err == nil {
			wait = retryFirst
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		wait = min(2*wait, retryMost)
	}
}

// campaign tries once: it waits while there is a leader, then tries to be the
// one. nil, nil means that another was faster.
func (s *Store) campaign(ctx context.Context, identity string, ttl time.Duration) (*Leadership, error) {
	r, err := s.kv.Range(ctx, RangeRequest{Start: ElectionKey})
	if err != nil {
		return nil, fmt.Errorf("elect: %w", err)
	}
	if len(r.Entries) > 0 {
		return nil, s.vacant(ctx, r.Revision+1)
	}
	l, err := s.claim(ctx, identity, ttl)
	if l == nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	go l.keep(ctx)
	return l, nil
}

// Stand is Elect for callers that own every goroutine: it tries once to make
// identity the leader and waits for nobody. nil, nil means that there is a leader.
// Whoever is elected calls Renew in time.
func (s *Store) Stand(ctx context.Context, identity string, ttl time.Duration) (*Leadership, error) {
	r, err := s.kv.Range(ctx, RangeRequest{Start: ElectionKey})
	if err != nil {
		return nil, fmt.Errorf("elect: %w", err)
	}
	if len(r.Entries) > 0 {
		return nil, nil
	}
	l, err := s.claim(ctx, identity, ttl)
	if l == nil {
		return nil, err
	}
	l.stop = func() {}
	close(l.ended)
	return l, nil
}

// claim tries to become the leader where there is none.
func (s *Store) claim(ctx context.Context, identity string, ttl time.Duration) (*Leadership, error) {
	granted := time.Now()
	lease, err := s.kv.Grant(ctx, ttl)
	if err != nil {
		return nil, fmt.Errorf("elect: %w", err)
	}
	out, err := s.kv.Commit(ctx, []Compare{{Key: ElectionKey}}, []Write{{Key: ElectionKey, Value: []byte(identity), Lease: lease}})
	if err != nil || !out.OK {
		// Without the answer it may have happened; ending the lease undoes it.
		return nil, errors.Join(err, s.revoke(ctx, lease))
	}
	l := &Leadership{
		Fence: Fence{Key: ElectionKey, Revision: out.Revision},
		store: s, lease: lease, ttl: ttl, deadline: granted.Add(ttl - ttl/5),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	s.leaderMu.Lock()
	s.leaders[l.Fence] = l
	s.leaderMu.Unlock()
	return l, nil
}

// vacant returns when the leader's key is deleted.
func (s *Store) vacant(ctx context.Context, from int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, err := s.kv.Watch(ctx, ElectionKey, from)
	if err != nil {
		return fmt.Errorf("watch the leader: %w", err)
	}
	for b := range batches {
		if b.Err != nil {
			return fmt.Errorf("watch the leader: %w", b.Err)
		}
		for _, c := range b.Changes {
			if c.Deleted {
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("watch the leader: %w", ctx.Err())
	}
	return fmt.Errorf("watch the leader: ended: %w", ErrUnavailable)
}

// undoTime bounds work that undoes something after its request was cancelled.
const undoTime = 5 * time.Second

func (s *Store) revoke(ctx context.Context, lease LeaseID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := s.kv.Revoke(ctx, lease); err != nil && !errors.Is(err, ErrLeaseGone) {
		return fmt.Errorf("end the lease: %w", err)
	}
	return nil
}

// keep renews the lease until ctx ends or the leadership does.
func (l *Leadership) keep(ctx context.Context) {
	defer close(l.ended)
	defer l.lose()
	timer := time.NewTimer(l.ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.done:
			return
		case <-timer.C:
		}
		again, ok := l.Renew(ctx)
		if !ok {
			return
		}
		timer.Reset(again)
	}
}

// Renew renews the lease once and says when to do so again: three times per ttl.
// False: the leadership is over. It is given up a fifth of ttl before the backend
// may, by this process's monotonic clock, counted from before the last successful
// renewal was sent. Elect's leaderships renew themselves.
func (l *Leadership) Renew(ctx context.Context) (again time.Duration, ok bool) {
	sent := time.Now()
	if !sent.Before(l.deadline) {
		l.lose()
		return 0, false
	}
	renew, cancel := context.WithDeadline(ctx, l.deadline)
	left, err := l.store.kv.KeepAlive(renew, l.lease)
	cancel()
	switch {
	case err == nil:
		l.deadline = sent.Add(left - l.ttl/5)
		return l.ttl / 3, true
	case errors.Is(err, ErrLeaseGone):
		l.lose()
		return 0, false
	}
	return min(retryFirst, max(0, time.Until(l.deadline))), true
}

// Done is closed when the leadership is lost or over. What the leader runs must
// stop then.
func (l *Leadership) Done() <-chan struct{} { return l.done }

func (l *Leadership) lose() {
	l.once.Do(func() {
		l.store.leaderMu.Lock()
		delete(l.store.leaders, l.Fence)
		l.store.leaderMu.Unlock()
		close(l.done)
	})
}

// Resign ends the leadership now, so that the next leader need not wait for the
// lease to end. Stop what the leader runs first.
func (l *Leadership) Resign(ctx context.Context) error {
	l.stop()
	<-l.ended
	if err := l.store.revoke(ctx, l.lease); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}

// depose ends this process's leadership behind a fence that the backend refused.
func (s *Store) depose(f Fence) {
	s.leaderMu.Lock()
	l := s.leaders[f]
	s.leaderMu.Unlock()
	if l != nil {
		l.lose()
	}
}

// Leader returns the leader's identity, "" when there is none.
func (s *Store) Leader(ctx context.Context) (string, error) {
	r, err := s.kv.Range(ctx, RangeRequest{Start: ElectionKey})
	if err != nil {
		return "", fmt.Errorf("read the leader: %w", err)
	}
	if len(r.Entries) == 0 {
		return "", nil
	}
	return string(r.Entries[0].Value), nil
}
