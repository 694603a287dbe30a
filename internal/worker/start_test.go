package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// halfway is a bus on which one lane cannot be opened.
type halfway struct {
	bus.Bus

	open *atomic.Int32
}

type openLane struct {
	bus.TurnQueue

	open *atomic.Int32
}

func (h halfway) Turns(ctx context.Context, lane bus.QueueKey) (bus.TurnQueue, error) {
	if lane.Lane == state.Low {
		return nil, errors.New("no rights")
	}
	q, err := h.Bus.Turns(ctx, lane)
	h.open.Add(1)
	return openLane{q, h.open}, err
}

func (c openLane) Close() error {
	c.open.Add(-1)
	return c.TurnQueue.Close()
}

// A worker that cannot start takes no turns: Run closes what it has opened before it returns.
func TestRunFailsAsAWhole(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b := halfway{s.bus, &atomic.Int32{}}
	w, err := worker.New(s.store, b, s.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("Run = nil")
	}
	if n := b.open.Load(); n != 0 {
		t.Errorf("%d lanes are still open", n)
	}
}
