package forge

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxDelivery   = 5 << 20 // bytes of a body; a larger push is found by polling
	maxDeliveries = 4       // that are read at once
	readTimeout   = 30 * time.Second
	scoldPause    = 10 * time.Second // between two logs of deliveries that were refused
)

// Source is one that the cluster follows.
type Source struct {
	Name string
	URL  string // of the repository, in any form that git takes
	Ref  string // main or refs/heads/main
}

// WebhookConfig says what to listen for. SecretFile, Sources and Wake must be set.
type WebhookConfig struct {
	// SecretFile holds a secret per line, at most 4; any of them is good, so that one
	// can be replaced. It is read for each delivery. Without it, or empty, every
	// delivery is refused.
	SecretFile string
	// Sources lists what is followed now.
	Sources func() []Source
	// Wake is told of a push to a source, at most once a second for each. It returns
	// at once.
	Wake func(source string, e Event)
	Log  *slog.Logger
}

// Webhook is the http.Handler of /webhook, where the headers say which forge it is,
// and of /webhook/github, /webhook/gitlab, /webhook/gitea and /webhook/forgejo.
type Webhook struct {
	cfg    WebhookConfig
	secret *secretFile
	places chan struct{}
	waker  *waker

	mu     sync.Mutex
	scold  time.Time // when a refused delivery is logged again
	silent int       // refused and not logged since
}

// NewWebhook makes the handler. Close it when it serves no more.
func NewWebhook(c WebhookConfig) (*Webhook, error) {
	if c.SecretFile == "" || c.Sources == nil || c.Wake == nil {
		return nil, errors.New("webhooks need a file of secrets, sources, and somebody to wake")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Webhook{
		cfg:    c,
		secret: &secretFile{path: c.SecretFile, log: c.Log},
		places: make(chan struct{}, maxDeliveries),
		waker:  newWaker(c.Wake),
	}, nil
}

// Close wakes nobody any more.
func (w *Webhook) Close() { w.waker.close() }

// reply is the answer to a delivery: a status, and a word why, which forges show
// beside the delivery.
type reply struct {
	status int
	why    string
	detail string // for our log alone: who is not signed in learns nothing about our files
}

func because(status int, why string) reply { return reply{status: status, why: why} }

func noSecrets(file string, err error) reply {
	return reply{http.StatusServiceUnavailable, "the file of webhook secrets cannot be used; the server's log says why", file + ": " + err.Error()}
}

func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	out := w.serve(rw, r)
	if out.status >= 400 {
		w.refuse(r, out)
	}
	if out.status == http.StatusNoContent { // has no body
		rw.Header().Set("X-Headway-Reason", headerText(out.why))
		rw.WriteHeader(out.status)
		return
	}
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	rw.WriteHeader(out.status)
	_, _ = io.WriteString(rw, out.why+"\n") // the forge may be gone
}

func (w *Webhook) serve(rw http.ResponseWriter, r *http.Request) reply {
	kind, err := kindOfDelivery(r)
	if err != nil {
		return because(http.StatusNotFound, err.Error())
	}
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		return because(http.StatusMethodNotAllowed, "a forge posts its webhooks here; there is nothing to see")
	}
	secrets, err := w.secret.lines(maxSecrets)
	if err != nil {
		return noSecrets(w.cfg.SecretFile, err)
	}
	if err := admit(kind, r.Header, secrets); err != nil {
		return because(http.StatusUnauthorized, err.Error())
	}
	select {
	case w.places <- struct{}{}:
		defer func() { <-w.places }()
	default:
		rw.Header().Set("Retry-After", "5")
		return because(http.StatusServiceUnavailable, "too many deliveries at once; polling finds what this one told of")
	}
	body, content, out := read(rw, r)
	if out.status != 0 {
		return out
	}
	if err := verify(kind, r.Header, secrets, body, content); err != nil {
		var u unsigned
		if !errors.As(err, &u) {
			return noSecrets(w.cfg.SecretFile, err)
		}
		return because(http.StatusUnauthorized, u.why)
	}
	return w.deliver(kind, r.Header, content)
}

// kindOfDelivery reads the path or else the headers. Gitea and Forgejo send the
// headers of GitHub too, so theirs count first.
func kindOfDelivery(r *http.Request) (Kind, error) {
	path := strings.Trim(r.URL.Path, "/")
	if last := path[strings.LastIndex(path, "/")+1:]; last != "webhook" {
		kind, err := ParseKind(last)
		if err != nil || kind == "" {
			return "", errors.New("webhooks are received at /webhook, /webhook/github, /webhook/gitlab, /webhook/gitea and /webhook/forgejo")
		}
		return kind, nil
	}
	for _, h := range []struct {
		name string
		kind Kind
	}{{"X-Forgejo-Event", Gitea}, {"X-Gitea-Event", Gitea}, {"X-Gitlab-Event", GitLab}, {"X-GitHub-Event", GitHub}} {
		if r.Header.Get(h.name) != "" {
			return h.kind, nil
		}
	}
	if r.Method != http.MethodPost {
		return "", nil
	}
	return "", errors.New("no header says which forge this is from; post to /webhook/github, /webhook/gitlab or /webhook/gitea")
}

