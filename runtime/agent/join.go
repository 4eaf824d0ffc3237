package agent

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"google.golang.org/grpc"

	"headway.dev/headway/runtime/session"
)

// Join gets a certificate for the machine's own key: with a token its first,
// over a connection with no certificate of its own, whose server the caller has
// checked against the hash in the token's command; with token "" its next, over
// one with the present certificate. The answer is PEM.
func Join(ctx context.Context, conn grpc.ClientConnInterface, token, node string, key crypto.Signer) (certificate, authority []byte, err error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: session.Subject(node)}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
	}
	r, err := session.NewNodeClient(conn).Join(ctx, &session.JoinRequest{
		Token: token, Node: node, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("join as node %s: %w", node, err)
	}
	return r.Certificate, r.Authority, nil
}
