package etcd_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	"headway.dev/headway/store/storetest"
)

// loud fails the test at every record: steady state is silent.
type loud struct{ t testing.TB }

func (l loud) Enabled(context.Context, slog.Level) bool { return true }
func (l loud) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l loud) WithGroup(string) slog.Handler            { return l }
func (l loud) Handle(_ context.Context, r slog.Record) error {
	var attrs []string
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a.String())
		return true
	})
	for _, busy := range []string{"slow fdatasync", "took too long"} {
		if strings.Contains(strings.Join(attrs, " "), busy) {
			l.t.Logf("the machine is slow: %v", attrs)
			return nil
		}
	}
	l.t.Errorf("logged %s: %v", r.Message, attrs)
	return nil
}

// start runs a member for one test.
func start(t testing.TB, c etcd.Config) *etcd.Etcd {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	e, err := etcd.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func open(t testing.TB) store.KV { return start(t, etcd.Config{}).KV() }

func TestKV(t *testing.T)       { storetest.KV(t, open) }
func TestStore(t *testing.T)    { storetest.Store(t, open) }
func TestWatch(t *testing.T)    { storetest.Watch(t, open) }
func TestElection(t *testing.T) { storetest.Election(t, open) }
func TestModel(t *testing.T)    { storetest.Model(t, open) }

func TestR4_DeposedLeaderCannotWrite(t *testing.T) { storetest.R4DeposedLeader(t, open(t)) }

// TestSilent: a member that starts, works, stops and starts again says nothing.
func TestSilent(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		e := start(t, etcd.Config{Dir: dir, Log: slog.New(loud{t})})
		s := opened(t, e)
		rev, err := s.Commit(t.Context(), store.Txn{Ops: create(marker(rand.Text()))})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, rev)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Maintain(ctx) }()
		l, err := s.Elect(t.Context(), "one", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
