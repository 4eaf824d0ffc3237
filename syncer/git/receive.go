package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// push is one run of git receive-pack.
type push struct {
	id, pusher string
	ctx        context.Context // ends when the client has left, or we stop
	leave      context.CancelFunc
	free       func() // gives back the place among those that push; may be called again

	hooks sync.WaitGroup // that are answered; none begins once the push is forgotten

	mu    sync.Mutex
	moved []Update // keys that were moved and whose bare refs git moves now
}

// take returns the moved updates, once.
func (p *push) take() []Update {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.moved
	p.moved = nil
	return moved
}

// answer talks to one hook.
func (h *Hosted) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	out := &printer{redact: h.redact, w: deadlined{conn}}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // a closed connection shows in the read
	hi, err := readHello(conn)
	if err != nil {
		out.line("headway: %v; nothing changed", err)
		out.end(frameRefuse)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	h.mu.Lock()
	p := h.pushes[hi.Push]
	if p != nil {
		p.hooks.Add(1)
	}
	h.mu.Unlock()
	if p == nil {
		out.line("headway: this push did not come through the server; nothing changed")
		out.end(frameRefuse)
		return
	}
	defer p.hooks.Done()
	// The hook says nothing more, so this read ends when the hook does.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1))
		cancel()
	}()
	switch hi.Hook {
	case "pre-receive":
		accepted, objects := h.receive(ctx, p, hi, out)
		if accepted {
			out.end(frameAccept)
		} else {
			out.end(frameRefuse)
		}
		if objects != nil {
			objects.Close() // after the answer, for nobody need wait for it
		}
	case "post-receive":
		h.follow(ctx, p, hi, out)
		out.end(frameAccept)
	default:
		out.line("headway: unknown hook %q; nothing changed", hi.Hook)
		out.end(frameRefuse)
	}
}

// deadlined gives up on a hook that takes nothing.
type deadlined struct{ net.Conn }

func (d deadlined) Write(b []byte) (int, error) {
	if err := d.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	return d.Conn.Write(b)
}

// maxProblems bounds what is printed of a refused push.
const maxProblems = 100

// receive decides about a push and moves its keys. The objects are for the caller
// to close.
func (h *Hosted) receive(ctx context.Context, p *push, hi hello, out *printer) (accepted bool, objects *Objects) {
	begin := time.Now()
	updates, err := parseUpdates(hi.Input)
	if err == nil {
		err = h.checkQuarantine(hi.Quarantine)
	}
	var dry bool
	if err == nil {
		dry, err = dryRun(hi.Options)
	}
	if err != nil {
		out.line("headway: refused, nothing changed: %v", err)
		return false, nil
	}
	objects = h.quarantined(hi.Quarantine)
	problems, err := h.screen(ctx, updates, objects)
	if err == nil && len(problems) == 0 {
		problems, err = h.judge(ctx, p, hi.Options, updates, objects, out)
	}
	if err != nil {
		h.config.Log.Error("push not judged", "pusher", p.pusher, "err", h.redact.hide(err))
		out.line("headway: refused, nothing changed: this push could not be judged: %v", err)
		return false, objects
	}
	if len(problems) > 0 {
		for i, problem := range problems {
			if i == maxProblems {
				out.line("… and %d more", len(problems)-i)
				break
			}
			out.line("%s", strings.TrimRight(problem, "\n"))
		}
		verdict := "refused, nothing changed"
		if dry {
			verdict = "dry run: nothing changed, and a push would be refused"
		}
		out.line("headway: %s: %s", verdict, count(len(problems), "problem"))
		return false, objects
	}
	if dry {
		out.line("headway: dry run: nothing changed")
		return false, objects
	}
	if !h.move(ctx, p, updates, hi.Quarantine, out) {
		return false, objects
	}
	took := time.Since(begin).Round(time.Millisecond)
	for _, u := range updates {
		h.config.Log.Info("ref pushed", "ref", u.Ref, "from", u.Old, "to", u.New, "pusher", p.pusher, "took", took)
	}
	return true, objects
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// checkQuarantine lets only folders pass that git makes for a push. A push that
// brings no objects, such as a deletion, has none.
func (h *Hosted) checkQuarantine(path string) error {
	if path == "" {
		return nil
	}
	parent, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("the quarantine of the push: %w", err)
	}
	objects, err := os.Stat(h.objects())
	if err != nil {
		return fmt.Errorf("the quarantine of the push: %w", err)
	}
	if !os.SameFile(parent, objects) || !strings.HasPrefix(filepath.Base(path), "tmp_objdir-") {
		return errors.New("the quarantine of the push is not in the hosted repository")
	}
	return nil
}

