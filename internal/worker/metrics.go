package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metrics of a worker. Labels come from closed sets only.
type metrics struct {
	turns        *prometheus.CounterVec
	turnSeconds  prometheus.Histogram
	claims       *prometheus.CounterVec
	redeliveries prometheus.Counter
	swept        prometheus.Counter
	inFlight     prometheus.Gauge
}

func newMetrics(r *prometheus.Registry, calls *timelimit.Calls, answers *admission.Answers, waiting *restore.Watch) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	buckets := prometheus.ExponentialBuckets(0.001, 2.5, 14)
	m := &metrics{
		turns:        counter("turnpike_turns_total", "Committed turns by transition reason.", "reason"),
		turnSeconds:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "turnpike_turn_duration_seconds", Help: "From claim to commit.", Buckets: buckets}),
		claims:       counter("turnpike_claims_total", "Turn messages by what the claim found.", "outcome"),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_redeliveries_total", Help: "Turn messages delivered more than once."}),
		swept:        prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_sweeper_publishes_total", Help: "Turns published by the sweeper: lost messages and lost workers."}),
		inFlight:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "turnpike_turns_in_flight", Help: "Turns that this worker holds."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.turns, m.turnSeconds, m.claims, m.redeliveries, m.swept, m.inFlight,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_abandoned_calls", Help: "Calls of tools, hooks and models that ignore that their time is over, and still run."},
			func() float64 { return float64(calls.Abandoned()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_answer_bytes", Help: "Memory reserved for the answers of tools."},
			func() float64 { return float64(answers.Bytes()) }),
	} {
		errs = append(errs, r.Register(c))
	}
	// The gateway of the same process may have it.
	err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_" + restore.Name, Help: restore.MetricText}, func() float64 {
		if waiting.Waiting() {
			return 1
		}
		return 0
	}))
	if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); !twice {
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}

// observe writes the one line and the figures of a committed turn.
func (t *turn) observe(done state.Committed) {
	took := time.Since(t.started)
	reason := string(t.s.Transition.Reason)
	t.w.metrics.turns.WithLabelValues(reason).Inc()
	t.w.metrics.turnSeconds.Observe(took.Seconds())
	if !t.w.log.Enabled(context.Background(), slog.LevelDebug) {
		return // the arguments cost several allocations
	}
	t.w.log.Debug("turn", "run_id", t.s.ID,
		"turn", t.s.Turn, "version", done.Version, "reason", reason, "status", done.Status, "attempt", t.claim.Attempt,
		"input_tokens", t.s.Usage.InputTokens-t.claim.Usage.InputTokens, "output_tokens", t.s.Usage.OutputTokens-t.claim.Usage.OutputTokens,
		"tool_calls", t.s.Usage.ToolCalls-t.claim.Usage.ToolCalls, "duration_ms", took.Seconds()*1000)
}
