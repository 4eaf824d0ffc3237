package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	errDeposed = errors.New("no longer the leader")
	errDead    = errors.New("the process is dead")
)

// world is a store, a forge and who is the leader.
type world struct {
	mu      sync.Mutex
	leader  int
	intents map[string][]byte
	shown   []shown
	asked   int
	answer  func(r *http.Request, n int) *http.Response // nil: 201
}

// shown is a status that the forge took.
type shown struct {
	by          int
	commit      string
	state, text string
	at          time.Time
}

func newWorld() *world { return &world{leader: 1, intents: map[string][]byte{}} }

// last is what the forge shows for a commit.
func (w *world) last(commit string) shown {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.shown) - 1; i >= 0; i-- {
		if w.shown[i].commit == commit {
			return w.shown[i]
		}
	}
	return shown{}
}

func (w *world) states(commit string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, s := range w.shown {
		if s.commit == commit {
			all = append(all, s.state)
		}
	}
	return strings.Join(all, " ")
}

func (w *world) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *world) depose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader++
}

// process is one life of a server: what Statuses calls goes through it, and stops
// at one point.
type process struct {
	w  *world
	id int

	mu      sync.Mutex
	points  int
	stop    int // the point to stop at; -1: none
	stopped bool
	kill    func()        // stops for good, or
	release chan struct{} // until this is closed
	dead    bool
}

func (p *process) reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

func (p *process) point(ctx context.Context) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errDead
	}
	n := p.points
	p.points++
	if n != p.stop {
		p.mu.Unlock()
		return nil
	}
	p.stopped = true
	if p.release == nil {
		p.dead = true
		p.mu.Unlock()
		p.kill()
		return errDead
	}
	p.mu.Unlock()
	<-p.release // as a process that is suspended: no context wakes it
	return nil
}

// do runs an operation between two points. Writes are fenced in themselves.
func (p *process) do(ctx context.Context, fenced bool, op func() error) error {
	if err := p.point(ctx); err != nil {
		return err
	}
	p.w.mu.Lock()
	err := errDeposed
	if !fenced || p.w.leader == p.id {
		err = op()
	}
	p.w.mu.Unlock()
	if e := p.point(ctx); e != nil {
		return e
	}
	return err
}

func (p *process) Put(ctx context.Context, i Intent) error {
	return p.do(ctx, true, func() error {
		raw, err := json.Marshal(i)
		p.w.intents[i.Key] = raw
		return err
	})
}

func (p *process) Done(ctx context.Context, i Intent) error {
	return p.do(ctx, true, func() error {
		var have Intent
		raw, ok := p.w.intents[i.Key]
		if !ok {
			return nil
		}
		if err := json.Unmarshal(raw, &have); err != nil {
			return err
		}
		if have.Attempt != i.Attempt || have.Revision != i.Revision {
			return nil
		}
		have.Settled = true
		raw, err := json.Marshal(have)
		p.w.intents[i.Key] = raw
		return err
	})
}

func (p *process) Drop(ctx context.Context, key string) error {
	return p.do(ctx, true, func() error {
		delete(p.w.intents, key)
		return nil
	})
}

func (p *process) List(ctx context.Context) (all []Intent, err error) {
	err = p.do(ctx, false, func() error {
		for _, raw := range p.w.intents {
			var i Intent
			if err := json.Unmarshal(raw, &i); err != nil {
				return err
			}
			all = append(all, i)
		}
		return nil
	})
	return all, err
}

func (p *process) fence(ctx context.Context) error {
	return p.do(ctx, true, func() error { return nil })
}

// RoundTrip is the forge at the other end of the wire, Gitea's API.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil { // as http.Transport does
		return nil, err
	}
	var res *http.Response
	err := p.do(r.Context(), false, func() error {
		if err := r.Context().Err(); err != nil {
			return err
		}
		p.w.asked++
		if p.w.answer != nil {
			if res = p.w.answer(r, p.w.asked); res.StatusCode != http.StatusCreated {
				return nil
			}
		}
		res = respond(http.StatusCreated, "", "")
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		var body githubStatus
		if err := json.Unmarshal(raw, &body); err != nil {
			return err
		}
		commit := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		p.w.shown = append(p.w.shown, shown{p.id, commit, body.State, body.Description, time.Now()})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func respond(status int, body string, header string, values ...string) *http.Response {
	h := http.Header{}
	if header != "" {
		h.Set(header, values[0])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// lockedBuffer is a log that is written and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start makes the statuses of a process and runs them until the test's end, or
// until stop is called.
func (p *process) start(t *testing.T, change func(*StatusConfig)) (s *Statuses, log *lockedBuffer, stop func()) {
	t.Helper()
	log = &lockedBuffer{}
	c := StatusConfig{
		Cluster: "main", Path: "apps", URL: "https://user:pa55@git.example.com/acme/shop.git", Kind: Gitea,
		Intents: p, Fence: p.fence, Transport: p, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&c)
	}
	if c.TokenFile == "" {
		c.TokenFile = writeFile(t, "t0ken\n")
	}
	s, err := NewStatuses(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.kill = cancel
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	once := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, secret := range []string{"t0ken", "pa55"} {
			if strings.Contains(log.String(), secret) || strings.Contains(s.Problem(), secret) {
				t.Errorf("R14: %q in %s or %s", secret, log, s.Problem())
			}
		}
	})
	t.Cleanup(once)
	return s, log, once
}

func (w *world) process() *process { return &process{w: w, id: w.leader, stop: -1} }

func hexCommit(i int) string { return fmt.Sprintf("%040x", i) }
