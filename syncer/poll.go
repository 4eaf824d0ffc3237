package syncer

import (
	"context"
	"math/rand/v2"
	"time"
)

// poll says when a forge is asked, and remembers its answer until then.
type poll struct {
	period time.Duration
	jitter *rand.Rand
	next   time.Time
	failed int
	commit string
	err    error
}

const maxPollBackoff = 5 * time.Minute

func newPoll(period time.Duration, seed uint64) poll {
	return poll{period: period, jitter: rand.New(rand.NewPCG(seed, 0x5bd1e995))}
}

// every changes how often the forge is asked. A shorter period counts at once.
func (p *poll) every(period time.Duration) {
	if period < p.period && p.failed == 0 && !p.next.IsZero() {
		p.next = p.next.Add(period - p.period)
	}
	p.period = period
}

// now has the forge asked at the next look, whatever it said last.
func (p *poll) now() { p.next = time.Time{} }

// head asks with fetch, which may answer with what it was told at most maxAge ago when
// another source has asked the same repository. Whoever asks for a look gets a new one.
func (p *poll) head(ctx context.Context, now time.Time, fetch func(ctx context.Context, maxAge time.Duration) (string, error)) (string, error) {
	if now.Before(p.next) {
		return p.commit, p.err
	}
	maxAge := p.period / 2
	if p.next.IsZero() {
		maxAge = 0
	}
	commit, err := fetch(ctx, maxAge)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	delay := p.period
	if err != nil {
		p.failed++
		for i := 1; i < p.failed && delay < maxPollBackoff; i++ {
			delay *= 2
		}
		delay = max(p.period, min(delay, maxPollBackoff))
	} else {
		p.failed = 0
	}
	// A tenth more or less, so that many clusters do not ask a forge at once.
	delay += time.Duration((p.jitter.Float64() - 0.5) * 0.2 * float64(delay))
	p.next, p.commit, p.err = now.Add(delay), commit, err
	return commit, err
}
