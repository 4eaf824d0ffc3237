package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"headway.dev/headway/runtime/session"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"k8s.io/client-go/tools/clientcmd"
)

const day = 24 * time.Hour

func open(t *testing.T) *store.Store {
	t.Helper()
	st := store.New(memory.New(), store.Options{Seal: []byte(strings.Repeat("s", store.SealKeyBytes))})
	must(t, st.Load(t.Context()))
	return st
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	cert, err := ParseCertificate(pair.Certificate)
	must(t, err)
	return cert
}

// TestOneAuthority starts many servers at once over an empty store.
func TestOneAuthority(t *testing.T) {
	st, now := open(t), time.Now()
	var all sync.WaitGroup
	made := make([]*Authority, 20)
	for i := range made {
		all.Go(func() {
			a, err := Ensure(context.Background(), st, now)
			if err != nil {
				t.Error(err)
			}
			made[i] = a
		})
	}
	all.Wait()
	for _, a := range made {
		if string(a.PEM()) != string(made[0].PEM()) || !a.key.Public().(*ecdsa.PublicKey).Equal(made[0].key.Public()) {
			t.Fatal("two servers have two authorities")
		}
	}
}

// TestR14_KeyIsSealed looks for the key in what the backend holds.
func TestR14_KeyIsSealed(t *testing.T) {
	kv := memory.New()
	st := store.New(kv, store.Options{Seal: []byte(strings.Repeat("s", store.SealKeyBytes))})
	must(t, st.Load(t.Context()))
	_, err := Ensure(t.Context(), st, time.Now())
	must(t, err)
	r, err := kv.Range(t.Context(), store.RangeRequest{Start: store.ResourcePrefix(api.Authorities()), End: "/i"})
	must(t, err)
	if len(r.Entries) != 1 {
		t.Fatalf("%d entries", len(r.Entries))
	}
	if v := string(r.Entries[0].Value); strings.Contains(v, "PRIVATE") || strings.Contains(v, "headway") {
		t.Errorf("the authority is readable: %q", v)
	}
}

func TestAuthorityIsRenewedUnderItsKey(t *testing.T) {
	st, now := open(t), time.Now()
	first, err := Ensure(t.Context(), st, now)
	must(t, err)
	node, err := first.Node("n1", now.Add(5*365*day))
	must(t, err)
	same, err := Ensure(t.Context(), st, now.Add(6*365*day))
	must(t, err)
	if string(same.PEM()) != string(first.PEM()) {
		t.Error("renewed too early")
	}
	later := now.Add(7 * 365 * day)
	second, err := Ensure(t.Context(), st, later)
	must(t, err)
	if string(second.PEM()) == string(first.PEM()) {
		t.Fatal("not renewed after two thirds of its life")
	}
	admin, err := second.Admin("admin", later)
	must(t, err)
	for _, c := range []struct {
		cert *x509.Certificate
		pool *x509.CertPool
		at   time.Time
	}{
		{leaf(t, node), second.Pool(), now.Add(5*365*day + day)},
		{leaf(t, admin), first.Pool(), later},
	} {
		if c.at.Before(second.cert.NotBefore) {
			c.at = second.cert.NotBefore.Add(time.Second)
			c.cert.NotAfter = c.at.Add(time.Hour) // only the signature is of interest across the renewal
		}
		if _, err := c.cert.Verify(x509.VerifyOptions{Roots: c.pool, CurrentTime: c.at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("%s across the renewal: %v", c.cert.Subject.CommonName, err)
		}
	}
}

func TestWhatCertificatesAreFor(t *testing.T) {
	st, now := open(t), time.Now()
	a, err := Ensure(t.Context(), st, now)
	must(t, err)
	verify := func(cert *x509.Certificate, host string, use x509.ExtKeyUsage) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: a.Pool(), CurrentTime: now, DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}})
		return err
	}
	pair, err := a.Server([]string{"box", "10.0.0.7", "box", ""}, now)
	must(t, err)
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "box", "10.0.0.7"} {
		if err := verify(leaf(t, pair), host, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("server as %s: %v", host, err)
		}
	}
	if err := verify(leaf(t, pair), "elsewhere", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("a server is good for any host")
	}
	admin, err := a.Admin("alice", now)
	must(t, err)
	cert := leaf(t, admin)
	if cert.Subject.CommonName != "alice" || !slices.Equal(cert.Subject.Organization, []string{AdminGroup}) {
		t.Errorf("admin is %s", cert.Subject)
	}
	must(t, verify(cert, "", x509.ExtKeyUsageClientAuth))
	if verify(cert, "", x509.ExtKeyUsageServerAuth) == nil || cert.IsCA {
		t.Error("an admin's certificate may serve or issue")
	}
	node, err := a.Node("n1", now)
	must(t, err)
	name, err := session.NodeOf(leaf(t, node))
	must(t, err)
	if name != "n1" {
		t.Errorf("node %q", name)
	}
	if _, err := session.NodeOf(cert); err == nil {
		t.Error("an admin is a node")
	}
	if _, err := a.Node("", now); err == nil {
		t.Error("a node without a name")
	}
}

func TestNodeRequest(t *testing.T) {
	st, now := open(t), time.Now()
	a, err := Ensure(t.Context(), st, now)
	must(t, err)
	request := func(curve elliptic.Curve) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		must(t, err)
		// What it asks for beside its key must not matter.
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "admin", Organization: []string{AdminGroup}}, DNSNames: []string{"evil"}, IPAddresses: []net.IP{net.IPv4(1, 2, 3, 4)},
		}, key)
		must(t, err)
		return der, key
	}
	der, key := request(elliptic.P256())
	out, err := a.NodeRequest(der, "n2", now)
	must(t, err)
	cert, err := ParseCertificate(out)
	must(t, err)
	if name, err := session.NodeOf(cert); err != nil || name != "n2" || !key.PublicKey.Equal(cert.PublicKey) || len(cert.DNSNames)+len(cert.IPAddresses) != 0 {
		t.Errorf("issued %s for %v: %v", cert.Subject, cert.DNSNames, err)
	}
	if other, _ := request(elliptic.P384()); true {
		if _, err := a.NodeRequest(other, "n2", now); err == nil {
			t.Error("another kind of key is accepted")
		}
	}
	der[len(der)-1] ^= 1
	if _, err := a.NodeRequest(der, "n2", now); err == nil {
		t.Error("a forged request is accepted")
	}
}

func TestServingRenewsItself(t *testing.T) {
	st, now := open(t), time.Now()
	a, err := Ensure(t.Context(), st, now)
	must(t, err)
	clock := now
	s, err := a.NewServing([]string{"box"}, func() time.Time { return clock })
	must(t, err)
	first, err := s.Get(nil)
	must(t, err)
	clock = now.Add(serverLife / 2)
	if again, err := s.Get(nil); err != nil || again != first {
		t.Errorf("renewed too early: %v", err)
	}
	clock = now.Add(serverLife/3*2 + time.Hour)
	second, err := s.Get(nil)
	must(t, err)
	if second == first || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Error("not renewed after two thirds of its life")
	}
	if a.Due(encode("CERTIFICATE", second.Certificate[0]), clock) || !a.Due(encode("CERTIFICATE", first.Certificate[0]), clock) || !a.Due([]byte("x"), clock) {
		t.Error("Due is wrong")
	}
}

func TestKubeconfig(t *testing.T) {
	st, now := open(t), time.Now()
	a, err := Ensure(t.Context(), st, now)
	must(t, err)
	admin, err := a.Admin("admin", now)
	must(t, err)
	data, err := a.Kubeconfig("main", "https://127.0.0.1:6443", admin)
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	must(t, err)
	if config.Host != "https://127.0.0.1:6443" || string(config.CAData) != string(a.PEM()) || string(config.KeyData) != string(admin.Key) {
		t.Errorf("config %v", config)
	}
}

// FuzzOutsideBytes: what a node or a file gives is either refused or sound.
func FuzzOutsideBytes(f *testing.F) {
	st := store.New(memory.New(), store.Options{Seal: []byte(strings.Repeat("s", store.SealKeyBytes))})
	if err := st.Load(context.Background()); err != nil {
		f.Fatal(err)
	}
	now := time.Now()
	a, err := Ensure(context.Background(), st, now)
	if err != nil {
		f.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Add(a.PEM())
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := a.NodeRequest(data, "n", now); err == nil {
			cert, err := ParseCertificate(out)
			if err != nil || cert.IsCA {
				t.Fatalf("issued %v: %v", cert, err)
			}
			if name, err := session.NodeOf(cert); err != nil || name != "n" {
				t.Fatalf("issued for %q: %v", name, err)
			}
		}
		a.Due(data, now)
	})
}
