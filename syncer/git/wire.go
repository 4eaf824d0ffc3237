package git

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// The protocol between a hook (runtime/keeper, hook.go) and us, over a unix
// socket. A frame is one byte of type, four bytes of length (big endian), and
// that many bytes. The hook sends one 'H' with the hello in JSON and then only
// listens; we send any number of 'P' with text for the person who pushes, and
// last 'A' (accept, exit 0) or 'R' (refuse, exit 1). Either side that sees the
// connection end knows that the other is gone. Both sides are of one release: a
// hello of another version is refused.
const (
	hookVersion = 2 // 2 brings the push options

	frameHello  = 'H'
	framePrint  = 'P'
	frameAccept = 'A'
	frameRefuse = 'R'

	maxHello = 2 << 20
	maxPrint = 32 << 10

	maxOptions = 20
	maxOption  = 1000 // bytes of one push option
)

// hello is what a hook says of itself.
type hello struct {
	Version    int      `json:"version"`
	Hook       string   `json:"hook"`       // pre-receive or post-receive
	Push       string   `json:"push"`       // id that the gateway gave to the push
	Quarantine string   `json:"quarantine"` // GIT_QUARANTINE_PATH; "" in post-receive
	Input      string   `json:"input"`      // what git wrote to the hook's stdin
	Options    []string `json:"options"`    // of git push -o, in their order
}

func readHello(r io.Reader) (hello, error) {
	var h hello
	kind, body, err := readFrame(r, maxHello)
	if err != nil {
		return h, err
	}
	if kind != frameHello {
		return h, fmt.Errorf("a hook began with a frame of type %q", kind)
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("the hello of a hook: %w", err)
	}
	if h.Version != hookVersion {
		return h, fmt.Errorf("the hook speaks version %d of its protocol, the server version %d; push again, and restart the server if that does not help", h.Version, hookVersion)
	}
	if len(h.Options) > maxOptions {
		return h, fmt.Errorf("%d push options, at most %d are taken", len(h.Options), maxOptions)
	}
	for _, o := range h.Options {
		if len(o) > maxOption {
			return h, fmt.Errorf("a push option of %d bytes, at most %d are taken", len(o), maxOption)
		}
	}
	return h, nil
}

// optionDryRun is the push option that asks for the verdict and the plan only.
const optionDryRun = "dry-run"

// dryRun says whether the options ask for a dry run. Any other is an error: what
// was asked for and is not done must not look as if it were.
func dryRun(options []string) (dry bool, err error) {
	for _, o := range options {
		if o != optionDryRun {
			return false, fmt.Errorf("unknown push option %.100q; known is: %s", o, optionDryRun)
		}
		dry = true
	}
	return dry, nil
}

func readFrame(r io.Reader, limit uint32) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > limit {
		return 0, nil, fmt.Errorf("a frame of %d bytes, at most %d are taken", n, limit)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

func writeFrame(w io.Writer, kind byte, body []byte) error {
	frame := make([]byte, 5, 5+len(body))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(body)))
	_, err := w.Write(append(frame, body...))
	return err
}

// Update moves one ref from Old to New; an empty hash means that it is absent.
type Update struct{ Ref, Old, New string }

// maxUpdates bounds the refs of one push: they move in one transaction.
const maxUpdates = 50

// parseUpdates reads the lines "<old> <new> <ref>" that git gives to a hook.
func parseUpdates(input string) ([]Update, error) {
	var updates []Update
	seen := map[string]bool{}
	for line := range strings.Lines(input) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(f) != 3 || !isHash(f[0]) || !isHash(f[1]) {
			return nil, fmt.Errorf("git gave the hook the line %.200q", line)
		}
		u := Update{Ref: f[2], Old: f[0], New: f[1]}
		if err := checkRef(u.Ref); err != nil {
			return nil, err
		}
		if seen[u.Ref] {
			return nil, fmt.Errorf("ref %s is pushed twice", u.Ref)
		}
		seen[u.Ref] = true
		if u.Old == noHash {
			u.Old = ""
		}
		if u.New == noHash {
			u.New = ""
		}
		if len(updates) == maxUpdates {
			return nil, fmt.Errorf("more than %d refs in one push; push fewer at a time", maxUpdates)
		}
		updates = append(updates, u)
	}
	return updates, nil
}

// printer sends text to the person who pushes. It never fails its caller: a
// client that has left changes nothing.
type printer struct {
	redact redactor
	mu     sync.Mutex
	w      io.Writer
}

func (p *printer) Write(text []byte) (int, error) {
	clean := []byte(printable(p.redact.text(string(text))))
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(clean) > 0 {
		n := min(len(clean), maxPrint)
		if err := writeFrame(p.w, framePrint, clean[:n]); err != nil {
			break // the hook is gone; the caller learns it from its context
		}
		clean = clean[n:]
	}
	return len(text), nil
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *printer) end(kind byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = writeFrame(p.w, kind, nil) // a hook that is gone needs no answer
}
