package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
)

// leaving is a response that turns into a connection. Once the connection ends, gone
// is called: whoever speaks over it reads all the time, but tells nobody. And once ctx
// ends, the connection does: no server waits for one that was taken over.
type leaving struct {
	http.ResponseWriter
	ctx  context.Context
	gone context.CancelFunc
}

// Hijack implements http.Hijacker.
func (l leaving) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w := &watched{Conn: conn, from: io.Reader(conn), gone: l.gone}
	if buffered != nil && buffered.Reader.Buffered() > 0 {
		w.from = buffered.Reader
	}
	w.stop = context.AfterFunc(l.ctx, func() { _ = conn.Close() }) // whoever reads it hears that
	return w, bufio.NewReadWriter(bufio.NewReader(w), bufio.NewWriter(w)), nil
}

// watched is a connection that tells when it has ended.
type watched struct {
	net.Conn
	from io.Reader
	gone context.CancelFunc
	stop func() bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	if err != nil {
		w.gone()
	}
	if errors.Is(err, net.ErrClosed) { // by us, so that it is no error to log
		err = io.EOF
	}
	return n, err
}

func (w *watched) Close() error {
	w.stop()
	w.gone()
	return w.Conn.Close()
}

// Flush implements http.Flusher.
func (l leaving) Flush() { _ = http.NewResponseController(l.ResponseWriter).Flush() } // an http.Flusher has no way to say that it cannot
