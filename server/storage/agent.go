package storage

import (
	"context"
	"net/http"
	"strings"
)

// agentKey is the key of a request's program in its context.
type agentKey struct{}

// WithAgent notes in the context of each request which program sends it, by the
// product in its User-Agent: kubectl.
func WithAgent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		product, _, _ := strings.Cut(r.UserAgent(), " ")
		product, _, _ = strings.Cut(product, "/")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), agentKey{}, product)))
	})
}

// agentOf is the program that sends the request.
func agentOf(ctx context.Context) string {
	agent, _ := ctx.Value(agentKey{}).(string)
	return agent
}
