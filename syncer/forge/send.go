package forge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"time"
)

// gate is what holds for all commits, since they share the forge and the token.
// Only the caller of Run touches it.
type gate struct {
	at      *endpoint // nil: not known yet which kind of forge it is
	until   time.Time // nothing is sent before
	failed  int       // in a row
	denied  string    // the token that the forge does not accept; a new one opens the gate
	said    string    // what kind of problem was logged last, so that it is said once
	missing string    // likewise, of commits that the forge does not have
}

const (
	firstPause  = time.Second
	mostPause   = 5 * time.Minute
	deniedPause = 10 * time.Minute // a person must act, and then need not wait
	tokenPause  = 10 * time.Second // how often the token's file is looked at meanwhile
	firstRetry  = time.Minute      // of a commit that the forge does not have
	mostRetry   = time.Hour
)

// Run sends what is to be sent until ctx ends, and returns nil when what it began
// has ended.
func (s *Statuses) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := s.step(ctx)
		s.tell()
		if wait != 0 {
			s.rest(ctx, wait)
		}
	}
	return nil
}

// tell passes on what is wrong. What failed once is most often well at once.
func (s *Statuses) tell() {
	if s.cfg.Tell == nil || s.gate.failed == 1 {
		return
	}
	if problem := s.Problem(); problem != s.told {
		s.told = problem
		s.cfg.Tell(problem)
	}
}

// rest waits for a report, and no longer than wait, if that is not negative.
func (s *Statuses) rest(ctx context.Context, wait time.Duration) {
	var alarm <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-alarm:
	}
}

// step does the next thing, at most one status among it, and says how long there is
// nothing to do: negative until a report comes.
func (s *Statuses) step(ctx context.Context) time.Duration {
	if err := s.tidy(ctx); err != nil {
		return s.fail(ctx, "store", err)
	}
	now := time.Now()
	s.mu.Lock()
	commit, wait := due(s.entries, now)
	var next entry
	if commit != "" {
		next = *s.entries[commit]
	}
	s.mu.Unlock()
	if commit == "" {
		return wait
	}
	if shut := s.gate.until.Sub(now); shut > 0 {
		return s.watchToken(shut)
	}
	if s.gate.at == nil {
		if err := s.find(ctx); err != nil {
			return s.fail(ctx, "find", err)
		}
	}
	if next.sent != nil && s.gate.at.kind.alike(*next.sent, next.intent) {
		return s.settle(ctx, next.intent)
	}
	return s.send(ctx, next.intent)
}

// tidy loads the intents and drops the oldest beyond those that are kept.
func (s *Statuses) tidy(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	if err := s.load(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	drop := surplus(s.entries)
	s.mu.Unlock()
	for _, i := range drop {
		if err := s.cfg.Intents.Drop(ctx, i.Key); err != nil {
			return fmt.Errorf("forget the status of commit %.12s: %w", i.Commit, err)
		}
		s.mu.Lock()
		delete(s.entries, i.Commit)
		s.mu.Unlock()
	}
	return nil
}

// find asks the forge which kind it is.
func (s *Statuses) find(ctx context.Context) error {
	kind, err := detect(ctx, s.client, s.where.site())
	if err != nil {
		return err
	}
	at, err := endpointOf(kind, s.where, s.cfg.API)
	if err != nil {
		return err
	}
	s.cfg.Log.Info("found out which forge it is", "site", s.where.site(), "forge", string(kind))
	s.use(at)
	return nil
}

func (s *Statuses) use(at endpoint) {
	s.gate.at = &at
	u, err := url.Parse(at.base)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		s.cfg.Log.Warn("the forge's token is sent over http, where anyone on the way can read it; use https", "api", at.base)
	}
}

// send makes one request, right after the fence was checked. Both together last no
// longer than requestTimeout: after that a new leader sends.
func (s *Statuses) send(ctx context.Context, i Intent) time.Duration {
	token, err := s.token.token()
	if err != nil {
		s.gate.denied = ""
		return s.shut("token file", err.Error()+"; put the forge's token into it", tokenPause)
	}
	at := *s.gate.at
	a, err := s.guarded(ctx, at, i, token)
	if err != nil {
		return s.fail(ctx, "send", err)
	}
	now := time.Now()
	o, until := a.judge(now)
	if o == taken {
		s.open()
		return s.settle(ctx, i)
	}
	advice := a.advice(o, at.base, s.where.path, s.cfg.TokenFile)
	switch o {
	case refused:
		s.postpone(i, advice, 0)
		return s.settle(ctx, i)
	case denied:
		s.gate.denied = token
		return s.shut(a.said(), advice, deniedPause)
	case missing:
		s.postpone(i, advice, firstRetry)
		return 0
	}
	// A forge that fails for one commit only must not keep the others waiting.
	s.postpone(i, "", 0)
	if until.IsZero() {
		s.gate.failed++
		until = now.Add(backoff(s.gate.failed, firstPause, mostPause, rand.Float64()))
	}
	return s.shut(a.said(), advice, until.Sub(now))
}

