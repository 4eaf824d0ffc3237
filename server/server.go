package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	genericserver "k8s.io/apiserver/pkg/server"
)

// LogStreamer fetches a container's log from the node that runs it.
type LogStreamer interface {
	Logs(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions) (io.ReadCloser, error)
}

// Config is what a Server is made of. Store, Listener, Certificate, CA and Log
// must be set.
type Config struct {
	Store    *store.Store
	Listener net.Listener // plain TCP; the server speaks TLS on it
	// Certificate gives the server's certificate for each handshake, so that a
	// renewed one is used at once.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	CA          *x509.CertPool          // whose client certificates are let in
	Logs        LogStreamer             // nil: pods/log is refused
	Pods        PodReacher              // nil: no way into pods
	Figures     Meter                   // nil: metrics.k8s.io is not served
	GRPC        http.Handler            // the agents' sessions; it sees only verified or no client certificates
	Git         http.Handler            // under /git/; checks its own tokens
	Extra       map[string]http.Handler // further path prefixes ("/join/"), each checking access itself
	Ready       func() error            // nil: ready as soon as the store is
	Metrics     prometheus.Gatherer     // of Headway's components, shown by /metrics beside the API's own
	Version     string                  // of Headway, for /version
	Now         store.Clock             // default time.Now
	Log         *slog.Logger

	drain time.Duration // default drain
}

// Server is one server's API.
type Server struct {
	cfg     Config
	api     *genericserver.GenericAPIServer
	http    *http.Server
	serving context.Context // ends when long-running requests must end
	stop    context.CancelFunc
}

// New builds the API; it does not serve yet.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Listener == nil || cfg.Certificate == nil || cfg.CA == nil || cfg.Log == nil {
		return nil, errors.New("server: Store, Listener, Certificate, CA and Log must be set")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.drain == 0 {
		cfg.drain = drain
	}
	s := &Server{cfg: cfg}
	s.serving, s.stop = context.WithCancel(context.Background())
	api, err := s.buildAPI()
	if err != nil {
		return nil, fmt.Errorf("build the API: %w", err)
	}
	s.api = api
	s.http = s.newHTTP()
	return s, nil
}

// Handler is everything the listener serves, for tests that bring their own
// listener.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// drain is how long requests may still run once the server stops; watches and
// followed logs end at once.
const drain = 5 * time.Second

// Run serves until ctx ends and every request has ended.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.ServeTLS(s.cfg.Listener, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", s.cfg.Listener.Addr(), err)
	case <-ctx.Done():
	}
	s.stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.drain)
	defer cancel()
	err := s.http.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Log.Warn("requests were cut off at shutdown", "after", s.cfg.drain)
		err = s.http.Close()
	}
	if serveErr := <-served; err == nil && !errors.Is(serveErr, http.ErrServerClosed) {
		err = serveErr
	}
	s.api.Destroy()
	return err
}
