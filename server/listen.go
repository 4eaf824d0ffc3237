package server

import (
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Bounds of a connection.
const (
	headerTimeout = 20 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 1 << 20
	maxStreams    = 250
	streamBuffer  = 256 << 10
)

func (s *Server) newHTTP() *http.Server {
	return &http.Server{
		Handler: s.verified(s.dispatch()),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.cfg.Certificate,
			// Not verified in the handshake, where a refused client only learns that its
			// connection broke, but before any handler: see verified.
			ClientAuth: tls.RequestClientCert,
			ClientCAs:  s.cfg.CA, // which certificate to send
			// In our order of preference. HTTP/2 is for those who know nothing else, which
			// gRPC does: curl 7.88, Debian 12's, sends nothing of a body of unknown length
			// on its second HTTP/2 stream, so a git push of more than 1 MB would hang.
			NextProtos: []string{"http/1.1", "h2"},
		},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     streamBuffer,
			MaxReceiveBufferPerConnection: 8 * streamBuffer,
		},
		ErrorLog: log.New(connectionLog{s.cfg.Log}, "", 0),
	}
}

// connectionLog takes what net/http says about single connections: scanners and
// clients that break off, which is nobody's problem here.
type connectionLog struct{ log *slog.Logger }

func (c connectionLog) Write(p []byte) (int, error) {
	c.log.Debug("connection", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

// dispatch sends a request to the part of the server that it is for.
func (s *Server) dispatch() http.Handler {
	prefixes := make([]string, 0, len(s.cfg.Extra)+1)
	handlers := map[string]http.Handler{}
	for prefix, h := range s.cfg.Extra {
		handlers[prefix] = h
		prefixes = append(prefixes, prefix)
	}
	if s.cfg.Git != nil {
		handlers["/git/"] = s.cfg.Git
		prefixes = append(prefixes, "/git/")
	}
	slices.Sort(prefixes)
	slices.Reverse(prefixes) // the longest of two that fit comes first
	var sessions http.Handler
	if s.cfg.GRPC != nil {
		sessions = s.endAtStop(s.cfg.GRPC)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sessions != nil && r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			sessions.ServeHTTP(w, r)
			return
		}
		for _, prefix := range prefixes {
			if strings.HasPrefix(r.URL.Path, prefix) {
				handlers[prefix].ServeHTTP(w, r)
				return
			}
		}
		s.api.Handler.ServeHTTP(w, r)
	})
}
