package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// delayed is a bus on which a test delivers abort requests.
type delayed struct {
	*membus.Bus

	requests chan bus.Message
}

func (d delayed) AbortRequests(context.Context) (bus.Queue, error) { return d, nil }

func (d delayed) Next(ctx context.Context) (bus.Message, error) {
	select {
	case m := <-d.requests:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (delayed) Close() error { return nil }

// abortRequest is an abort that another service has published for a run.
type abortRequest struct {
	run   state.RunID
	acked chan struct{}
}

func (m abortRequest) Key() string             { return string(m.run) }
func (abortRequest) Tenant() string            { return state.DefaultTenant }
func (abortRequest) Data() []byte              { return []byte(`{"reason":"secret"}`) }
func (abortRequest) Header(string) string      { return "" }
func (abortRequest) ID() string                { return "1" }
func (abortRequest) Delivered() int            { return 1 }
func (abortRequest) Nak(_ time.Duration) error { return nil }
func (m abortRequest) Ack() error              { close(m.acked); return nil }

// An abort request that arrives after its run was deleted is acknowledged and leaves no trace: its reason is
// content of the run.
func TestAbortRequestOfADeletedRun(t *testing.T) {
	t.Parallel()
	store, b := memstore.New(memstore.Config{}), delayed{membus.New(), make(chan bus.Message)}
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })

	id := ended(t, store)
	if _, err := retention.New(store, b, retention.Config{}).Delete(ctx, "default", id); err != nil {
		t.Fatal(err)
	}
	m := abortRequest{id, make(chan struct{})}
	b.requests <- m
	select {
	case <-m.acked:
	case <-time.After(time.Minute):
		t.Fatal("the request was not acknowledged")
	}
	if letters, err := b.DeadLetters(ctx, state.DefaultTenant, 0, 10); err != nil || len(letters) > 0 {
		t.Errorf("dead letters %+v, %v; want none", letters, err)
	}
}

// ended stores a run that has ended.
func ended(t *testing.T, store state.Store) state.RunID {
	t.Helper()
	id, err := state.ParseRunID("run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	if err != nil {
		t.Fatal(err)
	}
	s := state.State{ID: id, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, Limits: state.Limits{MaxTurns: 1}}
	now := state.At(time.Now())
	if s, err = s.Move(state.Submitted, state.Entry{At: now, Messages: []state.Message{state.UserText("hi")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), state.NewRun{State: s, RedeliveryDelay: time.Minute}); err != nil {
		t.Fatal(err)
	}
	c, err := store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "t", Worker: "w", Lease: time.Minute})
	if err != nil || c.Outcome != state.Claimed {
		t.Fatal(c.Outcome, err)
	}
	if s, err = c.State.Move(state.EndCompleted, state.Entry{At: now}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &s, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	return id
}
