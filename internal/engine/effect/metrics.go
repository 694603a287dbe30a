package effect

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metrics of effects. Their labels have few values.
type metrics struct {
	modelSeconds prometheus.Histogram
	modelErrors  *prometheus.CounterVec
	toolCalls    *prometheus.CounterVec
	probes       *prometheus.CounterVec
	tokens       *prometheus.CounterVec
	rateWaits    *prometheus.CounterVec
	rateSeconds  prometheus.Histogram
	ratePauses   prometheus.Counter
}

func newMetrics(r *prometheus.Registry) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	buckets := prometheus.ExponentialBuckets(0.001, 2.5, 14)
	m := &metrics{
		modelSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "turnpike_model_call_duration_seconds", Help: "Model calls, retries included.", Buckets: buckets}),
		modelErrors:  counter("turnpike_model_errors_total", "Model calls that failed, by class.", "class"),
		toolCalls:    counter("turnpike_tool_calls_total", "Tool calls by whether the result is an error.", "is_error"),
		probes:       counter("turnpike_probes_total", "Calls of lost workers about which a probe was asked, by what it said.", "outcome"),
		tokens:       counter("turnpike_tokens_total", "Tokens by direction.", "direction"),
		rateWaits:    counter("turnpike_rate_limit_waits_total", "Waits for a rate limit: in the turn, or in the schedule.", "where"),
		rateSeconds:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "turnpike_rate_limit_wait_seconds", Help: "Waits for a rate limit.", Buckets: buckets}),
		ratePauses:   prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_rate_limit_pauses_total", Help: "Calls that a provider refused with a rate limit, which all workers then keep."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.modelSeconds, m.modelErrors, m.toolCalls, m.probes, m.tokens, m.rateWaits, m.rateSeconds, m.ratePauses} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// waited counts a wait of d for a rate limit; where is turn or schedule.
func (m *metrics) waited(where string, d time.Duration) {
	m.rateWaits.WithLabelValues(where).Inc()
	m.rateSeconds.Observe(d.Seconds())
}

// spent counts the tokens of a model call.
func (m *metrics) spent(u state.Usage) {
	m.tokens.WithLabelValues("input").Add(float64(u.InputTokens))
	m.tokens.WithLabelValues("output").Add(float64(u.OutputTokens))
}
