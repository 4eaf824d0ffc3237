package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"google.golang.org/grpc"
)

// Window is how many bytes each end of a Duplex may be ahead of the other's reader.
const Window = 256 << 10

// maxWaiting bounds the messages that wait for a reader, of whatever size.
const maxWaiting = 1024

// Message is what goes over a Duplex, whichever way. Only one of its parts is set.
type Message struct {
	Data, Stderr []byte
	End          bool // no more data
	Ready        bool
	Exit         *Exit
	Error        string
	Size         *Size
	Taken        int64
}

// Wire is one end of a Stream.
type Wire interface {
	Send(Message) error
	Recv() (Message, error)
}

// Duplex is one end of a Stream that carries bytes both ways. Each end says how much
// its reader has taken, so that one that does not read holds up neither the other way
// nor the news that the Stream has ended, and nobody has to keep more than Window.
type Duplex struct {
	wire    Wire
	sending sync.Mutex // a Stream takes one message at a time
	sizes   chan *Size

	mu      sync.Mutex
	changed chan struct{} // closed at each change of what follows
	waiting []Message
	ahead   int   // bytes that came and that were not said to be taken
	untold  int   // of those, the ones that were taken
	credit  int   // bytes that may be sent
	over    error // why nothing more comes or goes
}

// NewDuplex returns the end of a Stream; Run moves it.
func NewDuplex(wire Wire) *Duplex {
	return &Duplex{wire: wire, credit: Window, changed: make(chan struct{}), sizes: make(chan *Size, 1)}
}

// Run takes in what the other end sends until the Stream ends.
func (d *Duplex) Run() error {
	for {
		m, err := d.wire.Recv()
		if err == nil {
			err = d.accept(m)
		}
		if err != nil {
			d.Close(err)
			return err
		}
	}
}

// Close ends this end: nothing more is sent, and what waits can still be read.
func (d *Duplex) Close(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = why
		d.tell()
	}
}

