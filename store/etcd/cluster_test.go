package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/loopback"
	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// authority issues certificates for one test.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(a.dir, name+ext), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return out, key
}

func (a *authority) leaf(name string) etcd.TLS {
	a.issue(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	file := func(n string) string { return filepath.Join(a.dir, n) }
	return etcd.TLS{CertFile: file(name + ".crt"), KeyFile: file(name + ".key"), CAFile: file("ca.crt"), CommonName: "server"}
}

func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	f := a.leaf(name)
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &http.Client{Timeout: storetest.Patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}}
}

// freeURL returns a peer URL on loopback that nobody listens at who is not told.
func freeURL(t testing.TB) string {
	t.Helper()
	return "https://" + loopback.Reserve(t, 1)
}

// quiet keeps what a member says about its peers being gone out of the test.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func marker(name string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	store.Stamp(cm, time.Now())
	return cm
}

func create(obj api.Object) []store.Op { return []store.Op{{Verb: store.Create, Object: obj}} }

// opened returns a store over one member that runs until the test ends.
func opened(t testing.TB, e *etcd.Etcd) *store.Store {
	t.Helper()
	s := store.New(e.KV(), store.Options{Seal: storetest.SealKey()})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-s.Synced():
	case <-time.After(storetest.Patience):
		t.Fatal("the store did not load")
	}
	return s
}

// TestR4_ThreeMembers grows a cluster from one member to three over mutual TLS,
// and lets it lose its leader, and then its majority.
func TestR4_ThreeMembers(t *testing.T) {
	ca := newAuthority(t)
	certs := ca.leaf("server")
	var members []*etcd.Etcd
	var stores []*store.Store
	var firstURL string
	for i, name := range []string{"a", "b", "c"} {
		c := etcd.Config{Name: name, PeerURL: freeURL(t), TLS: certs, Log: quiet()}
		if i == 0 {
			firstURL = c.PeerURL
		} else {
			for range 2 { // asked again, it gives the same answer
				cluster, err := members[0].Add(t.Context(), name, c.PeerURL)
				if err != nil {
					t.Fatal(err)
				}
				if c.Join, c.Cluster = true, cluster; cluster == "" {
					t.Fatal("no cluster")
				}
			}
		}
		members = append(members, start(t, c))
		stores = append(stores, opened(t, members[i]))
	}
	list, err := members[2].Members(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("members %+v, %v", list, err)
	}
	for _, m := range list {
		if !m.Voter || m.Name == "" {
			t.Errorf("member %+v", m)
		}
	}

	// Only peers' certificates are let in, of the same authority too.
	resp, err := ca.client("server").Get(firstURL + "/members")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a peer: %v, %v", resp, err)
	} else if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if resp, err := ca.client("node-1").Get(firstURL + "/members"); err == nil {
		t.Errorf("a node got %s from the peers' port", resp.Status)
	}

	// What one writes all see.
	rev := made(t, stores[0], store.Fence{}, "from-a")
	for i, s := range stores {
		wait(t, s, rev)
		if s.Get(store.KeyOf(marker("from-a"))) == nil {
			t.Errorf("store %d does not have it", i)
		}
	}

	// The server that leads is also the one whose member leads, which is the worse
	// case: both must change.
	lead := 0
	for i, m := range members {
		if m.IsLeader() {
			lead = i
		}
	}
	first, err := stores[lead].Elect(t.Context(), "first", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	next, last := (lead+1)%3, (lead+2)%3
	made(t, stores[lead], first.Fence, "by-first")
	if err := members[lead].Close(); err != nil {
		t.Fatal(err)
	}
	second, err := stores[next].Elect(t.Context(), "second", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.Done():
	default:
		t.Error("the second was elected before the first gave up")
	}
	// The first's late packet arrives by way of a member that lives.
	if _, err := stores[last].Commit(t.Context(), store.Txn{Fence: first.Fence, Ops: create(marker("late"))}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("late write: %v", err)
	}
	rev = made(t, stores[next], second.Fence, "by-second")
	wait(t, stores[last], rev)
	for name, want := range map[string]bool{"by-first": true, "by-second": true, "late": false} {
		if got := stores[last].Get(store.KeyOf(marker(name))) != nil; got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}

	// Without a majority nothing is written, and what was known is still read.
	if err := members[next].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := stores[last].Commit(t.Context(), store.Txn{Ops: create(marker("alone"))}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("write without a majority: %v", err)
	}
	if _, err := stores[last].Current(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("linearizable read without a majority: %v", err)
	}
	if stores[last].Get(store.KeyOf(marker("by-second"))) == nil {
		t.Error("the cache lost what it knew")
	}
}

