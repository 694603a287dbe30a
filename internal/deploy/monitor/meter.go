package monitor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Meter has the metrics of a deployment's store, connections and dead letters as one process sees them. It is
// safe for concurrent use.
type Meter struct {
	seconds   *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	connected *prometheus.GaugeVec
	letters   *prometheus.CounterVec

	succeeded atomic.Int64 // when an operation of the store last succeeded, in Unix nanoseconds
	failed    atomic.Bool  // one has failed since the last look
}

// NewMeter returns a meter, and registers its metrics in r if r is not nil. The error is that of the
// registration.
func NewMeter(r *prometheus.Registry) (*Meter, error) {
	m := &Meter{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "turnpike_store_duration_seconds", Help: "Operations of the store, from the call to its result.", Buckets: prometheus.ExponentialBuckets(0.00025, 3, 10),
		}, []string{"operation"}),
		failures:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_store_errors_total", Help: "Operations of the store without an answer."}, []string{"operation"}),
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "turnpike_connected", Help: "1 while the process reaches NATS or the store, else 0."}, []string{"dependency"}),
		letters:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_dead_letters_total", Help: "Dead letters that this process stored, by kind."}, []string{"kind"}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.seconds), r.Register(m.failures), r.Register(m.connected), r.Register(m.letters))
}

func timed[T any](m *Meter, operation string, call func() (T, error)) (T, error) {
	began := time.Now()
	v, err := call()
	now := time.Now()
	m.seconds.WithLabelValues(operation).Observe(now.Sub(began).Seconds())
	switch {
	case answered(err):
		m.succeeded.Store(now.UnixNano())
	case !errors.Is(err, context.Canceled):
		m.failures.WithLabelValues(operation).Inc()
		m.failed.Store(true)
	}
	return v, err
}

func timedErr(m *Meter, operation string, call func() error) error {
	_, err := timed(m, operation, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// answers are the errors that prove that the store has answered.
var answers = []error{
	state.ErrNotFound, state.ErrFenced, state.ErrIdempotencyConflict, state.ErrChanged, state.ErrUnconsumedSignals, state.ErrFormat, state.ErrDeleting, state.ErrMoved, restore.ErrWaiting, onestore.ErrDiffers,
}

// answered reports whether the store answered, be it with a refusal.
func answered(err error) bool {
	if err == nil {
		return true
	}
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return true
		}
	}
	return is[*state.NotWaitingError](err) || is[*state.TerminalError](err) || is[*state.NotEndedError](err) || is[*state.TooLargeError](err) ||
		is[*state.GapError](err) || is[*state.InboxFullError](err) || is[*state.InvalidCursorError](err) || is[*state.BusyError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Bus is a bus that counts dead letters.
type Bus struct {
	bus.Bus

	meter *Meter
}

// Count returns b with its dead letters counted by m.
func Count(b bus.Bus, m *Meter) *Bus { return &Bus{b, m} }

// DeadLetter implements bus.Intake.
func (b *Bus) DeadLetter(ctx context.Context, d bus.DeadLetter) error {
	err := b.Bus.DeadLetter(ctx, d)
	if err == nil {
		b.meter.letters.WithLabelValues(string(d.Kind)).Inc()
	}
	return err
}