func (s *Statuses) guarded(ctx context.Context, at endpoint, i Intent, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := s.cfg.Fence(ctx); err != nil {
		return answer{}, fmt.Errorf("check that we are the leader before a commit status is sent: %w", err)
	}
	a, err := post(ctx, s.client, at, i, token)
	if err != nil {
		return answer{}, fmt.Errorf("send a commit status to %s: %w", at.base, err)
	}
	return a, nil
}

// settle notes what the forge shows now, and then in the store that it does. When
// that fails it is done again, without sending, since the two are alike.
func (s *Statuses) settle(ctx context.Context, i Intent) time.Duration {
	s.mu.Lock()
	if e := s.entries[i.Commit]; e != nil {
		e.note(i, time.Now())
	}
	s.mu.Unlock()

	if err := s.begin(ctx); err != nil {
		return s.fail(ctx, "store", err)
	}
	defer s.end()
	s.mu.Lock()
	e := s.entries[i.Commit]
	newest := e != nil && e.intent == i
	s.mu.Unlock()
	if !newest {
		return 0
	}
	if err := s.cfg.Intents.Done(ctx, i); err != nil {
		return s.fail(ctx, "store", fmt.Errorf("store that the status of commit %.12s was sent: %w", i.Commit, err))
	}
	s.mu.Lock()
	e.intent.Settled = true
	s.mu.Unlock()
	return 0
}

// postpone counts a failure of one commit, and complains of it once, as long as it
// is not what others are complained of already.
func (s *Statuses) postpone(i Intent, advice string, first time.Duration) {
	s.mu.Lock()
	e := s.entries[i.Commit]
	if e == nil || e.intent != i {
		s.mu.Unlock()
		return
	}
	e.tries++
	e.retry = time.Now().Add(backoff(e.tries, first, mostRetry, rand.Float64()))
	complain := advice != "" && advice != e.complaint && advice != s.gate.missing
	if advice != "" {
		e.complaint = advice
	}
	s.mu.Unlock()
	if complain {
		s.gate.missing = advice
		s.cfg.Log.Warn("a commit status does not reach the forge", "repository", s.repository, "commit", i.Commit, "reason", advice)
	}
}

// fail shuts the gate after something that goes away by itself, or has to be told
// to us, as which kind of forge it is.
func (s *Statuses) fail(ctx context.Context, class string, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	var unknown unknownForge
	if errors.As(err, &unknown) {
		return s.shut("unknown forge", err.Error(), deniedPause)
	}
	s.gate.failed++
	return s.shut(class, err.Error(), backoff(s.gate.failed, firstPause, mostPause, rand.Float64()))
}

// shut lets nothing through for a while, and tells a person why, in the log once
// for each class of problem.
func (s *Statuses) shut(class, why string, wait time.Duration) time.Duration {
	wait = max(wait, firstPause)
	s.gate.until = time.Now().Add(wait)
	if s.gate.said != class {
		s.gate.said = class
		s.mu.Lock()
		s.problem = why // the first of its class: the others differ in a port, or a time
		s.mu.Unlock()
		s.cfg.Log.Warn("commit statuses do not reach the forge", "repository", s.repository, "reason", why)
	}
	return s.watchToken(wait)
}

// watchToken is how long to wait while the gate is shut. One that is shut because
// of the token opens as soon as the file holds another.
func (s *Statuses) watchToken(shut time.Duration) time.Duration {
	if s.gate.denied == "" {
		return shut
	}
	if token, err := s.token.token(); err == nil && token != s.gate.denied {
		s.gate.denied, s.gate.until = "", time.Time{}
		return 0
	}
	return min(shut, tokenPause)
}

// open ends what was wrong: the forge has taken a status.
func (s *Statuses) open() {
	if s.gate.said != "" {
		s.cfg.Log.Info("commit statuses reach the forge again", "repository", s.repository)
	}
	s.gate = gate{at: s.gate.at}
	s.mu.Lock()
	s.problem = ""
	s.mu.Unlock()
}
