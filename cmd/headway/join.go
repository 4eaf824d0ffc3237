package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/server/certs"
)

// join makes the node's own key and trades the token for its certificate, unless
// this data dir has joined before.
func join(ctx context.Context, dir dataDir, server, token, node string) error {
	if _, err := os.Stat(dir.nodeCert()); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("--token: not a join token: take the whole line that headway token prints")
	}
	key, err := nodeKey(dir)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(credentials.NewTLS(pinned(parts[2]))))
	if err != nil {
		return err
	}
	defer conn.Close()
	certificate, authority, err := agent.Join(ctx, conn, parts[0]+"."+parts[1], node, key)
	if err != nil {
		return err
	}
	if hash, err := authorityHash(authority); err != nil || hash != parts[2] {
		return errors.New("join: the server's authority is not the one that the token names")
	}
	if err := replaceFile(dir.authority(), authority, 0o644); err != nil {
		return err
	}
	return replaceFile(dir.nodeCert(), certificate, 0o644)
}

// pinned trusts a server whose chain holds the authority with this hash.
func pinned(hash string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The usual check needs the authority, which the node does not have yet; the
		// hash in the token takes its place.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, ca := range state.PeerCertificates {
				sum := sha256.Sum256(ca.Raw)
				if !ca.IsCA || hex.EncodeToString(sum[:]) != hash {
					continue
				}
				roots := x509.NewCertPool()
				roots.AddCert(ca)
				_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
				return err
			}
			return errors.New("the server does not prove that it belongs to the cluster of the token")
		},
	}
}

// nodeKey is the node's own key, made once and kept; it never leaves the machine.
func nodeKey(dir dataDir) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(dir.nodeKey())
	if err == nil {
		block, rest := pem.Decode(data)
		if block == nil || len(bytes.TrimSpace(rest)) > 0 {
			return nil, fmt.Errorf("%s is not a PEM key: remove it to join anew", dir.nodeKey())
		}
		return x509.ParseECPrivateKey(block.Bytes)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, replaceFile(dir.nodeKey(), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// joinedCredentials are those that join left in the data dir, read anew for each
// handshake, so that a renewed certificate is used.
func joinedCredentials(dir dataDir) (credentials.TransportCredentials, error) {
	get := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(dir.nodeCert(), dir.nodeKey())
		if err != nil {
			return nil, fmt.Errorf("read the node's certificate: %w: remove %s to join anew", err, dir.nodeCert())
		}
		return &pair, nil
	}
	if _, err := get(nil); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(dir.authority())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", dir.authority())
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, GetClientCertificate: get}), nil
}

// renewPeriod is how often a node looks whether its certificate is due.
const renewPeriod = 12 * time.Hour

// keepRenewed renews the node's certificate when two thirds of its life are over,
// until ctx ends. A server that is away is asked again the next time: a third of
// the life is left for that.
func keepRenewed(ctx context.Context, dir dataDir, server, node string, creds credentials.TransportCredentials, log *slog.Logger) {
	tick := time.NewTicker(renewPeriod)
	defer tick.Stop()
	for {
		if err := renew(ctx, dir, server, node, creds); err != nil && ctx.Err() == nil {
			log.Warn("node certificate not renewed, trying again later", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func renew(ctx context.Context, dir dataDir, server, node string, creds credentials.TransportCredentials) error {
	present, err := os.ReadFile(dir.nodeCert())
	if err != nil {
		return err
	}
	cert, err := certs.ParseCertificate(present)
	if err != nil {
		return err
	}
	if time.Now().Before(cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)) {
		return nil
	}
	key, err := nodeKey(dir)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	next, _, err := agent.Join(ctx, conn, "", node, key)
	if err != nil {
		return err
	}
	return replaceFile(dir.nodeCert(), next, 0o644)
}
