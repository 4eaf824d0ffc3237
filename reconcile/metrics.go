package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one loop; the label "loop" tells loops apart.
type metrics struct {
	calls   *prometheus.CounterVec // by result
	seconds prometheus.Histogram
	depth   prometheus.Gauge
	panics  prometheus.Counter
}

// Results of a call, as the metric names them.
const (
	resultDone     = "done"
	resultWait     = "wait"
	resultConflict = "conflict"
	resultTerminal = "terminal"
	resultError    = "error"
	resultPanic    = "panic"
	resultStopped  = "stopped"
)

func newMetrics(r prometheus.Registerer, loop string) *metrics {
	labels := prometheus.Labels{"loop": loop}
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headway_reconcile_total",
			Help: "Keys worked, by how it ended.", ConstLabels: labels}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "headway_reconcile_seconds",
			Help: "Time to work one key.", ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9)}),
		depth: prometheus.NewGauge(prometheus.GaugeOpts{Name: "headway_reconcile_queue",
			Help: "Keys ready to be worked.", ConstLabels: labels}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "headway_reconcile_panics_total",
			Help: "Panics caught while working a key.", ConstLabels: labels}),
	}
	if r != nil {
		m.calls = register(r, m.calls)
		m.seconds = register(r, m.seconds)
		m.depth = register(r, m.depth)
		m.panics = register(r, m.panics)
	}
	return m
}

// register adds c, or returns the one that a former loop of this name added: a
// server that becomes leader again makes its loops again.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	err := r.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if old, ok := before.ExistingCollector.(C); ok {
			return old
		}
	}
	if err != nil {
		panic("reconcile: " + err.Error()) // two metrics of one name and different form: a mistake in the program
	}
	return c
}

func (m *metrics) observe(result string, took time.Duration) {
	m.calls.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
	if result == resultPanic {
		m.panics.Inc()
	}
}
