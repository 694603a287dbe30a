package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Turns that lost three workers run one at a time. Deferring them costs no attempt, and a new turn runs next to
// them.
func TestQuarantinedTurnsAreAlone(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	var together, most atomic.Int64
	started, first := make(chan bool, 3), make(chan struct{})
	s.tools["risky"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		most.Store(max(most.Load(), together.Add(1)))
		defer together.Add(-1)
		started <- true
		select {
		case <-first:
			return tool.Result{Content: "survived"}, nil
		case <-ctx.Done():
			return tool.Result{}, context.Cause(ctx)
		}
	})
	var ids []state.RunID
	for range 3 {
		id := s.create(state.Limits{}, []agent.Tool{{Name: "risky", Idempotent: true}}, call("risky", "c1"), model.Scripted{Text: "done"})
		for i := range 3 {
			c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: fmt.Sprint(i), Worker: "gone", Lease: time.Hour, RedeliveryDelay: time.Second})
			if err != nil || c.Attempt != i+1 {
				t.Fatalf("Claim = %+v, %v", c, err)
			}
			if _, err := s.store.Evict(t.Context(), "gone", 100, s.delay()); err != nil {
				t.Fatal(err)
			}
		}
		ids = append(ids, s.start(id))
	}
	cfg := s.config()
	cfg.Without.Quarantine = false
	s.work(cfg)
	fresh := s.submit(state.Limits{}, nil, model.Scripted{Text: "done"})
	s.awaitReason(fresh, state.EndCompleted)
	<-started
	close(first)
	for _, id := range ids {
		s.awaitReason(id, state.EndCompleted)
		if st, err := s.store.Load(t.Context(), id); err != nil || st.Trouble.Recovered != 3 {
			t.Errorf("run %s: %d attempts recovered, %v, want 3", id, st.Trouble.Recovered, err)
		}
		log, err := s.store.Log(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log {
			if e.Version == 2 && e.Attempt != 4 {
				t.Errorf("run %s: attempt %d, want 4", id, e.Attempt)
			}
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d quarantined turns at once, want 1", most.Load())
	}
}

// A run written by a newer build returns to the queue unchanged, for other workers.
func TestNewerRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	st, err := s.store.Load(t.Context(), s.create(state.Limits{}, nil, model.Scripted{Text: "done"}))
	if err != nil {
		t.Fatal(err)
	}
	st.ID, st.Format = st.ID.Plus(1), state.Format+1
	if _, err := s.store.Create(t.Context(), state.NewRun{State: st}); err != nil {
		t.Fatal(err)
	}
	cfg := s.config()
	cfg.Registry = prometheus.NewRegistry()
	s.work(cfg)
	if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: st.ID, Version: 1, Priority: state.Normal}, "newer"); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deferred := 0.0; deferred < 3; <-tick.C { // it is redelivered each time
		families, err := cfg.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "turnpike_claims_total" && m.GetLabel()[0].GetValue() == "newer" {
					deferred = m.GetCounter().GetValue()
				}
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("the message is not redelivered")
		}
	}
	if letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(letters) != 0 {
		t.Errorf("dead letters %v, %v", letters, err)
	}
}
