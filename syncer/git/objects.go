package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNotFound is the class of errors for a ref, commit or path that is not there.
var ErrNotFound = errors.New("not found")

// readIdle is how long the reading process outlives its last request.
const readIdle = 20 * time.Second

// Objects reads the objects of one repository through one long-lived
// `git cat-file --batch-command`: git itself knows about quarantines, new packs
// and packs that gc removed. It may be used by several goroutines; they take
// turns.
type Objects struct {
	program program
	cache   *treeCache

	turn   chan struct{} // holds one token while nobody reads
	reader *catFile      // owned by whoever has the turn
	closed bool          // owned by whoever has the turn
	idle   *time.Timer
}

func newObjects(p program, cache *treeCache) *Objects {
	o := &Objects{program: p, cache: cache, turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	o.idle = time.AfterFunc(readIdle, o.rest)
	o.idle.Stop()
	return o
}

// rest ends the reading process when nobody is reading.
func (o *Objects) rest() {
	select {
	case <-o.turn:
		o.drop()
		o.turn <- struct{}{}
	default: // somebody reads, and will set the timer again
	}
}

// Close ends the reading process. The Objects cannot be used after it.
func (o *Objects) Close() {
	<-o.turn
	o.closed = true
	o.idle.Stop()
	o.drop()
	o.turn <- struct{}{}
}

func (o *Objects) drop() {
	if o.reader != nil {
		o.reader.end()
		o.reader = nil
	}
}

// header is the first line of an answer of cat-file.
type header struct {
	hash string
	kind string // blob, tree, commit, tag; "" when the object is missing
	size int64
}

// parseHeader reads "<hash> <type> <size>" or "<name> missing".
func parseHeader(line string) (header, error) {
	line = strings.TrimSuffix(line, "\n")
	if strings.HasSuffix(line, " missing") || strings.HasSuffix(line, " ambiguous") {
		return header{}, nil
	}
	f := strings.Split(line, " ")
	if len(f) != 3 || !isHash(f[0]) {
		return header{}, fmt.Errorf("git cat-file answered %.100q", line)
	}
	switch f[1] {
	case "blob", "tree", "commit", "tag":
	default:
		return header{}, fmt.Errorf("git cat-file answered %.100q", line)
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || size < 0 {
		return header{}, fmt.Errorf("git cat-file answered %.100q", line)
	}
	return header{hash: f[0], kind: f[1], size: size}, nil
}

// isHash says whether s is a full object name.
func isHash(s string) bool {
	return len(s) == 40 && isHex(s)
}

// isHex says whether s has hexadecimal digits only, as git writes them.
func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// info asks what the named objects are.
func (o *Objects) info(ctx context.Context, names []string, each func(i int, h header) error) error {
	return o.ask(ctx, "info", names, func(i int, h header, _ io.Reader) error { return each(i, h) })
}

// contents reads the named objects; each must not keep body.
func (o *Objects) contents(ctx context.Context, names []string, each func(i int, h header, body io.Reader) error) error {
	return o.ask(ctx, "contents", names, each)
}

func (o *Objects) ask(ctx context.Context, verb string, names []string, each func(int, header, io.Reader) error) error {
	if len(names) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.turn:
	}
	defer func() {
		if o.reader != nil {
			o.idle.Reset(readIdle)
		}
		o.turn <- struct{}{}
	}()
	if o.closed {
		return fmt.Errorf("read %s: the repository is closed", o.program.dir)
	}
	for {
		old := o.reader != nil
		if !old {
			r, err := startCatFile(o.program)
			if err != nil {
				return err
			}
			o.reader = r
		}
		answered, err := o.reader.ask(ctx, verb, names, each)
		if err == nil {
			return nil
		}
		// The stream is somewhere in the middle of an answer, or the process is gone.
		o.drop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if answered || !old {
			return err
		}
		// A process that died since the last request: once more with a new one.
	}
}

// catFile is one running `git cat-file --batch-command`.
type catFile struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	errs  head
	ended sync.Once
}

func startCatFile(p program) (*catFile, error) {
	c := &catFile{errs: head{max: 4 << 10}}
	c.cmd = p.command(p.path, "cat-file", "--batch-command", "--buffer")
	c.cmd.Stderr = &c.errs
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	c.in, c.out = in, bufio.NewReaderSize(out, 64<<10)
	return c, nil
}

// end stops the process; it only reads, so it may be killed.
func (c *catFile) end() {
	c.ended.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.in.Close()
		_ = c.cmd.Wait() // killed: says nothing that we do not know
	})
}

// ask sends one command per name and gives the answers to each, in order.
// answered says whether each was called.
func (c *catFile) ask(ctx context.Context, verb string, names []string, each func(int, header, io.Reader) error) (answered bool, err error) {
	release := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer release()

	// Written beside the reading: both pipes are finite.
	sent := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(c.in, 32<<10)
		for _, name := range names {
			fmt.Fprintf(w, "%s %s\n", verb, name)
		}
		fmt.Fprintf(w, "flush\n")
		sent <- w.Flush()
	}()
	for i := range names {
		line, err := c.out.ReadSlice('\n')
		if err != nil {
			return answered, c.broken(err)
		}
		h, err := parseHeader(string(line))
		if err != nil {
			return answered, err
		}
		var body *io.LimitedReader
		if verb == "contents" && h.kind != "" {
			body = &io.LimitedReader{R: c.out, N: h.size}
		}
		answered = true
		if err := each(i, h, body); err != nil {
			return answered, err
		}
		if body == nil {
			continue
		}
		if n, err := io.Copy(io.Discard, body); err != nil || body.N > 0 {
			return answered, c.broken(fmt.Errorf("skip %d bytes of %s: %w", n, h.hash, errors.Join(err, io.ErrUnexpectedEOF)))
		}
		if b, err := c.out.ReadByte(); err != nil || b != '\n' {
			return answered, c.broken(fmt.Errorf("end of %s: %w", h.hash, errors.Join(err, io.ErrUnexpectedEOF)))
		}
	}
	if err := <-sent; err != nil {
		return answered, c.broken(err)
	}
	return answered, nil
}

// broken ends the process and returns err with what it said before it died.
func (c *catFile) broken(err error) error {
	c.end()
	return fmt.Errorf("git cat-file: %w%s", err, c.errs.suffix())
}
