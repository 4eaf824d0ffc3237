package etcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	"headway.dev/headway/store/storetest"
)

// outside runs an etcd as an operator would, with a client listener behind
// mutual TLS, and connects to it. maxOps 0 leaves etcd's default.
func outside(t testing.TB, maxOps uint) *etcd.Etcd {
	t.Helper()
	ca := newAuthority(t)
	files := ca.leaf("client")
	parse := func(s string) url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return *u
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name = t.TempDir(), "outside"
	client := parse(freeURL(t))
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{parse("http://127.0.0.1:0")}
	cfg.InitialCluster = "outside=http://127.0.0.1:0"
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: files.CertFile, KeyFile: files.KeyFile, TrustedCAFile: files.CAFile, ClientCertAuth: true}
	cfg.TickMs, cfg.ElectionMs = 20, 100
	if maxOps > 0 {
		cfg.MaxTxnOps, cfg.MaxRequestBytes = maxOps, 2*store.MaxBytes
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()

	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	e, err := etcd.Dial(t.Context(), []string{client.String()}, &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}, quiet())
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

func openOutside(t testing.TB) store.KV { return outside(t, store.MaxOps).KV() }

func TestOutsideKV(t *testing.T)       { storetest.KV(t, openOutside) }
func TestOutsideWatch(t *testing.T)    { storetest.Watch(t, openOutside) }
func TestOutsideElection(t *testing.T) { storetest.Election(t, openOutside) }

// TestOutsideDefaults: an etcd that was not told our bounds refuses with the
// class that says so.
func TestOutsideDefaults(t *testing.T) {
	kv := outside(t, 0).KV()
	var writes []store.Write
	for i := range store.MaxOps {
		writes = append(writes, store.Write{Key: store.Prefix + strings.Repeat("x", i+1)})
	}
	if _, err := kv.Commit(t.Context(), nil, writes); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("many writes: %v", err)
	}
	if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: store.Prefix + "x", Value: make([]byte, store.ObjectBytes+1000)}}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a large write: %v", err)
	}
}

func TestDialNobody(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := etcd.Dial(ctx, []string{freeURL(t)}, &tls.Config{}, nil)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("dial: %v", err)
	}
}
