package keeper

import (
	"bytes"
	"errors"
	"time"
)

// maxLine is where a longer line is cut into pieces, as Kubernetes' runtimes do.
const maxLine = 16 << 10

// Stream names of a record.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Record is one line of a log file: `<time> <stream> <F|P> <text>`.
type Record struct {
	Time    time.Time
	Stream  string
	Partial bool   // the line goes on in the stream's next record
	Text    []byte // without the newline; points into the decoded line
}

var errRecord = errors.New("not a log record")

// DecodeRecord reads one line of a log file, without its newline.
func DecodeRecord(line []byte) (Record, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Record{}, errRecord
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Record{}, errRecord
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return Record{}, errRecord
	}
	r := Record{Time: t}
	switch string(stream) {
	case Stdout:
		r.Stream = Stdout
	case Stderr:
		r.Stream = Stderr
	default:
		return Record{}, errRecord
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return Record{}, errRecord
	}
	// Tags are colon-separated; the first says whether the line is whole, and
	// later ones are for versions to come.
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	switch string(tag) {
	case "F":
	case "P":
		r.Partial = true
	default:
		return Record{}, errRecord
	}
	r.Text = text
	return r, nil
}

// appendRecord appends a record with its newline to b. The prefix is what all
// records of one read share: time and stream.
func appendRecord(b, prefix []byte, tag byte, parts ...[]byte) []byte {
	b = append(b, prefix...)
	b = append(b, tag, ' ')
	for _, p := range parts {
		b = append(b, p...)
	}
	return append(b, '\n')
}

// stampLayout is RFC3339Nano with all nine digits, so that records of one file
// have prefixes of one length and sort as text.
const stampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// appendPrefix appends time and stream as they begin a record.
func appendPrefix(b []byte, t time.Time, stream string) []byte {
	b = t.UTC().AppendFormat(b, stampLayout)
	b = append(b, ' ')
	b = append(b, stream...)
	return append(b, ' ')
}
