package accounts

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

const (
	keyName = "serviceaccounts" // of the Authority object
	keyBits = 2048              // RS256 is what everybody can verify, clouds too
)

// KeyStore is what the key is kept in.
type KeyStore interface {
	GetAt(ctx context.Context, key store.Key, revision int64) (api.Object, int64, error)
	Commit(ctx context.Context, t store.Txn) (int64, error)
}

// EnsureKey returns the key that signs tokens, which the first caller makes: of several
// servers that start at once one wins, and the others take what it made.
func EnsureKey(ctx context.Context, st KeyStore, now time.Time) (*rsa.PrivateKey, error) {
	at := store.Key{GroupResource: api.Authorities(), Name: keyName}
	for {
		obj, _, err := st.GetAt(ctx, at, 0)
		if err == nil {
			kept, ok := obj.(*api.Authority)
			if !ok {
				return nil, fmt.Errorf("read the key of ServiceAccounts' tokens: it is a %T", obj)
			}
			return parseKey(kept.Key)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("read the key of ServiceAccounts' tokens: %w", err)
		}
		key, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return nil, fmt.Errorf("make the key of ServiceAccounts' tokens: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode the key of ServiceAccounts' tokens: %w", err)
		}
		made := &api.Authority{Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
		made.Name = keyName
		store.Stamp(made, now)
		_, err = st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: made}}})
		if err == nil {
			return key, nil
		}
		if !errors.Is(err, store.ErrExists) { // else another server was faster
			return nil, fmt.Errorf("store the key of ServiceAccounts' tokens: %w", err)
		}
	}
}

// parseKey reads the key back. Its errors have nothing of it (R14).
func parseKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the key of ServiceAccounts' tokens is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key of ServiceAccounts' tokens does not parse")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key of ServiceAccounts' tokens is a %T", parsed)
	}
	return key, nil
}
