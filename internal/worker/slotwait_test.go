package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// late starts a worker, makes turns of the normal lane take its two slots, and makes it receive a turn of the high lane,
// whose reader asked for a message while a slot was free. Nothing but the worker itself gives that message back.
func (s *deployment) late() (id state.RunID, taken *blocking, r *prometheus.Registry, stop func()) {
	s.t.Helper()
	s.bus.AckWait = 24 * time.Hour // the bubble's clock
	taken, r = newBlocking(), prometheus.NewRegistry()
	s.tools["wait"] = taken
	cfg := s.config()
	cfg.Slots, cfg.Registry, cfg.RedeliveryDelay, cfg.SweepInterval = 2, r, time.Hour, time.Hour
	stop = s.work(cfg)
	synctest.Wait() // until each queue has a reader
	for range cfg.Slots {
		s.submit(state.Limits{MaxTurns: 1}, []agent.Tool{{Name: "wait"}}, call("wait", "c1"))
		<-taken.started
	}
	id = s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
	s.publishTo(id, bus.QueueKey{Lane: state.High})
	synctest.Wait() // until the worker has the message
	return id, taken, r, stop
}

// A worker that has a message and no slot for it gives the message back if no slot becomes free soon, or if the worker
// stops: another worker takes it.
func TestMessageWithoutASlotIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newDeployment(t)
			id, _, _, stop := s.late()
			if stops {
				stop()
			}
			other, err := s.bus.Turns(t.Context(), bus.QueueKey{Lane: state.High})
			if err != nil {
				t.Fatal(err)
			}
			within, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if d, err := other.Next(within); err != nil || d.Turn().Run != id || d.Delivered() != 2 {
				t.Errorf("stopped %v: another reader gets %+v, %v; want the second delivery", stops, d, err)
			}
		})
	}
}

// A worker that has a message and no slot for it takes the turn if a slot becomes free soon.
func TestMessageWaitsForASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		id, taken, r, _ := s.late()
		close(taken.release) // of both slots: the reader of the normal lane waits for one too
		s.awaitReason(id, state.EndCompleted)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if n := f.GetMetric()[0].GetCounter().GetValue(); f.GetName() == "turnpike_redeliveries_total" && n != 0 {
				t.Errorf("%v messages were given back, want none", n)
			}
		}
	})
}
