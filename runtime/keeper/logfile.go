package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Rotation bounds what one container may keep on disk: Files files, at least two,
// of Size bytes.
type Rotation struct {
	Size  int64
	Files int
}

// DefaultRotation is Kubernetes' default.
func DefaultRotation() Rotation { return Rotation{Size: 10 << 20, Files: 5} }

// logFile is the file both streams of a container append to.
type logFile struct {
	path     string
	rotation Rotation

	mu   sync.Mutex
	file *os.File
	size int64
	lost int64 // bytes of output that could not be written since the last success
}

// rotated names the n-th oldest file of a log: 0 is the current one.
func rotated(path string, n int) string {
	if n == 0 {
		return path
	}
	return path + "." + strconv.Itoa(n)
}

func openLog(path string, rotation Rotation) (*logFile, error) {
	l := &logFile{path: path, rotation: rotation}
	return l, l.ready()
}

// ready opens the current file. Not before no other keeper writes it: what that has
// rotated away since would be gone on with, and a record that it is at would look cut.
func (l *logFile) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o750); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	return l.open()
}

// open opens the current file for appending and closes a record that a power
// loss cut short, so that the next one starts on its own line.
func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	l.file, l.size = f, info.Size()
	if l.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, l.size-1); err != nil {
		return errors.Join(fmt.Errorf("read end of log: %w", err), f.Close())
	}
	if last[0] != '\n' {
		n, err := f.Write([]byte{'\n'})
		l.size += int64(n)
		if err != nil {
			return errors.Join(fmt.Errorf("end cut record of log: %w", err), f.Close())
		}
	}
	return nil
}

// write appends whole records. A failure (a full disk) loses these records and
// not the container: the loss is counted and written down with the next success.
func (l *logFile) write(records []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.append(records)
	if err != nil {
		l.lost += int64(len(records))
	}
	return err
}

func (l *logFile) append(records []byte) error {
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+int64(len(records)) > l.rotation.Size {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.lost > 0 {
		note := appendRecord(nil, recordPrefix(records), 'F',
			fmt.Appendf(nil, "[headway: %d bytes of this log could not be written]", l.lost))
		n, err := l.file.Write(note)
		l.size += int64(n)
		if err != nil {
			return l.undo(int64(n), err)
		}
		l.lost = 0
	}
	n, err := l.file.Write(records)
	l.size += int64(n)
	if err != nil {
		return l.undo(int64(n), err)
	}
	return nil
}

// undo takes back the part of a record that a full disk let through, so that
// what follows starts on its own line.
func (l *logFile) undo(n int64, cause error) error {
	cause = fmt.Errorf("write log: %w", cause)
	if n == 0 {
		return cause
	}
	if err := l.file.Truncate(l.size - n); err != nil {
		return errors.Join(cause, fmt.Errorf("take back half a record: %w", err))
	}
	l.size -= n
	return cause
}

// recordPrefix returns time and stream of the first record, with the space after.
func recordPrefix(records []byte) []byte {
	spaces := 0
	for i, c := range records {
		if c == ' ' {
			if spaces++; spaces == 2 {
				return records[:i+1]
			}
		}
	}
	return nil
}

// rotate calls x.1's file x.2, x's file x.1, and starts a new x. The oldest goes.
func (l *logFile) rotate() error {
	err := l.file.Close()
	l.file, l.size = nil, 0
	if err != nil {
		return fmt.Errorf("close full log: %w", err)
	}
	for n := max(l.rotation.Files, 2) - 1; n > 0; n-- {
		if err := l.shift(n); err != nil {
			return fmt.Errorf("rotate log: %w", err)
		}
	}
	if err := l.renew(); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return l.open()
}

// shift gives the file one newer than the n-th its name too. It keeps its own
// until that is taken over, so there is no gap between the names, also after a
// crash: readers, who go from the newest name to the first that is missing, would
// take it for the end.
func (l *logFile) shift(n int) error {
	if err := l.clear(); err != nil {
		return err
	}
	if err := os.Link(rotated(l.path, n-1), l.spare()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.Rename(l.spare(), rotated(l.path, n))
}

// renew puts an empty file in the current one's place.
func (l *logFile) renew() error {
	if err := l.clear(); err != nil {
		return err
	}
	f, err := os.OpenFile(l.spare(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(l.spare(), l.path)
}

// spare is the name that a file has for a moment before it takes over another.
func (l *logFile) spare() string { return l.path + ".new" }

// clear removes a spare name that is left: by a crash, or because the rename was
// of a file to another name of itself, which does nothing.
func (l *logFile) clear() error {
	if err := os.Remove(l.spare()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
