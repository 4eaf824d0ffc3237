package server

import (
	"context"
	"net/http"

	"headway.dev/headway/server/storage"
	"k8s.io/apimachinery/pkg/util/sets"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/routine"
)

// longRunning says which requests have no deadline.
func longRunning(r *http.Request, info *apirequest.RequestInfo) bool {
	return filters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("log", "exec", "attach", "portforward", "proxy"))(r, info)
}

// chain is what a request to the API goes through, innermost first here.
func (s *Server) chain(api http.Handler, c *genericserver.Config) http.Handler {
	h := genericfilters.WithAuthorization(api, c.Authorization.Authorizer, c.Serializer)
	h = filters.WithMaxInFlightLimit(h, c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.LongRunningFunc)
	h = refuseImpersonation(h, c.Serializer)
	h = genericfilters.WithAuthentication(h, c.Authentication.Authenticator, genericfilters.Unauthorized(c.Serializer), c.Authentication.APIAudiences, nil)
	h = genericfilters.WithWarningRecorder(h)
	h = filters.WithTimeoutForNonLongRunningRequests(h, c.LongRunningFunc)
	h = genericfilters.WithRequestDeadline(h, nil, nil, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	h = genericfilters.WithCacheControl(h)
	h = routine.WithRoutine(h, c.LongRunningFunc)
	h = s.endLongRunning(h)
	h = genericfilters.WithRequestInfo(h, c.RequestInfoResolver)
	h = storage.WithAgent(h)
	h = genericfilters.WithRequestReceivedTimestamp(h)
	h = filters.WithPanicRecovery(h, c.RequestInfoResolver)
	return genericfilters.WithAuditInit(h)
}

// endLongRunning ends watches, followed logs and ways into pods as soon as the server stops, so
// that clients go to another server while this one still answers the rest.
func (s *Server) endLongRunning(next http.Handler) http.Handler {
	ending := s.endAtStop(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := apirequest.RequestInfoFrom(r.Context()); ok && longRunning(r, info) {
			ending.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// endAtStop cancels a request when the server stops.
func (s *Server) endAtStop(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.serving, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
