package dns

import (
	"errors"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// Where an answer came from, as the metric names it.
const (
	sourceCluster  = "cluster"
	sourceCache    = "cache"
	sourceUpstream = "upstream"
	sourceRefused  = "refused"
)

// Why a packet or a connection got no answer.
const (
	dropMalformed = "malformed" // no DNS question can be read in it
	dropStranger  = "stranger"  // from neither this machine nor its pods
	dropBusy      = "busy"      // as many questions or connections wait as may
	dropPanic     = "panic"
)

type metrics struct {
	answers  *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headway_dns_answers_total",
			Help: "Questions answered, by where the answer came from and its code."}, []string{"source", "rcode"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headway_dns_dropped_total",
			Help: "Packets and connections without an answer, by reason."}, []string{"reason"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "headway_dns_upstream_failures_total",
			Help: "Tries at the node's resolvers that brought no answer."}),
	}
	if r == nil {
		return m, nil
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.answers, m.dropped, m.failures,
		gauge("headway_dns_services", "Services with a name.", s.zone.size),
		gauge("headway_dns_cache_entries", "Answers of others that are kept.", func() int { n, _ := s.forward.cache.size(); return n }),
		gauge("headway_dns_cache_bytes", "What they take.", func() int { _, n := s.forward.cache.size(); return n }),
		gauge("headway_dns_waiting", "Questions that wait for a resolver.", s.waiting.size),
		gauge("headway_dns_up", "1 while questions can be asked.", func() int {
			if s.up.Load() {
				return 1
			}
			return 0
		}),
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) answered(source string, rcode int) {
	m.answers.WithLabelValues(source, dns.RcodeToString[rcode]).Inc()
}

func (m *metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }
