package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"headway.dev/headway/runtime/session"
)

// Lives of what is issued.
const (
	serverLife = 90 * 24 * time.Hour
	adminLife  = 365 * 24 * time.Hour
	nodeLife   = 90 * 24 * time.Hour
)

// AdminGroup is the group of administrators, as Kubernetes names it. What a node
// is called is the session protocol's matter.
const AdminGroup = "system:masters"

// Pair is a certificate with its key, as PEM.
type Pair struct {
	Certificate, Key []byte
}

// TLS returns the pair for a tls.Config.
func (p Pair) TLS() (tls.Certificate, error) {
	c, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read a certificate and its key: %w", err)
	}
	return c, nil
}

// Admin issues an administrator's client certificate.
func (a *Authority) Admin(user string, now time.Time) (Pair, error) {
	return a.withKey(a.client(pkix.Name{CommonName: user, Organization: []string{AdminGroup}}, now.Add(adminLife)), now)
}

// Node issues a node's client certificate with a key made here: for the node that
// shares the server's process.
func (a *Authority) Node(node string, now time.Time) (Pair, error) {
	if err := session.CheckNode(node); err != nil {
		return Pair{}, err
	}
	return a.withKey(a.client(session.Subject(node), now.Add(nodeLife)), now)
}

// NodeRequest issues a node's client certificate for the key of a signing request
// (DER), which proves that the node has that key. Everything else in the request
// is ignored: the caller says which node it is.
func (a *Authority) NodeRequest(request []byte, node string, now time.Time) ([]byte, error) {
	if err := session.CheckNode(node); err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("parse the signing request of node %s: %w", node, err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("signing request of node %s: %w", node, err)
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("signing request of node %s: the key must be ECDSA P-256", node)
	}
	return a.sign(a.client(session.Subject(node), now.Add(nodeLife)), key, now)
}

// Server issues a server's certificate. It is also a client certificate, for
// servers that speak to each other. localhost and the loopback addresses are
// always among its names.
func (a *Authority) Server(hosts []string, now time.Time) (Pair, error) {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "headway-server", Organization: []string{"headway:servers"}},
		NotAfter:    now.Add(serverLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	all := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
	slices.Sort(all)
	for _, host := range slices.Compact(all) {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if host != "" {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return a.withKey(t, now)
}

func (a *Authority) client(subject pkix.Name, ends time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:     subject,
		NotAfter:    ends,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func (a *Authority) withKey(t *x509.Certificate, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	cert, err := a.sign(t, key.Public(), now)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Certificate: cert, Key: keyPEM}, nil
}

func (a *Authority) sign(t *x509.Certificate, key crypto.PublicKey, now time.Time) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t.SerialNumber = serial
	t.NotBefore = now.Add(-backdate)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.BasicConstraintsValid = true
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", t.Subject.CommonName, err)
	}
	return encode("CERTIFICATE", der), nil
}

// Serving is a server's certificate that renews itself.
type Serving struct {
	authority *Authority
	hosts     []string
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
}

// NewServing issues a server's certificate for hosts and keeps it fresh.
func (a *Authority) NewServing(hosts []string, now func() time.Time) (*Serving, error) {
	s := &Serving{authority: a, hosts: hosts, now: now}
	if _, err := s.Get(nil); err != nil {
		return nil, err
	}
	return s, nil
}

// Get is a tls.Config's GetCertificate. It issues a new certificate when the
// current one is due.
func (s *Serving) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.current != nil && !due(s.current.Leaf, now) {
		return s.current, nil
	}
	pair, err := s.authority.Server(s.hosts, now)
	if err != nil {
		return nil, err
	}
	cert, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	// The authority goes along, so that a machine that joins can compare it with
	// the hash in its token.
	cert.Certificate = append(cert.Certificate, s.authority.cert.Raw)
	s.current = &cert
	return s.current, nil
}
