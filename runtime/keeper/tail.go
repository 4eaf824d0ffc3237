package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// tailOffset finds where the last `lines` lines of a log file begin, reading it
// backwards. found is how many there are, at most `lines`. A line that is cut
// into pieces counts once, by its last piece. In the newest file of a log the last record
// of a stream counts although it is a piece: its line has not ended, and may never end.
func tailOffset(f *os.File, lines int64, newest bool) (offset, found int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("inspect log: %w", err)
	}
	end := info.Size()
	if lines == 0 {
		return end, 0, nil
	}
	unended := map[string]bool{Stdout: newest, Stderr: newest}
	counts := func(record []byte) bool {
		r, err := DecodeRecord(bytes.TrimSuffix(record, []byte{'\n'}))
		if err != nil {
			return false
		}
		last := unended[r.Stream]
		unended[r.Stream] = false
		return !r.Partial || last
	}
	var (
		block = make([]byte, readSize)
		rest  []byte // the beginning of a record whose end was in the block after
		start = end  // where the oldest record looked at begins
	)
	for pos := end; pos > 0; {
		n := min(int64(len(block)), pos)
		pos -= n
		b := block[:n]
		if _, err := f.ReadAt(b, pos); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, fmt.Errorf("read log: %w", err)
		}
		b = append(b[:n:n], rest...)
		for {
			// A record ends at the end of b; it begins after the newline before it.
			i := bytes.LastIndexByte(b[:max(len(b)-1, 0)], '\n')
			if i < 0 {
				break
			}
			if counts(b[i+1:]) {
				if found == lines {
					return start, found, nil
				}
				found++
			}
			start = pos + int64(i) + 1
			b = b[:i+1]
		}
		rest = append([]byte(nil), b...)
	}
	if counts(rest) {
		if found == lines {
			return start, found, nil
		}
		found++
	}
	return 0, found, nil
}
