package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"
	"time"
)

// Config says how a keeper runs.
type Config struct {
	Dir      string // state, socket and lock; private to root
	Build    string // identifies the binary; another build takes over
	Rotation Rotation
	Now      func() time.Time
	Ready    func() // called once, when clients are served
	Log      *slog.Logger
}

const (
	maxClients  = 64
	idleTimeout = time.Minute
	// takeoverTimeout bounds how long the old keeper may need to finish the
	// reads it is in and to let go of the lock.
	takeoverTimeout = 20 * time.Second
)

type server struct {
	cfg     Config
	records records
	buffers *buffers
	retire  context.CancelFunc

	mu      sync.Mutex
	open    map[string]*output
	tapped  int        // clients that are attached
	held    []*os.File // the agent's sockets
	retired bool
}

// Run is the keeper: it takes over from one that runs, if any, opens what is on
// record and serves until ctx ends or a newer keeper takes over.
func Run(ctx context.Context, cfg Config) error {
	dir := filepath.Join(cfg.Dir, "containers")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make keeper directory: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{cfg: cfg, records: records{dir}, buffers: newBuffers(), retire: cancel, open: map[string]*output{}}

	// Before the old keeper lets go, so that there is no moment without a reader
	// that holds the FIFOs.
	if err := s.openAll(); err != nil {
		return err
	}
	lock, err := s.acquire(ctx)
	if err != nil {
		return errors.Join(err, s.releaseAll())
	}
	if err := s.openAll(); err != nil { // what was opened or closed meanwhile
		return errors.Join(err, s.releaseAll(), lock.Close())
	}
	listener, err := listen(cfg.Dir)
	if err != nil {
		return errors.Join(err, s.releaseAll(), lock.Close())
	}
	for _, o := range s.open {
		if err := o.log.ready(); err != nil { // it is tried again with what comes
			cfg.Log.Error("log of a container cannot be opened", "container", o.ID, "err", err)
		}
		o.start()
	}
	if cfg.Ready != nil {
		cfg.Ready()
	}
	err = s.serve(ctx, listener)
	return errors.Join(err, s.finishAll(), lock.Close())
}

// openAll makes what is open equal to what is on record.
func (s *server) openAll() error {
	list, err := s.records.load(s.cfg.Log)
	if err != nil {
		return err
	}
	stale := s.open
	s.open = map[string]*output{}
	for _, c := range list {
		if o := stale[c.ID]; o != nil && o.Container == c {
			s.open[c.ID] = o
			delete(stale, c.ID)
			continue
		}
		o, err := openOutput(c, s.cfg.Rotation, s.buffers, s.cfg.Now, s.cfg.Log)
		if err != nil {
			// Its directory is gone: nothing can write there any more.
			s.cfg.Log.Warn("container on record cannot be opened", "container", c.ID, "err", err)
			if err := s.records.remove(c.ID); err != nil {
				return err
			}
			continue
		}
		s.open[c.ID] = o
	}
	var errs []error
	for _, o := range stale {
		errs = append(errs, o.release())
	}
	return errors.Join(errs...)
}

func (s *server) releaseAll() error {
	var errs []error
	for _, o := range s.open {
		errs = append(errs, o.release())
	}
	return errors.Join(errs...)
}

// acquire takes the lock, asking the keeper that holds it to retire.
func (s *server) acquire(ctx context.Context) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(s.cfg.Dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("lock keeper directory: %w", err), lock.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	old := &Client{dir: s.cfg.Dir}
	s.inherit(ctx, old)
	if _, err := old.call(ctx, request{Op: opRetire}); err != nil {
		return nil, errors.Join(fmt.Errorf("ask the running keeper to retire: %w", err), lock.Close())
	}
	// The lock is free when the old process ends; a blocking flock waits for that.
	locked := make(chan error, 1)
	fd := int(lock.Fd())
	go func() {
		for {
			err := syscall.Flock(fd, syscall.LOCK_EX)
			if !errors.Is(err, syscall.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock keeper directory: %w", err), lock.Close())
		}
		return lock, nil
	case <-ctx.Done():
		// The process ends with this error, and the waiting flock with it.
		return nil, fmt.Errorf("the running keeper did not retire: %w", ctx.Err())
	}
}

// serve answers clients until ctx ends.
func (s *server) serve(ctx context.Context, listener *net.UnixListener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() }) // ends Accept; the path goes with it
	defer stop()
	slots := make(chan struct{}, maxClients)
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				return conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on keeper socket: %w", err)
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := s.client(ctx, conn); err != nil {
				s.cfg.Log.Warn("client dropped", "err", err)
			}
		})
	}
}

