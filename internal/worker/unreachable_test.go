package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// unreachable is a store that answers neither claims nor the sweeper.
type unreachable struct{ state.Store }

func (unreachable) Claim(context.Context, state.ClaimRequest) (*state.Claim, error) {
	return nil, errNoAnswer
}

func (unreachable) Sweep(context.Context, int, time.Duration, state.Backlog) ([]state.Due, error) {
	return nil, errNoAnswer
}

// naks is a bus that reports the delay of each Nak.
type naks struct {
	bus.Bus

	delays chan time.Duration
}

func (n naks) Turns(ctx context.Context, lane bus.QueueKey) (bus.TurnQueue, error) {
	q, err := n.Bus.Turns(ctx, lane)
	return nakQueue{q, n.delays}, err
}

type nakQueue struct {
	bus.TurnQueue

	delays chan time.Duration
}

func (q nakQueue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	d, err := q.TurnQueue.Next(ctx)
	if err != nil {
		return nil, err
	}
	return nakDelivery{d, q.delays}, nil
}

type nakDelivery struct {
	bus.TurnDelivery

	delays chan time.Duration
}

// Nak redelivers the message at once, whatever delay the worker gives.
func (d nakDelivery) Nak(delay time.Duration) error {
	select {
	case d.delays <- delay:
	default:
	}
	return d.TurnDelivery.Nak(0)
}

// While the store does not answer, a turn is redelivered at growing intervals, up to one lease, so that a
// backlog does not keep all workers busy.
func TestBackOffWhileTheStoreIsUnreachable(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b := naks{s.bus, make(chan time.Duration, 6)}
	s.submit(state.Limits{}, nil, model.Scripted{Text: "never"})
	cfg := s.config()
	cfg.SweepInterval, cfg.LeaseDuration = time.Second, 12*time.Second
	s.workWith(unreachable{s.store}, b, cfg)
	var got []time.Duration
	for range cap(b.delays) {
		got = append(got, <-b.delays)
	}
	want := []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 12 * time.Second, 12 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the Nak delays are (-want +got):\n%s", diff)
	}
}
