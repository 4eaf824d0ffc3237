package git

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// After git has ended, this much of a body is still taken and thrown away: a
// client that sends a pack that is too large would otherwise see a broken
// connection in place of git's words.
const (
	maxLeftover  = 1 << 30
	leftoverTime = 30 * time.Second
)

// serve runs git's side of one request: receive-pack or upload-pack. p is nil
// unless it brings a pack. whole is false when the rest of the body is still on
// its way, or the answer was cut off, so that the connection cannot be used again.
//
// Git has a CGI program for this, http-backend. What it does beside starting the
// same program is in answerHead and inflated, and takes no process of its own.
func (h *Hosted) serve(w http.ResponseWriter, r *http.Request, q request, p *push) (whole bool) {
	errs := &head{max: 4 << 10}
	mode := "--stateless-rpc"
	if q.tail == "info/refs" {
		mode = "--http-backend-info-refs"
	}
	cmd := h.program.command(h.program.path, strings.TrimPrefix(q.service, "git-"), mode, ".")
	// The service finds the repository by its argument.
	cmd.Env = slices.DeleteFunc(cmd.Env, func(s string) bool { return s == "GIT_DIR="+h.config.Dir })
	cmd.Env = append(cmd.Env, h.environment(r, q, p)...)
	cmd.Stderr = errs
	in, out, err := start(cmd)
	if err != nil {
		h.config.Log.Error("git request not begun", "service", q.service, "err", err)
		http.Error(w, "git cannot be started", http.StatusInternalServerError)
		return true
	}
	h.register(cmd)
	said, whole := h.converse(w, r, q, p, cmd, in, out)
	h.forget(cmd)
	if err = cmd.Wait(); err == nil {
		return whole
	}
	if !said {
		http.Error(w, "git ended without an answer", http.StatusBadGateway)
		_ = http.NewResponseController(w).Flush() // before the connection is cut
	}
	// A client that left, or sent too much, makes git fail; that is no news.
	if (p == nil || p.ctx.Err() == nil) && r.Context().Err() == nil {
		h.config.Log.Warn("git request failed", "service", q.service, "err", err, "said", h.redact.text(errs.suffix()))
	}
	// Git's client waits forever for the rest of an answer that ends well but in
	// the middle; a connection that is cut makes it stop.
	return false
}

func start(cmd *exec.Cmd) (in io.WriteCloser, out io.Reader, err error) {
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	return in, out, cmd.Start()
}

// register makes a git program known to the shutdown.
func (h *Hosted) register(cmd *exec.Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[cmd] = struct{}{}
	if h.killed {
		kill(cmd)
	}
}

func (h *Hosted) forget(cmd *exec.Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, cmd)
}

// kill ends git and the programs it started.
func kill(cmd *exec.Cmd) { signal(cmd, syscall.SIGKILL) }

// converse passes the body to git and git's answer to the client, both at once.
//
// A client that leaves does not end a push: what git still says is read and
// dropped, so that git does not die of a closed pipe in the middle of its work.
// A client that leaves while it fetches does end that. said tells whether git has
// answered anything.
func (h *Hosted) converse(w http.ResponseWriter, r *http.Request, q request, p *push, cmd *exec.Cmd, in io.WriteCloser, out io.Reader) (said, whole bool) {
	c := &client{ResponseController: http.NewResponseController(w), w: w, patience: h.config.Patience}
	// Without it Go would take the rest of the body away at the first write.
	if err := c.EnableFullDuplex(); err != nil {
		h.config.Log.Warn("git request not in full duplex", "err", err)
	}
	var body io.Reader = r.Body
	if e := r.Header.Get("Content-Encoding"); e == "gzip" || e == "x-gzip" {
		body = &inflated{from: r.Body}
	}
	var sending sync.WaitGroup
	ended := make(chan struct{})
	sending.Go(func() { whole = c.pass(in, body, h.config.MaxPush+1<<20, ended) })

	left := func() {
		if p != nil {
			p.leave()
		} else {
			kill(cmd)
		}
	}
	first := answerHead(w.Header(), q, r.Header.Get("Git-Protocol"))
	buf := make([]byte, 32<<10)
	for {
		n, err := out.Read(buf)
		if n > 0 && !c.gone {
			if !said {
				c.send(first)
			}
			if c.send(buf[:n]); c.gone {
				left()
			}
		}
		said = said || n > 0
		if err != nil {
			break
		}
	}
	close(ended)
	timer := time.AfterFunc(leftoverTime, c.hurry)
	sending.Wait()
	timer.Stop()
	_ = c.SetWriteDeadline(time.Time{}) // a dead connection shows at the next use
	return said, whole
}

// answerHead sets the header of git's answer and returns what comes before it: the
// list of refs begins with the service's name, except in version 2 of the protocol.
func answerHead(h http.Header, q request, protocol string) []byte {
	kind := "result"
	var first []byte
	if q.tail == "info/refs" {
		kind = "advertisement"
		if !slices.Contains(strings.Split(protocol, ":"), "version=2") {
			line := "# service=" + q.service + "\n"
			first = fmt.Appendf(nil, "%04x%s0000", len(line)+4, line)
		}
	}
	h.Set("Content-Type", "application/x-"+q.service+"-"+kind)
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	return first
}

// inflated is a compressed body. What it holds is bounded by its reader.
type inflated struct {
	from io.Reader
	z    *gzip.Reader
}

func (i *inflated) Read(b []byte) (n int, err error) {
	if i.z == nil {
		if i.z, err = gzip.NewReader(i.from); err != nil {
			return 0, fmt.Errorf("inflate the request: %w", err)
		}
	}
	return i.z.Read(b)
}

// client is the other end of a request.
type client struct {
	*http.ResponseController
	w        http.ResponseWriter
	patience time.Duration
	gone     bool // used by the goroutine that sends only

	mu      sync.Mutex
	hurried bool
}

// send writes and flushes; it finds out when the client is gone.
func (c *client) send(b []byte) {
	if len(b) == 0 {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(c.patience)) // not every server can; then the write says it
	_, err := c.w.Write(b)
	c.gone = err != nil || c.Flush() != nil
}

// hurry ends the reading of a body that nobody needs any more.
func (c *client) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hurried = true
	_ = c.SetReadDeadline(time.Now())
}

// patient sets the deadline of the next read.
func (c *client) patient() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hurried {
		_ = c.SetReadDeadline(time.Now().Add(c.patience))
	}
	return !c.hurried
}

// pass copies at most limit bytes of the body into git, and closes its input.
// Once git has ended the rest is dropped. It returns whether it saw the end of
// the body.
func (c *client) pass(in io.WriteCloser, body io.Reader, limit int64, ended <-chan struct{}) (whole bool) {
	buf := make([]byte, 64<<10)
	open, dropped := true, int64(0)
	var err error
	for err == nil && dropped <= maxLeftover && c.patient() {
		var n int
		n, err = body.Read(buf)
		limit -= int64(n)
		select {
		case <-ended:
			open = false
		default:
		}
		if open && limit >= 0 {
			_, failed := in.Write(buf[:n])
			open = failed == nil
		} else {
			open, dropped = false, dropped+int64(n)
		}
		if !open {
			_ = in.Close() // closing it again is harmless
		}
	}
	_ = in.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	// Or the server would take the deadline for a client that has left.
	_ = c.SetReadDeadline(time.Time{})
	return errors.Is(err, io.EOF)
}