// client serves one connection: one line in, one line out.
func (s *server) client(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReaderSize(conn, maxRequest)
	for {
		if ctx.Err() == nil {
			if err := conn.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
				return err
			}
		}
		var req request
		if err := readMessage(r, &req); err != nil {
			var timeout net.Error
			if errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
				return nil
			}
			return errors.Join(err, writeMessage(conn, reply{Version: Protocol, Error: err.Error()}))
		}
		if req.Op == opTap && req.Version == Protocol {
			return s.serveTap(ctx, conn, req)
		}
		a := s.answer(req)
		if err := writeMessage(conn, a); err != nil {
			return err
		}
		switch {
		case req.Op == opRetire:
			s.retire()
			return nil
		case req.Op == opWatch:
			return outlast(ctx, conn)
		case a.Error == "":
			if err := s.passSockets(conn, r, req.Op); err != nil {
				return err
			}
		}
	}
}

// outlast returns when the client goes, or ctx ends.
func outlast(ctx context.Context, conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if ctx.Err() != nil { // its end may have set the deadline that was just taken back
		return nil
	}
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}

func (s *server) answer(req request) reply {
	a := reply{Version: Protocol, Build: s.cfg.Build, PID: os.Getpid()}
	var err error
	switch {
	case req.Version < Protocol-1 || req.Version > Protocol:
		err = fmt.Errorf("protocol version %d is not spoken here (%d is)", req.Version, Protocol)
	case req.Op == opHello, req.Op == opPing, req.Op == opWatch, req.Op == opHold, req.Op == opHeld:
	case req.Op == opOpen:
		err = s.openContainer(req.Container)
	case req.Op == opClose:
		err = s.closeContainer(req.ID)
	case req.Op == opList:
		a.IDs = s.list()
	case req.Op == opRetire:
		err = s.finishAll()
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

var errRetired = errors.New("this keeper has retired; ask again")

func (s *server) openContainer(c *Container) error {
	if c == nil {
		return errors.New("open: no container given")
	}
	if err := c.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return errRetired
	}
	if o := s.open[c.ID]; o != nil {
		if o.Container != *c {
			return fmt.Errorf("container %s is already open with other paths", c.ID)
		}
		return nil
	}
	o, err := openOutput(*c, s.cfg.Rotation, s.buffers, s.cfg.Now, s.cfg.Log)
	if err != nil {
		return err
	}
	if err := o.log.ready(); err != nil {
		return errors.Join(err, o.release())
	}
	if err := s.records.save(*c); err != nil {
		return errors.Join(err, o.release())
	}
	s.open[c.ID] = o
	o.start()
	return nil
}

func (s *server) closeContainer(id string) error {
	if err := validID(id); err != nil {
		return err
	}
	s.mu.Lock()
	if s.retired {
		s.mu.Unlock()
		return errRetired
	}
	o := s.open[id]
	delete(s.open, id)
	s.mu.Unlock()
	if o == nil {
		return nil
	}
	return errors.Join(o.finish(true), o.removeFIFOs(), s.records.remove(id))
}

func (s *server) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.open))
	for id := range s.open {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

// finishAll stops reading everywhere; the containers stay on record.
func (s *server) finishAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	var errs []error
	for _, o := range s.open {
		errs = append(errs, o.finish(false))
	}
	s.open = map[string]*output{}
	return errors.Join(errs...)
}
