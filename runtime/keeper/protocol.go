package keeper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Protocol is the version spoken on the socket. A keeper serves clients of its
// own and of the previous version, because an upgrade replaces the client first.
const Protocol = 1

// Bounds of one line on the socket: what a client sends, what a keeper answers
// (the longest is the list of all ids).
const (
	maxRequest = 16 << 10
	maxReply   = 1 << 20
)

// The operations a client may ask for.
const (
	opHello  = "hello"
	opPing   = "ping"
	opOpen   = "open"
	opClose  = "close"
	opList   = "list"
	opRetire = "retire"
	opHold   = "hold"  // answered, then the sockets come and are answered
	opHeld   = "held"  // answered, then asked for with a byte, and the sockets go
	opTap    = "tap"   // answered, then what the container prints comes in frames
	opWatch  = "watch" // answered like hello; then the connection lasts as long as the keeper
)

// Container names one container's output: where it comes from, where it goes.
type Container struct {
	ID     string `json:"id"`
	Stdout string `json:"stdout"`           // FIFO, made if absent
	Stderr string `json:"stderr,omitempty"` // FIFO; empty with a terminal
	Log    string `json:"log"`              // file in the CRI format
}

// request is one line from a client.
type request struct {
	Version   int        `json:"version"`
	Op        string     `json:"op"`
	ID        string     `json:"id,omitempty"`
	Container *Container `json:"container,omitempty"`
}

// reply is the one line that answers it.
type reply struct {
	Version int      `json:"version"`
	Build   string   `json:"build,omitempty"`
	PID     int      `json:"pid,omitempty"`
	IDs     []string `json:"ids,omitempty"`
	Error   string   `json:"error,omitempty"`
}

var errTooLong = errors.New("message too long")

// readMessage reads one line of JSON into v, no longer than r's buffer and
// without unknown fields.
func readMessage(r *bufio.Reader, v any) error {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return errTooLong
	case errors.Is(err, io.EOF) && len(line) > 0:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	return decode(line, v)
}

func decode(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	if d.More() {
		return errors.New("decode message: more than one value on a line")
	}
	return nil
}

func writeMessage(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(line) >= maxReply {
		return errTooLong
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// validate refuses what could make the keeper write outside of what it is for.
func (c *Container) validate() error {
	if err := validID(c.ID); err != nil {
		return err
	}
	for _, p := range []string{c.Stdout, c.Log} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("container %s: %q is not a clean absolute path", c.ID, p)
		}
	}
	if c.Stderr != "" && (!filepath.IsAbs(c.Stderr) || filepath.Clean(c.Stderr) != c.Stderr) {
		return fmt.Errorf("container %s: %q is not a clean absolute path", c.ID, c.Stderr)
	}
	if c.Stderr == c.Stdout || c.Log == c.Stdout || c.Log == c.Stderr {
		return fmt.Errorf("container %s: stdout, stderr and log must differ", c.ID)
	}
	return nil
}

// validID allows what containerd allows as an id, which is also a safe file name.
func validID(id string) error {
	if id == "" || len(id) > 76 {
		return fmt.Errorf("container id %q must have 1 to 76 characters", id)
	}
	for i, c := range []byte(id) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_' && c != '.') {
			return fmt.Errorf("container id %q has a character that is not allowed", id)
		}
	}
	return nil
}