func (h *Hosted) objects() string { return filepath.Join(h.config.Dir, "objects") }

// quarantined reads what is pushed and what was there. Trees never change under
// their hash, so it shares the cache.
func (h *Hosted) quarantined(path string) *Objects {
	p := h.program
	if path != "" {
		p.env = []string{"GIT_OBJECT_DIRECTORY=" + path, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + h.objects(), "GIT_QUARANTINE_PATH=" + path}
	}
	return newObjects(p, h.cache)
}

// judge asks Config.Judge about every update of a followed ref.
func (h *Hosted) judge(ctx context.Context, p *push, options []string, updates []Update, objects *Objects, out *printer) ([]string, error) {
	if h.config.Judge == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.config.JudgeTime, fmt.Errorf("it took longer than %s; push again", h.config.JudgeTime))
	defer cancel()
	var problems []string
	for _, u := range updates {
		if !h.config.Follows(u.Ref) {
			continue
		}
		found, err := h.config.Judge(ctx, Push{Update: u, Pusher: p.pusher, Options: options, Objects: objects}, out)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
		problems = append(problems, found...)
	}
	return problems, nil
}

// move makes the objects permanent and moves the keys. From the first line that
// changes something on, nobody's leaving stops it.
func (h *Hosted) move(ctx context.Context, p *push, updates []Update, quarantine string, out *printer) bool {
	if ctx.Err() != nil {
		return false // the hook is gone, and so is everything that was pushed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if quarantine != "" {
		if err := adopt(quarantine, h.objects()); err != nil {
			h.config.Log.Error("push not stored", "pusher", p.pusher, "err", err)
			out.line("headway: refused, nothing changed: %v", err)
			return false
		}
	}
	h.hold(updates)
	err := h.config.Refs.Move(ctx, updates, p.pusher)
	if err != nil && !errors.Is(err, ErrMoved) {
		err = h.confirm(ctx, updates, err)
	}
	if errors.Is(err, ErrMoved) {
		h.release(updates)
		out.line("headway: refused, nothing changed: somebody else pushed meanwhile; git pull, then push again")
		return false
	}
	if err != nil {
		h.settle(ctx, updates)
		h.config.Log.Error("push not recorded", "pusher", p.pusher, "err", h.redact.hide(err))
		out.line("headway: refused: %v", err)
		return false
	}
	p.mu.Lock()
	p.moved = append(p.moved, updates...)
	p.mu.Unlock()
	return true
}

// confirm finds out whether a move that ended in an error has happened.
func (h *Hosted) confirm(ctx context.Context, updates []Update, cause error) error {
	// The transaction may have used up the time of ctx.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	keys, err := h.config.Refs.List(ctx)
	if err != nil {
		return fmt.Errorf("whether it was recorded is not known: %w; fetch to see, then push again", errors.Join(cause, err))
	}
	for _, u := range updates {
		if keys[u.Ref] != u.New {
			return fmt.Errorf("nothing changed: %w; push again", cause)
		}
	}
	return nil
}

// follow shows what becomes of the commits that git has accepted.
func (h *Hosted) follow(ctx context.Context, p *push, hi hello, out *printer) {
	h.settle(ctx, p.take())
	p.free()
	updates, err := parseUpdates(hi.Input)
	if err != nil || h.config.Follow == nil {
		return // git says the same as in pre-receive, where we refuse what is wrong
	}
	select {
	case h.following <- struct{}{}:
		defer func() { <-h.following }()
	default:
		out.line("headway: accepted; too many watch rollouts already, see `headway status --wait`")
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for _, u := range updates {
		if u.New == "" || !h.config.Follows(u.Ref) {
			continue
		}
		if err := h.config.Follow(ctx, u.New, out); err != nil && ctx.Err() == nil {
			out.line("headway: accepted, but the rollout cannot be shown: %v", err)
		}
	}
}
