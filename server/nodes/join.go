package nodes

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

const (
	maxRequest = 16 << 10
	maxToken   = 512
)

// Join implements session.NodeServer: it trades a token, once, for a certificate.
// Without a token, a node that has a certificate gets its next one.
func (n *Nodes) Join(ctx context.Context, r *session.JoinRequest) (*session.JoinResponse, error) {
	if err := session.CheckNode(r.Node); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	request, err := readRequest(r.Request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	var token *api.JoinToken
	if r.Token == "" {
		if node, err := n.identify(ctx); err != nil || node != r.Node {
			return nil, badToken()
		}
	} else if token, err = n.token(ctx, r.Token); err != nil {
		return nil, err
	}
	certificate, err := n.cfg.Authority.NodeRequest(request, r.Node, n.now())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if token != nil {
		if err := n.spend(ctx, token, r.Node); err != nil {
			return nil, err
		}
		n.log.Info("node joined", "node", r.Node, "token", token.Name)
	}
	return &session.JoinResponse{Certificate: certificate, Authority: n.cfg.Authority.PEM()}, nil
}

// spend uses a token up. A certificate leaves only after that, and only if no
// node of the name is alive in that moment.
func (n *Nodes) spend(ctx context.Context, token *api.JoinToken, node string) error {
	alive := &coordinationv1.Lease{}
	alive.Namespace, alive.Name = Namespace, node
	_, err := n.cfg.Store.Commit(ctx, store.Txn{If: []api.Object{alive}, Ops: []store.Op{{Verb: store.Delete, Object: token}}})
	var ke *store.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ke) && ke.Key == store.KeyOf(alive):
		return status.Errorf(codes.AlreadyExists, "a node named %s is alive; give this machine another name", node)
	case errors.As(err, &ke):
		return badToken()
	default:
		return status.Errorf(codes.Unavailable, "use up the join token: %v", err)
	}
}

// badToken is the one answer to every wrong token, so that guessing learns
// nothing.
func badToken() error {
	return status.Error(codes.PermissionDenied, "the join token is unknown, used or expired; make a new one")
}

// token finds the JoinToken that a token's two halves name.
func (n *Nodes) token(ctx context.Context, token string) (*api.JoinToken, error) {
	id, secret, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxToken || strings.ContainsAny(id, "/\x00") || id == "" {
		return nil, badToken()
	}
	found, _, err := n.cfg.Store.GetAt(ctx, store.Key{GroupResource: api.JoinTokens(), Name: id}, 0)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, badToken()
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "read the join token: %v", err)
	}
	t, ok := found.(*api.JoinToken)
	sum := sha256.Sum256([]byte(secret))
	if !ok || subtle.ConstantTimeCompare(sum[:], t.SecretHash) != 1 || !n.now().Before(t.Expires.Time) {
		return nil, badToken()
	}
	return t, nil
}

// readRequest takes a certificate request out of its PEM. The authority checks it
// and uses nothing of it but the key.
func readRequest(raw []byte) ([]byte, error) {
	if len(raw) > maxRequest {
		return nil, fmt.Errorf("a certificate request of %d bytes is too large", len(raw))
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("the certificate request is not PEM of type CERTIFICATE REQUEST")
	}
	return block.Bytes, nil
}
