package route

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// healthServers answer on the healthCheckNodePort of Services whose packets from
// outside stay on the node: 200 with endpoints here, 503 without. Whatever
// balances load in front of the nodes asks.
type healthServers struct {
	log *slog.Logger

	mu     sync.Mutex
	wanted map[name]health
	open   map[int32]*healthServer
	failed map[int32]bool // so that it is said once
	done   sync.WaitGroup
}

type health struct {
	port  int32
	local int
}

type healthServer struct {
	server *http.Server
	of     name
	local  atomic.Int64
}

func newHealthServers(log *slog.Logger) *healthServers {
	return &healthServers{log: log, wanted: map[name]health{}, open: map[int32]*healthServer{}, failed: map[int32]bool{}}
}

// set says what is to be answered for a Service; port 0: nothing.
func (h *healthServers) set(n name, port int32, local int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.wanted, n)
	if port != 0 {
		h.wanted[n] = health{port, local}
	}
}

// apply opens and closes ports. A port that is taken is tried again the next time.
func (h *healthServers) apply() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for port, s := range h.open {
		if h.wanted[s.of].port != port {
			h.shut(port, s)
		}
	}
	for n, w := range h.wanted {
		s := h.open[w.port]
		if s == nil {
			s = h.listen(n, w.port)
		}
		if s != nil && s.of == n {
			s.local.Store(int64(w.local))
		}
	}
}

func (h *healthServers) shut(port int32, s *healthServer) {
	if err := s.server.Close(); err != nil {
		h.log.Warn("health check port not closed", "port", port, "service", s.of, "error", err)
	}
	delete(h.open, port)
}

func (h *healthServers) listen(n name, port int32) *healthServer {
	l, err := net.Listen("tcp4", ":"+strconv.Itoa(int(port)))
	if err != nil {
		if !h.failed[port] {
			h.log.Error("health check port not opened, tried again later", "port", port, "service", n, "error", err)
		}
		h.failed[port] = true
		return nil
	}
	delete(h.failed, port)
	s := &healthServer{of: n}
	s.server = &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10,
	}
	h.open[port] = s
	h.done.Go(func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("health check port closed", "port", port, "service", n, "error", err)
		}
	})
	return s
}

// ServeHTTP answers in the words that kube-proxy uses.
func (s *healthServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	local := s.local.Load()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	answer := map[string]any{
		"service":        map[string]string{"namespace": s.of.namespace, "name": s.of.name},
		"localEndpoints": local, "serviceProxyHealthy": true,
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		return // the asker has gone
	}
}

// close closes all ports and waits for those who answer there.
func (h *healthServers) close() {
	h.mu.Lock()
	for port, s := range h.open {
		h.shut(port, s)
	}
	h.mu.Unlock()
	h.done.Wait()
}