// made creates a marker, and tries again while the members of a busy machine are
// between two leaders. A write that was not answered may have made it.
func made(t testing.TB, s *store.Store, f store.Fence, name string) (revision int64) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	unanswered := false
	for end := time.Now().Add(storetest.Patience); ; <-tick.C {
		rev, err := s.Commit(t.Context(), store.Txn{Fence: f, Ops: create(marker(name))})
		if unanswered && errors.Is(err, store.ErrExists) {
			rev, err = s.Current(t.Context())
		}
		if err == nil {
			return rev
		}
		if unanswered = true; !errors.Is(err, store.ErrUnavailable) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func wait(t testing.TB, s *store.Store, rev int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	if err := s.WaitRevision(ctx, rev); err != nil {
		t.Fatal(err)
	}
}

// TestRemove takes a member out, whose place can then be taken.
func TestRemove(t *testing.T) {
	certs := newAuthority(t).leaf("server")
	a := start(t, etcd.Config{Name: "a", PeerURL: freeURL(t), TLS: certs, Log: quiet()})
	url := freeURL(t)
	if _, err := a.Add(t.Context(), "b", url); err != nil {
		t.Fatal(err)
	}
	cluster, err := a.Add(t.Context(), "b", url)
	if err != nil {
		t.Fatal(err)
	}
	start(t, etcd.Config{Name: "b", PeerURL: url, TLS: certs, Join: true, Cluster: cluster, Log: quiet()})
	if _, err := a.Add(t.Context(), "other", url); err == nil {
		t.Error("two members have one URL")
	}
	for range 2 {
		if err := a.Remove(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	list, err := a.Members(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "a" {
		t.Errorf("members %+v, %v", list, err)
	}
	if _, err := a.KV().Commit(t.Context(), nil, []store.Write{{Key: store.Prefix + "x"}}); err != nil {
		t.Errorf("write after the removal: %v", err)
	}
}

// TestRestart: what was written is there after a restart, also after a change of
// the peer URL, and a member that was alone can take peers.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	certs := newAuthority(t).leaf("server")
	for i, url := range []string{"", "", freeURL(t), freeURL(t)} {
		c := etcd.Config{Dir: dir, PeerURL: url}
		if url != "" {
			c.TLS = certs
		}
		e := start(t, c)
		kv := e.KV()
		r, err := kv.Range(t.Context(), store.RangeRequest{Start: store.Prefix, End: "/headway0"})
		if err != nil || len(r.Entries) != i {
			t.Fatalf("start %d: %+v, %v", i, r, err)
		}
		if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: fmt.Sprint(store.Prefix, i)}}); err != nil {
			t.Fatal(err)
		}
		if url != "" {
			list, err := e.Members(t.Context())
			if err != nil || len(list) != 1 || list[0].PeerURL != url {
				t.Errorf("members %+v, %v", list, err)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-e.Stopped():
		default:
			t.Error("closed and not stopped")
		}
		if _, err := kv.Range(t.Context(), store.RangeRequest{Start: store.Prefix}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("read from a closed member: %v", err)
		}
		if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: store.Prefix}}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("write to a closed member: %v", err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, %v", info.Mode(), err)
	}
}

func TestBadConfig(t *testing.T) {
	certs := newAuthority(t).leaf("server")
	for what, c := range map[string]etcd.Config{
		"peers without TLS":       {PeerURL: "https://127.0.0.1:2380"},
		"peers in the clear":      {PeerURL: "http://127.0.0.1:2380", TLS: certs},
		"no port":                 {PeerURL: "https://127.0.0.1", TLS: certs},
		"no common name":          {PeerURL: "https://127.0.0.1:2380", TLS: etcd.TLS{CertFile: certs.CertFile, KeyFile: certs.KeyFile, CAFile: certs.CAFile}},
		"a directory that cannot": {Dir: "/dev/null/x"},
	} {
		if c.Dir == "" {
			c.Dir = t.TempDir()
		}
		e, err := etcd.Start(t.Context(), c)
		if err == nil {
			t.Errorf("%s: started", what)
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	// Two members are named and the other one never comes.
	url := freeURL(t)
	_, err := etcd.Start(ctx, etcd.Config{Dir: t.TempDir(), Name: "a", PeerURL: url, TLS: certs, Cluster: "a=" + url + ",b=" + freeURL(t), Log: quiet()})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a majority: %v", err)
	}
}
