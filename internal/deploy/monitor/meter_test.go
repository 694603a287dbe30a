package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/deploy/monitor"
	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// refusing is a bus that stores no dead letters.
type refusing struct{ *membus.Bus }

func (refusing) DeadLetter(context.Context, bus.DeadLetter) error { return errAway }

// letters returns the dead letters that a process counts, by kind.
func letters(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	return counts(t, r, "turnpike_dead_letters_total")
}

// counts returns the values of a counter by its label.
func counts(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return counted
}

// The dead letters that a process stores are counted by kind; one that is not stored is not counted.
func TestDeadLettersAreCounted(t *testing.T) {
	t.Parallel()
	m, r := meter(t)
	stored := membus.New()
	counting := monitor.Count(stored, m)
	for _, d := range []bus.DeadLetter{
		{Kind: bus.DeadTrigger, Key: "t1", Message: "m1"}, {Kind: bus.DeadTrigger, Key: "t1", Message: "m2"}, {Kind: bus.DeadWebhook, Message: "e1"},
	} {
		if err := counting.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := monitor.Count(refusing{stored}, m).DeadLetter(t.Context(), bus.DeadLetter{Kind: bus.DeadWebhook, Message: "e2"}); !errors.Is(err, errAway) {
		t.Errorf("a letter that was not stored: %v", err)
	}
	want := map[string]float64{string(bus.DeadTrigger): 2, string(bus.DeadWebhook): 1}
	if got := letters(t, r); !maps.Equal(got, want) {
		t.Errorf("dead letters: %v, want %v", got, want)
	}
}

// replying is a store whose check of its readiness has an error.
type replying struct {
	state.Store

	err error
}

func (s replying) Ready(context.Context) error { return s.err }

// A refusal is an answer of the store, which is not counted as an error, and neither is a caller that has left.
func TestRefusalsAreAnswers(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nil, state.ErrNotFound, state.ErrDeleted, state.ErrFenced, state.ErrIdempotencyConflict, state.ErrChanged, state.ErrUnconsumedSignals, state.ErrFormat, state.ErrDeleting, state.ErrMoved,
		restore.ErrWaiting, onestore.ErrDiffers, &state.NotWaitingError{}, &state.TerminalError{}, &state.NotEndedError{}, &state.TooLargeError{}, &state.GapError{},
		&state.InboxFullError{}, &state.InvalidCursorError{}, &state.BusyError{}, context.Canceled,
	} {
		if err != nil {
			err = fmt.Errorf("read: %w", err)
		}
		m, r := meter(t)
		if got := monitor.Measure(replying{err: err}, m).Ready(t.Context()); !errors.Is(got, err) {
			t.Errorf("the caller gets %v, want %v", got, err)
		}
		if n := counts(t, r, "turnpike_store_errors_total"); len(n) != 0 {
			t.Errorf("%v is counted as an error: %v", err, n)
		}
	}
}

// An operation without an answer is counted, also one that took too long, and one whose write may be lost.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	m, r := meter(t)
	for _, err := range []error{errAway, context.DeadlineExceeded, &state.UnconfirmedError{}} {
		if got := monitor.Measure(replying{err: err}, m).Ready(t.Context()); !errors.Is(got, err) {
			t.Errorf("the caller gets %v, want %v", got, err)
		}
	}
	if got, want := counts(t, r, "turnpike_store_errors_total"), map[string]float64{"ready": 3}; !maps.Equal(got, want) {
		t.Errorf("errors: %v, want %v", got, want)
	}
}