// tell wakes whoever waits. Duplex.mu is held.
func (d *Duplex) tell() {
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *Duplex) accept(m Message) error {
	if m.Size != nil { // only the newest counts
		select {
		case <-d.sizes:
		default:
		}
		d.sizes <- m.Size
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.tell()
	if m.Taken != 0 {
		if m.Taken < 0 || m.Taken > int64(Window-d.credit) {
			return fmt.Errorf("%d bytes were taken that were not sent", m.Taken)
		}
		d.credit += int(m.Taken)
		return nil
	}
	d.ahead += len(m.Data) + len(m.Stderr) + len(m.Error)
	if d.ahead > Window || len(d.waiting) >= maxWaiting {
		return errors.New("more was sent than is taken")
	}
	if last := len(d.waiting) - 1; last >= 0 {
		before := &d.waiting[last]
		switch {
		case len(before.Data) > 0 && len(m.Data) > 0:
			before.Data = append(before.Data, m.Data...)
			return nil
		case len(before.Stderr) > 0 && len(m.Stderr) > 0:
			before.Stderr = append(before.Stderr, m.Stderr...)
			return nil
		}
	}
	d.waiting = append(d.waiting, m)
	return nil
}

// Sizes are those of the terminal, the newest one if they come too fast.
func (d *Duplex) Sizes() <-chan *Size { return d.sizes }

// Next waits for what the other end has sent. Its error is what the other end says
// went wrong, or why the Stream ended (io.EOF: as it should); once stop is closed it
// is os.ErrDeadlineExceeded. Who has used the bytes of a message says so with Took.
func (d *Duplex) Next(stop <-chan struct{}) (Message, error) {
	for {
		d.mu.Lock()
		if len(d.waiting) > 0 {
			m := d.waiting[0]
			d.waiting = d.waiting[1:]
			d.mu.Unlock()
			if m.Error != "" {
				return m, errors.New(m.Error)
			}
			return m, nil
		}
		over, changed := d.over, d.changed
		d.mu.Unlock()
		if over != nil {
			return Message{}, over
		}
		select {
		case <-changed:
		case <-stop:
			return Message{}, os.ErrDeadlineExceeded
		}
	}
}

// Took lets the other end send as many bytes more. That it cannot be told means that
// the Stream has ended, which is for Next to say, after what still waits.
func (d *Duplex) Took(n int) {
	d.mu.Lock()
	d.untold += n
	told := d.untold
	if told < Window/4 || d.over != nil {
		d.mu.Unlock()
		return
	}
	d.untold = 0
	d.ahead -= told
	d.mu.Unlock()
	_ = d.Send(Message{Taken: int64(told)})
}

// Send sends a message without bytes.
func (d *Duplex) Send(m Message) error {
	d.sending.Lock()
	defer d.sending.Unlock()
	err := d.wire.Send(m)
	if errors.Is(err, io.EOF) { // how gRPC says that the Stream has ended
		return io.ErrClosedPipe
	}
	return err
}

// Write sends data; it waits while the other end's reader does.
func (d *Duplex) Write(p []byte) (int, error) { return d.WriteUntil(nil, p) }

// WriteUntil is Write that gives up once stop is closed, with os.ErrDeadlineExceeded.
func (d *Duplex) WriteUntil(stop <-chan struct{}, p []byte) (int, error) {
	return d.write(stop, p, func(part []byte) Message { return Message{Data: part} })
}

// Stderr sends what is written to it beside the data.
func (d *Duplex) Stderr() io.Writer { return stderr{d} }

type stderr struct{ d *Duplex }

func (w stderr) Write(p []byte) (int, error) {
	return w.d.write(nil, p, func(part []byte) Message { return Message{Stderr: part} })
}

func (d *Duplex) write(stop <-chan struct{}, p []byte, wrap func([]byte) Message) (int, error) {
	done := 0
	for done < len(p) {
		n, err := d.reserve(stop, len(p)-done)
		if err != nil {
			return done, err
		}
		if err := d.Send(wrap(p[done : done+n])); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// reserve waits until some bytes may be sent.
func (d *Duplex) reserve(stop <-chan struct{}, most int) (int, error) {
	for {
		d.mu.Lock()
		n, over, changed := min(most, d.credit, MaxChunk), d.over, d.changed
		if over == nil && n > 0 {
			d.credit -= n
		}
		d.mu.Unlock()
		switch {
		case errors.Is(over, io.EOF):
			return 0, io.ErrClosedPipe
		case over != nil:
			return 0, over
		case n > 0:
			return n, nil
		}
		select {
		case <-changed:
		case <-stop:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// AgentWire is the agent's end of a Stream.
func AgentWire(s grpc.BidiStreamingClient[StreamUp, StreamDown]) Wire { return agentWire{s} }

type agentWire struct {
	s grpc.BidiStreamingClient[StreamUp, StreamDown]
}

func (w agentWire) Send(m Message) error {
	return w.s.Send(&StreamUp{Data: m.Data, Stderr: m.Stderr, End: m.End, Ready: m.Ready, Exit: m.Exit, Error: m.Error, Taken: m.Taken})
}

func (w agentWire) Recv() (Message, error) {
	m, err := w.s.Recv()
	if err != nil {
		return Message{}, err
	}
	return Message{Data: m.Data, End: m.End, Size: m.Size, Taken: m.Taken}, nil
}

// ServerWire is the server's end of a Stream.
func ServerWire(s grpc.BidiStreamingServer[StreamUp, StreamDown]) Wire { return serverWire{s} }

type serverWire struct {
	s grpc.BidiStreamingServer[StreamUp, StreamDown]
}

func (w serverWire) Send(m Message) error {
	return w.s.Send(&StreamDown{Data: m.Data, End: m.End, Size: m.Size, Taken: m.Taken})
}

func (w serverWire) Recv() (Message, error) {
	m, err := w.s.Recv()
	if err != nil {
		return Message{}, err
	}
	return Message{Data: m.Data, Stderr: m.Stderr, End: m.End, Ready: m.Ready, Exit: m.Exit, Error: m.Error, Taken: m.Taken}, nil
}
