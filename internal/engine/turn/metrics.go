package turn

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metrics of turns. Their labels have few values.
type metrics struct {
	turns        *prometheus.CounterVec
	turnSeconds  prometheus.Histogram
	claims       *prometheus.CounterVec
	begun        *prometheus.CounterVec
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
		begun:        counter("turnpike_turns_begun_total", "Claimed turns by the queue of their message and by where their log comes from.", "queue", "log"),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_redeliveries_total", Help: "Turn messages delivered more than once."}),
		inFlight:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "turnpike_turns_in_flight", Help: "Turns that this worker holds."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.turns, m.turnSeconds, m.claims, m.begun, m.redeliveries, m.inFlight} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// begin counts a claimed turn.
func (m *metrics) begin(msg bus.Turn, c *state.Claim) {
	queue := "lane"
	if msg.Sticky != "" {
		queue = "sticky"
	}
	m.begun.WithLabelValues(queue, logSource(c)).Inc()
}

// logSource says where the log of a claimed turn comes from: "new" for a first turn, else "memory", "store" if all of it
// was read, or "end" if a part was.
func logSource(c *state.Claim) string {
	switch {
	case c.State.Turn == 0:
		return "new"
	case c.LogOmitted || c.LogRead > 0 && c.LogRead >= int64(len(c.State.Log)):
		return "store"
	case c.LogRead > 0:
		return "end"
	default:
		return "memory"
	}
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
