package git

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

// request is one request of git's smart HTTP protocol.
type request struct {
	tail    string // what follows the repository's name: info/refs, git-upload-pack, git-receive-pack
	service string // git-upload-pack or git-receive-pack
	pusher  string
}

// push says whether the request brings a pack.
func (q request) push() bool { return q.tail == "git-receive-pack" }

// ServeHTTP is the git endpoint: /<name of Dir>/info/refs and the two services,
// for those who bring a token as the password of basic authentication. Git takes
// it from a URL such as http://x:TOKEN@127.0.0.1:9000/main.git.
func (h *Hosted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, status := h.route(r)
	if status != 0 {
		text := strings.ToLower(http.StatusText(status))
		if status == http.StatusForbidden {
			text = "this cluster follows a repository that is hosted elsewhere: push there"
		}
		http.Error(w, text, status)
		return
	}
	var ok bool
	if q.pusher, ok = h.authenticate(r); !ok {
		w.Header().Set("WWW-Authenticate", `Basic realm="headway", charset="UTF-8"`)
		http.Error(w, "a token is needed: use the address that `headway remote` prints", http.StatusUnauthorized)
		return
	}
	if r.ContentLength > h.config.MaxPush {
		http.Error(w, fmt.Sprintf("a push may have %d bytes", h.config.MaxPush), http.StatusRequestEntityTooLarge)
		return
	}
	if !h.enter() {
		http.Error(w, "the server is stopping", http.StatusServiceUnavailable)
		return
	}
	defer h.busy.Done()
	free, ok := h.admit(r.Context(), q)
	if !ok {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many git requests at once, try again", http.StatusServiceUnavailable)
		return
	}
	defer free()
	h.mend(r.Context())
	var p *push
	if q.push() {
		p = h.begin(r.Context(), q, free)
	}
	whole := h.serve(w, r, q, p)
	if p != nil {
		h.finish(p)
	}
	if !whole {
		panic(http.ErrAbortHandler) // net/http's way to close the connection
	}
}

// route takes only what git's smart protocol asks for.
func (h *Hosted) route(r *http.Request) (q request, status int) {
	tail, ok := strings.CutPrefix(r.URL.Path, "/"+path.Base(h.config.Dir)+"/")
	if !ok {
		return q, http.StatusNotFound
	}
	q.tail = tail
	method := http.MethodPost
	switch tail {
	case "info/refs":
		method = http.MethodGet
		q.service = r.URL.Query().Get("service") // without it, the dumb protocol
	case "git-upload-pack", "git-receive-pack":
		q.service = tail
	}
	switch {
	case q.service != "git-upload-pack" && q.service != "git-receive-pack":
		return q, http.StatusNotFound
	case h.reader && q.service == "git-receive-pack":
		return q, http.StatusForbidden
	case r.Method != method:
		return q, http.StatusMethodNotAllowed
	case tail != "info/refs" && r.Header.Get("Content-Type") != "application/x-"+tail+"-request":
		return q, http.StatusUnsupportedMediaType
	}
	return q, 0
}

// authenticate returns whose token the request brings. It takes the same time
// for every wrong token.
func (h *Hosted) authenticate(r *http.Request) (name string, ok bool) {
	_, given, has := r.BasicAuth()
	if !has {
		return "", false
	}
	sum := sha256.Sum256([]byte(given))
	for n, token := range h.config.Tokens {
		want := sha256.Sum256([]byte(token))
		if token != "" && subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
			name, ok = n, true
		}
	}
	return name, ok
}

// admit waits a moment for a place among those that read or push. free gives it
// back, and may be called more than once.
func (h *Hosted) admit(ctx context.Context, q request) (free func(), ok bool) {
	places := h.reading
	if q.service == "git-receive-pack" {
		places = h.pushing
	}
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places }), true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}

// begin registers a push, so that its hooks are known.
func (h *Hosted) begin(ctx context.Context, q request, free func()) *push {
	p := &push{id: rand.Text(), pusher: q.pusher, free: free}
	p.ctx, p.leave = context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		p.leave()
	}
	h.pushes[p.id] = p
	return p
}

// finish forgets a push whose git program has ended. When git did not come to
// its post-receive hook, the bare refs may be behind their keys. Git may have been
// killed while its hook moves them, so it waits for that first.
func (h *Hosted) finish(p *push) {
	h.mu.Lock()
	delete(h.pushes, p.id)
	h.mu.Unlock()
	p.leave()
	p.hooks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h.settle(ctx, p.take())
	select {
	case h.tidy <- struct{}{}:
	default:
	}
}

var protocol = regexp.MustCompile(`^[a-zA-Z0-9=:._-]{1,100}$`)

// environment is what git gets of a request.
func (h *Hosted) environment(r *http.Request, q request, p *push) []string {
	name := cmp.Or(q.pusher, "headway")
	env := []string{"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + name + "@headway"}
	if v := r.Header.Get("Git-Protocol"); protocol.MatchString(v) {
		env = append(env, "GIT_PROTOCOL="+v)
	}
	if p != nil {
		env = append(env, "HEADWAY_SOCKET="+socketName, "HEADWAY_PUSH="+p.id)
	}
	return env
}
