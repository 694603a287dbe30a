package turnpiketest

import (
	"context"
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// oneTurn is a queue that always has a message.
type oneTurn struct{ bus.TurnQueue }

func (oneTurn) Next(context.Context) (bus.TurnDelivery, error) { return nil, nil }

// A worker that has crashed changes neither runs nor leases, gives nothing back and is not heard: it has neither a
// store nor a bus here, so a call that reaches them panics.
func TestCrashedWorkerIsCutOff(t *testing.T) {
	t.Parallel()
	dead := &life{dead: true}
	s, w, d := store{life: dead}, wire{life: dead}, delivery{life: dead}
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Claim":         func() error { _, err := s.Claim(ctx, state.ClaimRequest{}); return err },
		"Renew":         func() error { _, err := s.Renew(ctx, state.Lease{}, 1, 1); return err },
		"Record":        func() error { _, err := s.Record(ctx, state.Lease{}, state.Record{}); return err },
		"Commit":        func() error { _, err := s.Commit(ctx, state.Lease{}, state.Commit{}); return err },
		"Release":       func() error { return s.Release(ctx, state.Lease{}, 0) },
		"Signal":        func() error { _, err := s.Signal(ctx, "run", state.Signal{}, 0); return err },
		"Abort":         func() error { _, err := s.Abort(ctx, "run", state.Abort{}, 0); return err },
		"Create":        func() error { _, err := s.Create(ctx, state.NewRun{}); return err },
		"Sweep":         func() error { _, err := s.Sweep(ctx, 1, 1, state.Backlog{}); return err },
		"Evict":         func() error { _, err := s.Evict(ctx, "worker", 1, 1); return err },
		"Heartbeat":     func() error { return s.Heartbeat(ctx, "worker", 1) },
		"MarkFinalized": func() error { return s.MarkFinalized(ctx, "run", 1) },
		"PublishTurn":   func() error { return w.PublishTurn(ctx, bus.Turn{}, "id") },
		"PublishAbort":  func() error { return w.PublishAbort(ctx, bus.Abort{}) },
		"DeadLetter":    func() error { return w.DeadLetter(ctx, bus.DeadLetter{}) },
		"Next":          func() error { _, err := queue{oneTurn{}, dead}.Next(ctx); return err },
		"Ack":           d.Ack,
		"Nak":           func() error { return d.Nak(0) },
		"InProgress":    d.InProgress,
	} {
		if err := reached(call); !errors.Is(err, errCrashed) {
			t.Errorf("%s of a crashed worker: %v, want %v", name, err, errCrashed)
		}
	}
	for name, call := range map[string]func(){
		"SendHeartbeat":  func() { w.SendHeartbeat(bus.Heartbeat{}) },
		"NotifyAppended": func() { w.NotifyAppended("tenant", "run", 1, 2) },
		"PublishLive":    func() { w.PublishLive("run", nil) },
	} {
		if err := reached(func() error { call(); return nil }); err != nil {
			t.Errorf("%s of a crashed worker: %v", name, err)
		}
	}
}

// reached returns what a call returns, and an error if it panics.
func reached(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the call reaches the store or the bus")
		}
	}()
	return call()
}
