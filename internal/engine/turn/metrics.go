package turn

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metrics of turns. Their labels have few values.
type metrics struct {
	turns        *prometheus.CounterVec
	turnSeconds  prometheus.Histogram
	claims       *prometheus.CounterVec
	redeliveries prometheus.Counter
	inFlight     prometheus.Gauge
}

func newMetrics(r *prometheus.Registry) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		turns: counter("turnpike_turns_total", "Committed turns by transition reason.", "reason"),
		turnSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "turnpike_turn_duration_seconds", Help: "From claim to commit.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14),
		}),
		claims:       counter("turnpike_claims_total", "Turn messages by what the claim found.", "outcome"),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_redeliveries_total", Help: "Turn messages delivered more than once."}),
		inFlight:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "turnpike_turns_in_flight", Help: "Turns that this worker holds."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.turns, m.turnSeconds, m.claims, m.redeliveries, m.inFlight} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// observe logs and counts a committed turn.
func (k *Taker) observe(t *turn, done state.Committed) {
	took := time.Since(t.started)
	reason := string(t.s.Transition.Reason)
	k.metrics.turns.WithLabelValues(reason).Inc()
	k.metrics.turnSeconds.Observe(took.Seconds())
	if !k.cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		return // the arguments cost several allocations
	}
	k.cfg.Log.Debug("turn", "run_id", t.s.ID,
		"turn", t.s.Turn, "version", done.Version, "reason", reason, "status", done.Status, "attempt", t.claim.Attempt,
		"input_tokens", t.s.Usage.InputTokens-t.claim.Usage.InputTokens, "output_tokens", t.s.Usage.OutputTokens-t.claim.Usage.OutputTokens,
		"tool_calls", t.s.Usage.ToolCalls-t.claim.Usage.ToolCalls, "duration_ms", took.Seconds()*1000)
}
