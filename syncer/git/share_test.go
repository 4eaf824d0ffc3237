package git

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// gate stands before a forge, counts the fetches and holds one back.
type gate struct {
	url     string // with the token
	fetches atomic.Int64
	packs   atomic.Int64
	arrived chan struct{}
	hold    atomic.Pointer[chan struct{}] // a fetch waits until it is closed
}

func newGate(t *testing.T, h *host) *gate {
	t.Helper()
	target, err := url.Parse(h.web.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{arrived: make(chan struct{}, 100)}
	proxy := httputil.NewSingleHostReverseProxy(target)
	pass := func(r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/info/refs") {
			g.packs.Add(1)
			return
		}
		g.fetches.Add(1)
		g.arrived <- struct{}{}
		if hold := g.hold.Load(); hold != nil {
			<-*hold
		}
	}
	// What the forge answers is what it had before the hold.
	proxy.ModifyResponse = func(r *http.Response) error { pass(r.Request); return nil }
	proxy.ErrorHandler = func(w http.ResponseWriter, r *http.Request, _ error) {
		pass(r)
		w.WriteHeader(http.StatusBadGateway)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Git answers before it has read the end of the request; without this the
		// proxy then drops the rest of the request, and the connection with it.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	g.url = strings.Replace(web.URL, "http://", "http://x:"+token+"@", 1) + "/main.git"
	return g
}

// waitAsked returns when n calls of Fetch have said what they want.
func waitAsked(f *Forge, n int) {
	for asked := 0; asked < n; runtime.Gosched() {
		f.mu.Lock()
		asked = f.asked
		f.mu.Unlock()
	}
}

func TestForgeSharedFetch(t *testing.T) {
	ctx := context.Background()
	h := startHost(t, nil)
	g := newGate(t, h)
	w := newWork(t)
	var refs, want []string
	for i := range 8 {
		refs = append(refs, fmt.Sprintf("refs/heads/source-%d", i))
		want = append(want, w.commit("a", fmt.Sprint(i)))
		w.git("push", "-q", h.url, "HEAD:"+refs[i])
	}
	f := openForge(t, ForgeConfig{URL: g.url})
	hold := make(chan struct{})
	g.hold.Store(&hold)
	var callers sync.WaitGroup
	fetch := func(ref string, want *string) {
		callers.Go(func() {
			if got, err := f.Fetch(ctx, ref, 0); err != nil || got != *want {
				t.Errorf("%s: %s, want %s: %v", ref, got, *want, err)
			}
		})
	}
	old := want[0]
	fetch(refs[0], &old)
	receive(t, g.arrived, "fetch")
	for i := range 8 {
		fetch(refs[i], &want[i])
		fetch(refs[i], &want[i])
	}
	callers.Go(func() {
		_, err := f.Fetch(ctx, "none", 0)
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "fetch refs/heads/none of ") {
			t.Errorf("a ref that is not there: %v", err)
		}
	})
	waitAsked(f, 18)
	// Pushed after the first fetch began, before those who wait asked for an answer.
	want[0] = w.commit("a", "late")
	w.git("push", "-q", h.url, "HEAD:"+refs[0])
	g.hold.Store(nil)
	close(hold)
	callers.Wait()
	if got := g.fetches.Load(); got != 2 {
		t.Errorf("%d fetches, want the first and one for all who waited", got)
	}
	if got := g.packs.Load(); got != 2 {
		t.Errorf("%d packs", got)
	}

	// A recent one serves who says so, also for a ref that somebody else asked for.
	w.git("push", "-q", h.url, "HEAD:"+refs[1])
	if got, err := f.Fetch(ctx, refs[1], time.Hour); err != nil || got != want[1] || g.fetches.Load() != 2 {
		t.Errorf("%s: %v after %d fetches", got, err, g.fetches.Load())
	}
	if got, err := f.Fetch(ctx, refs[2], 0); err != nil || got != want[2] || g.fetches.Load() != 3 {
		t.Errorf("%s: %v after %d fetches", got, err, g.fetches.Load())
	}
	if got, err := f.Fetch(ctx, refs[1], time.Hour); err != nil || got != want[0] || g.fetches.Load() != 3 {
		t.Errorf("%s, want %s: %v after %d fetches", got, want[0], err, g.fetches.Load())
	}
	if _, err := f.Fetch(ctx, "refs/heads/unknown-yet", time.Hour); !errors.Is(err, ErrNotFound) || g.fetches.Load() != 4 {
		t.Errorf("%v after %d fetches", err, g.fetches.Load())
	}
}