// read reads the body, and the payload in it, which is the body itself unless that
// is a form. A status other than 0 is the answer.
func read(rw http.ResponseWriter, r *http.Request) (body, payload []byte, out reply) {
	// Servers and proxies that cannot set a deadline have one of their own.
	_ = http.NewResponseController(rw).SetReadDeadline(time.Now().Add(readTimeout))
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && media != "application/x-www-form-urlencoded" {
		return nil, nil, because(http.StatusUnsupportedMediaType, "the content type of the webhook is application/json or application/x-www-form-urlencoded")
	}
	tooLarge := because(http.StatusRequestEntityTooLarge, fmt.Sprintf("more than %d MiB; polling finds what this delivery told of", maxDelivery>>20))
	if r.ContentLength > maxDelivery {
		return nil, nil, tooLarge
	}
	var b bytes.Buffer
	b.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	if _, err := b.ReadFrom(http.MaxBytesReader(rw, r.Body, maxDelivery)); err != nil {
		var over *http.MaxBytesError
		if errors.As(err, &over) {
			return nil, nil, tooLarge
		}
		return nil, nil, because(http.StatusBadRequest, "the delivery ends too early")
	}
	if media == "application/json" {
		return b.Bytes(), b.Bytes(), reply{}
	}
	form, err := url.ParseQuery(b.String())
	if err != nil || !form.Has("payload") {
		return nil, nil, because(http.StatusBadRequest, "the form has no field payload")
	}
	return b.Bytes(), []byte(form.Get("payload")), reply{}
}

// deliver acts on a delivery that is known to come from the forge.
func (w *Webhook) deliver(kind Kind, h http.Header, content []byte) reply {
	event, push := eventName(kind, h)
	if event == "ping" {
		return w.ping(kind, content)
	}
	if !push {
		return because(http.StatusNoContent, fmt.Sprintf("event %.40q is of no interest, only pushes are", event))
	}
	p, err := decode(kind, bytes.NewReader(content))
	if err != nil {
		return because(http.StatusBadRequest, err.Error())
	}
	if name := p["event_name"]; event == "System Hook" && name != "push" && name != "tag_push" {
		return because(http.StatusNoContent, fmt.Sprintf("event %.40q is of no interest, only pushes are", name))
	}
	e, err := p.event(kind)
	if err != nil {
		return because(http.StatusBadRequest, err.Error())
	}
	if ours(e.Ref) {
		return because(http.StatusNoContent, "a ref that headway itself pushes")
	}
	woken := 0
	for _, s := range w.cfg.Sources() {
		if s.follows(e) {
			w.waker.pass(s.Name, e)
			woken++
		}
	}
	if woken == 0 {
		return because(http.StatusNoContent, fmt.Sprintf("no source follows %.200q of %.200q", e.Ref, e.Repository[0]))
	}
	w.cfg.Log.Debug("a webhook wakes sources", "forge", string(kind), "ref", e.Ref, "commit", e.Commit, "sources", woken)
	return because(http.StatusAccepted, "the sources that follow the ref look at it now")
}

// ping answers GitHub's first delivery with what a person who sets the webhook up
// wants to know.
func (w *Webhook) ping(kind Kind, content []byte) reply {
	p, err := decode(kind, bytes.NewReader(content))
	if err != nil {
		return because(http.StatusBadRequest, err.Error())
	}
	urls := p.repository(kind)
	if len(urls) == 0 { // the webhook of an organization
		return because(http.StatusOK, "pong")
	}
	for _, s := range w.cfg.Sources() {
		if s.in(urls) {
			return because(http.StatusOK, fmt.Sprintf("pong: source %q follows this repository", s.Name))
		}
	}
	return because(http.StatusOK, fmt.Sprintf("pong, but no source follows %.200q", urls[0]))
}

// eventName is what the forge calls the event, and whether it may be a push.
func eventName(kind Kind, h http.Header) (name string, push bool) {
	switch kind {
	case GitLab:
		name = h.Get("X-Gitlab-Event")
		return name, name == "Push Hook" || name == "Tag Push Hook" || name == "System Hook"
	case Gitea:
		if name = h.Get("X-Forgejo-Event"); name == "" {
			name = h.Get("X-Gitea-Event")
		}
	default:
		name = h.Get("X-GitHub-Event")
	}
	return name, name == "push"
}

func (s Source) follows(e Event) bool {
	ref := s.Ref
	if !strings.HasPrefix(ref, "refs/") {
		ref = "refs/heads/" + ref
	}
	return ref == e.Ref && s.in(e.Repository)
}

func (s Source) in(urls []string) bool {
	for _, u := range urls {
		if Same(s.URL, u) {
			return true
		}
	}
	return false
}

// refuse logs a delivery that was refused, but not each of a flood.
func (w *Webhook) refuse(r *http.Request, out reply) {
	now := time.Now()
	w.mu.Lock()
	if now.Before(w.scold) {
		w.silent++
		w.mu.Unlock()
		return
	}
	silent := w.silent
	w.scold, w.silent = now.Add(scoldPause), 0
	w.mu.Unlock()
	reason := cmp.Or(out.detail, out.why)
	w.cfg.Log.Warn("a webhook delivery was refused", "from", r.RemoteAddr, "status", out.status, "reason", reason, "others", silent)
}

// headerText makes text fit for a header.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
