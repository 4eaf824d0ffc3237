package image

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// stallTime is how long a registry may send nothing of what it was asked for.
	stallTime = time.Minute
	// A pull that others wait for is ended when it got less than slowest bytes per
	// second over slowTime. What came is kept by the engine, and the next try goes on
	// from there, so that it ends, too.
	slowTime = time.Minute
	slowest  = 10 << 10
	lookTime = 5 * time.Second // between two looks at a pull

	maxRetryAfter = time.Hour // what a registry may ask for
)

// Progress is what one pull has fetched so far. Engines tell it through Transport.
// Safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	open  int       // requests that are not answered to their end
	last  time.Time // when something last came, or was asked for after a pause
	bytes int64
	mark  int64     // bytes at the time of since
	since time.Time // when the rate began to count; zero: nothing is asked for
	after time.Duration
}

// Bytes that came.
func (p *Progress) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

func (p *Progress) asked(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open++; p.open == 1 {
		p.last, p.since, p.mark = now, now, p.bytes
	}
}

func (p *Progress) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open--; p.open == 0 {
		p.since = time.Time{}
	}
}

func (p *Progress) fetched(n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(n)
	p.last = now
}

func (p *Progress) retryAfter() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after
}

// look judges the pull, and begins a new measure of its rate when the last is over.
func (p *Progress) look(host string, wanted bool, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == 0 {
		return nil
	}
	err := judge(host, p.bytes-p.mark, now.Sub(p.last), now.Sub(p.since), wanted)
	if now.Sub(p.since) >= slowTime {
		p.since, p.mark = now, p.bytes
	}
	return err
}

// judge says why a pull is given up: recent bytes came in the time over, the last of
// them idle ago. Others want its place.
func judge(host string, recent int64, idle, over time.Duration, wanted bool) error {
	switch {
	case idle >= stallTime:
		return fmt.Errorf("%s sent nothing for %s: given up; what came is kept for the next try", host, idle.Round(time.Second))
	case wanted && over >= slowTime && recent < int64(over.Seconds()*slowest):
		return fmt.Errorf("%s sent %d bytes in %s and other images wait: given up; what came is kept for the next try", host, recent, over.Round(time.Second))
	}
	return nil
}

// BusyError is a registry that asks to be left alone.
type BusyError struct {
	Host   string
	Status string
	After  time.Duration // 0: it does not say for how long
}

func (e *BusyError) Error() string {
	if e.After == 0 {
		return fmt.Sprintf("%s asks for fewer requests (%s)", e.Host, e.Status)
	}
	return fmt.Sprintf("%s asks for fewer requests (%s): it is asked again in %s", e.Host, e.Status, e.After)
}

// Transport tells p of what goes over base. It does not repeat what a registry refuses
// because it is asked too much: that is a *BusyError.
func (p *Progress) Transport(base http.RoundTripper) http.RoundTripper {
	if t, ok := base.(*transport); ok && t.progress == p {
		return base
	}
	return &transport{base: base, progress: p}
}

type transport struct {
	base     http.RoundTripper
	progress *Progress
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p := t.progress
	p.asked(time.Now())
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		p.answered()
		return nil, err
	}
	after := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && after > 0 {
		p.answered()
		p.mu.Lock()
		p.after = max(p.after, after)
		p.mu.Unlock()
		busy := &BusyError{Host: req.URL.Host, Status: resp.Status, After: after}
		return nil, errors.Join(busy, resp.Body.Close())
	}
	p.fetched(0, time.Now())
	if resp.Body == http.NoBody {
		p.answered()
		return resp, nil
	}
	resp.Body = &body{ReadCloser: resp.Body, progress: p}
	return resp, nil
}

// parseRetryAfter reads the header, in seconds or as a date.
func parseRetryAfter(text string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// body counts what is read of an answer.
type body struct {
	io.ReadCloser
	progress *Progress
	once     sync.Once
}

func (b *body) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if n > 0 {
		b.progress.fetched(n, time.Now())
	}
	if err != nil {
		b.once.Do(b.progress.answered)
	}
	return n, err
}

func (b *body) Close() error {
	b.once.Do(b.progress.answered)
	return b.ReadCloser.Close()
}