// Who gives up takes nobody with him, and an error is everybody's.
func TestForgeSharedFetchFails(t *testing.T) {
	h := startHost(t, nil)
	g := newGate(t, h)
	w := newWork(t)
	head := w.commit("a", "1")
	w.git("push", "-q", h.url, "main")
	f := openForge(t, ForgeConfig{URL: g.url})
	hold := make(chan struct{})
	g.hold.Store(&hold)
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() { _, err := f.Fetch(ctx, "main", 0); first <- err }()
	receive(t, g.arrived, "fetch")
	second := make(chan error, 1)
	go func() {
		got, err := f.Fetch(context.Background(), "main", 0)
		if err == nil && got != head {
			err = fmt.Errorf("fetched %s", got)
		}
		second <- err
	}()
	gone := make(chan error, 1)
	waiting, leave := context.WithCancel(context.Background())
	go func() { _, err := f.Fetch(waiting, "main", 0); gone <- err }()
	waitAsked(f, 3)
	leave()
	if err := receive(t, gone, "end of who left while waiting"); !errors.Is(err, context.Canceled) {
		t.Errorf("left: %v", err)
	}
	cancel()
	if err := receive(t, first, "end of the first"); !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	receive(t, g.arrived, "fetch of the second")
	g.hold.Store(nil)
	close(hold)
	if err := receive(t, second, "end of the second"); err != nil {
		t.Errorf("the second: %v", err)
	}

	h.web.Close() // the proxy answers with status 502
	again := make(chan struct{})
	g.hold.Store(&again)
	before := g.fetches.Load()
	errs := make(chan error, 5)
	for range 5 {
		go func() { _, err := f.Fetch(context.Background(), "main", 0); errs <- err }()
	}
	receive(t, g.arrived, "fetch")
	waitAsked(f, 8)
	g.hold.Store(nil)
	close(again)
	for range 5 {
		if err := receive(t, errs, "error"); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	}
	if got := g.fetches.Load() - before; got > 2 {
		t.Errorf("%d fetches", got)
	}
	// What failed is not recent, whatever came before it.
	if _, err := f.Fetch(context.Background(), "main", time.Hour); err == nil {
		t.Error("an answer after a failure")
	}
}

// A branch a and later a branch a/b, and a clone of an earlier release.
func TestForgeRefsInTheWay(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	first := w.commit("a", "1")
	w.git("branch", "a")
	f := openForge(t, ForgeConfig{URL: w.dir})
	if got, err := f.Fetch(ctx, "a", 0); err != nil || got != first {
		t.Fatalf("%s %v", got, err)
	}
	w.git("branch", "-D", "a")
	w.git("branch", "a/b")
	if got, err := f.Fetch(ctx, "a/b", 0); err != nil || got != first {
		t.Fatalf("%s %v", got, err)
	}
	if _, err := f.Fetch(ctx, "a", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("the branch that went: %v", err)
	}
	dir := f.config.Dir
	f.Close()
	old := &work{t: t, dir: dir}
	old.git("update-ref", "-d", "refs/headway/main/tips/heads/a/b")
	old.git("update-ref", "refs/headway/main/fetched", first)
	f = openForge(t, ForgeConfig{URL: w.dir, Dir: dir})
	if refs, err := f.refs(ctx, "refs/"); err != nil || len(refs) != 0 {
		t.Errorf("refs %v: %v", refs, err)
	}
	if got, err := f.Fetch(ctx, "main", 0); err != nil || got != first {
		t.Errorf("%s %v", got, err)
	}
	if packs := old.git("count-objects", "-v"); !strings.Contains(packs, "packs: 1\n") {
		t.Errorf("what was there was fetched again:\n%s", packs)
	}
}
