package certs

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// name is that of the one Authority object.
const name = "main"

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	backdate      = 5 * time.Minute // for clocks that are behind
)

// Authority issues certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Store is what the authority is kept in.
type Store interface {
	GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
	Commit(ctx context.Context, t store.Txn) (int64, error)
}

// Ensure returns the cluster's authority, which the first caller makes: of several
// servers that start at once one wins, and the others take what it made. Near its
// end the certificate is issued again for the same key, so that everything issued
// before stays valid.
func Ensure(ctx context.Context, st Store, now time.Time) (*Authority, error) {
	key := store.Key{GroupResource: api.Authorities(), Name: name}
	for {
		obj, _, err := st.GetAt(ctx, key, 0)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("read the certificate authority: %w", err)
		}
		op := store.Op{Verb: store.Create}
		var old *Authority
		if err == nil {
			kept, ok := obj.(*api.Authority)
			if !ok {
				return nil, fmt.Errorf("read the certificate authority: it is a %T", obj)
			}
			if old, err = parse(kept.Certificate, kept.Key); err != nil {
				return nil, fmt.Errorf("read the certificate authority: %w", err)
			}
			if !due(old.cert, now) {
				return old, nil
			}
			op.Verb = store.Update
		}
		next, object, err := issueAuthority(old, now)
		if err != nil {
			return nil, err
		}
		if old != nil {
			object.ObjectMeta = *obj.(*api.Authority).ObjectMeta.DeepCopy()
		} else {
			store.Stamp(object, now)
		}
		op.Object = object
		_, err = st.Commit(ctx, store.Txn{Ops: []store.Op{op}})
		if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
			continue // another server was faster: use what it made
		}
		if err != nil {
			return nil, fmt.Errorf("store the certificate authority: %w", err)
		}
		return next, nil
	}
}

// issueAuthority makes an authority, with the key of the old one if there is one.
func issueAuthority(old *Authority, now time.Time) (*Authority, *api.Authority, error) {
	var key crypto.Signer
	if old != nil {
		key = old.key
	} else {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, fmt.Errorf("make the authority's key: %w", err)
		}
		key = made
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "headway"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue the authority's certificate: %w", err)
	}
	certPEM := encode("CERTIFICATE", der)
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	a, err := parse(certPEM, keyPEM)
	if err != nil {
		return nil, nil, err
	}
	object := &api.Authority{Certificate: certPEM, Key: keyPEM}
	object.Name = name
	return a, object, nil
}

// parse reads an authority back.
func parse(certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("the authority's key is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the authority's key does not parse") // nothing of the key in the message (R14)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the authority's key is a %T", parsed)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the authority's key and certificate do not belong together")
	}
	return &Authority{cert: cert, key: key, pem: certPEM}, nil
}

// PEM is the authority's certificate, for clients to trust.
func (a *Authority) PEM() []byte { return a.pem }

// Pool is the authority alone, for verifying others.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// ParseCertificate reads the first certificate of a PEM file.
func ParseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate: %w", err)
	}
	return cert, nil
}

// due says whether two thirds of a certificate's life are over.
func due(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return now.After(cert.NotBefore.Add(life / 3 * 2))
}

// Due says whether a PEM certificate should be renewed: two thirds of its life
// are over, it was issued by another authority, or it cannot be read.
func (a *Authority) Due(certPEM []byte, now time.Time) bool {
	cert, err := ParseCertificate(certPEM)
	return err != nil || cert.CheckSignatureFrom(a.cert) != nil || due(cert, now)
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encode("PRIVATE KEY", der), nil
}
