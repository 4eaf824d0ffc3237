package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// health says whether a path is open to everybody.
func health(path string) bool {
	return slices.Contains([]string{"/livez", "/readyz", "/healthz"}, path)
}

// verified lets a request with a client certificate pass only if the certificate
// is one of the cluster's and still valid; then, and only then, the handlers find
// its chain in r.TLS.VerifiedChains. It looks at every request, so a connection
// does not outlive its certificate.
func (s *Server) verified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		chains, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots:         s.cfg.CA,
			Intermediates: x509.NewCertPool(), // the authority issues all certificates itself
			CurrentTime:   s.cfg.Now(),
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			refusal := apierrors.NewUnauthorized("the client certificate is not good for this cluster (" + err.Error() + "); take the kubeconfig from the server's data directory again")
			responsewriters.ErrorNegotiated(refusal, s.api.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		state := *r.TLS
		state.VerifiedChains = chains
		r = r.WithContext(r.Context()) // a copy: r.TLS is the whole connection's
		r.TLS = &state
		next.ServeHTTP(w, r)
	})
}

// signIn names the user of a request as Kubernetes does: by its client certificate, whose
// common name is the user and whose organizations are the groups, or by the token of a
// ServiceAccount.
func (s *Server) signIn(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert := r.TLS.VerifiedChains[0][0]
		return &authenticator.Response{User: &user.DefaultInfo{
			Name:   cert.Subject.CommonName,
			Groups: append(slices.Clone(cert.Subject.Organization), user.AllAuthenticated),
		}}, true, nil
	}
	if r.Header.Get("Authorization") != "" && s.cfg.Tokens != nil {
		who, ok, err := s.cfg.Tokens.AuthenticateRequest(r)
		if err != nil { // anybody can send what is no token, as often as he likes
			s.cfg.Log.Debug("a token was refused", "error", err)
		}
		return who, ok && err == nil, nil
	}
	if health(r.URL.Path) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
	}
	return nil, false, nil
}

// permit lets administrators do everything, everybody ask for health, and the others do
// what roles allow them.
func permit(roles authorizer.UnconditionalAuthorizer) authorizer.AuthorizerFunc {
	return func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if u := a.GetUser(); u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
			return authorizer.DecisionAllow, "", nil
		}
		if !a.IsResourceRequest() && health(a.GetPath()) {
			return authorizer.DecisionAllow, "", nil
		}
		decision, reason, err := roles.Authorize(ctx, a)
		if decision == authorizer.DecisionAllow || err != nil {
			return decision, reason, err
		}
		const none = "no Role or ClusterRole that is bound to this user allows it"
		if reason == "" {
			return authorizer.DecisionDeny, none, nil
		}
		return authorizer.DecisionDeny, fmt.Sprintf("%s (%s)", none, reason), nil
	}
}

// refuseImpersonation answers a request that wants to act as somebody else.
// Ignoring the wish would do as an administrator what was asked for as another.
func refuseImpersonation(next http.Handler, answers runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				err := apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, r.Header.Get("Impersonate-User"), errors.New("acting as another user is not offered"))
				responsewriters.ErrorNegotiated(err, answers, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
