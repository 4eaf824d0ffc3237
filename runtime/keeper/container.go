package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// output is one open container: two streams into one log.
type output struct {
	Container
	log     *logFile
	streams []*stream
	taps    taps
}

// openOutput opens a container's FIFOs without reading yet. Its log is not ready.
func openOutput(c Container, rotation Rotation, b *buffers, now func() time.Time, l *slog.Logger) (*output, error) {
	file := &logFile{path: c.Log, rotation: rotation}
	o := &output{Container: c, log: file}
	for _, end := range []struct{ name, path string }{{Stdout, c.Stdout}, {Stderr, c.Stderr}} {
		if end.path == "" {
			continue
		}
		f, err := openFIFO(end.path)
		if err != nil {
			return nil, errors.Join(err, o.release())
		}
		o.streams = append(o.streams, &stream{
			name: end.name, file: f, log: file, taps: &o.taps, buffers: b, now: now,
			slog: l.With("container", c.ID), done: make(chan struct{}),
		})
	}
	return o, nil
}

func (o *output) start() {
	for _, s := range o.streams {
		go s.run()
	}
}

// finish stops reading, takes what is left when the container is over, and
// writes the lines that have not ended.
func (o *output) finish(over bool) error {
	var errs []error
	for _, s := range o.streams {
		errs = append(errs, s.stop())
		if over {
			errs = append(errs, s.drain())
		}
		s.flush()
	}
	o.taps.close(over)
	errs = append(errs, o.release())
	return errors.Join(errs...)
}

// release closes the files.
func (o *output) release() error {
	var errs []error
	for _, s := range o.streams {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(append(errs, o.log.close())...)
}

// records are the open containers as files, one each, so that a keeper that was
// killed goes on where it was.
type records struct{ dir string }

func (r records) path(id string) string { return filepath.Join(r.dir, id+".json") }

func (r records) save(c Container) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode record of %s: %w", c.ID, err)
	}
	tmp := filepath.Join(r.dir, "."+c.ID+".tmp")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write record of %s: %w", c.ID, err)
	}
	if err := os.Rename(tmp, r.path(c.ID)); err != nil {
		return fmt.Errorf("write record of %s: %w", c.ID, err)
	}
	return nil
}

func (r records) remove(id string) error {
	if err := os.Remove(r.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record of %s: %w", id, err)
	}
	return nil
}

// load reads all records, sorted. A damaged one (a power loss) is reported and
// left out: its container died with the machine.
func (r records) load(l *slog.Logger) ([]Container, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var out []Container
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(id, ".") {
			continue
		}
		c, err := r.read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile by the keeper we are replacing
		}
		if err != nil {
			l.Warn("record of a container dropped", "container", id, "err", err)
			if err := r.remove(id); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}

func (r records) read(id string) (Container, error) {
	var c Container
	data, err := os.ReadFile(r.path(id))
	if err != nil {
		return c, err
	}
	if err := decode(data, &c); err != nil {
		return c, err
	}
	if c.ID != id {
		return c, fmt.Errorf("record is of %q", c.ID)
	}
	return c, c.validate()
}

// removeFIFOs deletes what openFIFO made.
func (c Container) removeFIFOs() error {
	var errs []error
	for _, p := range []string{c.Stdout, c.Stderr} {
		if p == "" {
			continue
		}
		if err := syscall.Unlink(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove fifo %s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}
