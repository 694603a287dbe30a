package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// leaseCounts is a store that counts the requests that need a lease.
type leaseCounts struct {
	state.Store

	renewals, commits atomic.Int64
}

func (c *leaseCounts) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	c.renewals.Add(1)
	return c.Store.Renew(ctx, l, lease, delay)
}

func (c *leaseCounts) Commit(ctx context.Context, l state.Lease, done state.Commit) (state.Committed, error) {
	c.commits.Add(1)
	return c.Store.Commit(ctx, l, done)
}

// A worker drops a run that the store has lost in a failover to an older replica at the first such response. It
// does not keep asking until the lease ends.
func TestLostRunIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		waits bool // the tool waits until the turn ends
	}{{"at the commit", false}, {"at the renewal", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			memory := s.store.(*memstore.Store) //nolint:forcetypeassert // set by newDeployment
			empty := memory.Snapshot()
			store := &leaseCounts{Store: s.store}
			called, why := make(chan struct{}), make(chan error, 1)
			s.tools["lose"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				memory.Restore(empty)
				store.renewals.Store(0) // a busy machine may have needed renewals before
				close(called)
				if test.waits {
					<-ctx.Done()
				}
				why <- context.Cause(ctx)
				return tool.Result{Content: "done"}, nil
			})
			cfg := s.config()
			cfg.ShutdownGrace = time.Hour
			if test.waits {
				cfg.LeaseDuration = 600 * time.Millisecond
			}
			stop := s.workOn(store, cfg)
			s.submit(state.Limits{}, []agent.Tool{{Name: "lose"}}, call("lose", "c1"), model.Scripted{Text: "end"})
			<-called
			stop()
			if err := <-why; test.waits && !errors.Is(err, state.ErrFenced) {
				t.Errorf("the call ended with %v", err)
			}
			if n := store.renewals.Load(); n > 2 {
				t.Errorf("the worker made %d lease requests for a run that the store has lost", n)
			}
			if n := store.commits.Load(); n > 1 {
				t.Errorf("the worker tried %d times to commit a turn of a run that the store has lost", n)
			}
		})
	}
}

// The dead letter of a run that the store has lost belongs to the run's tenant only.
func TestLostRunOfATenant(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	lost := map[string]state.RunID{"acme": state.RunPrefix + state.RunID(ulid.Make().String()), state.DefaultTenant: state.RunPrefix + state.RunID(ulid.Make().String())}
	for tenant, id := range lost {
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal, Tenant: tenant}, tenant); err != nil {
			t.Fatal(err)
		}
	}
	cfg := s.config()
	cfg.SweepInterval = 10 * time.Millisecond
	defer s.workOn(s.store, cfg)()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for tenant, id := range lost {
		for {
			letters, err := s.bus.DeadLetters(t.Context(), tenant, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			if len(letters) > 1 || len(letters) == 1 && letters[0].Run != id {
				t.Fatalf("tenant %s has the dead letters %+v, want that of %s", tenant, letters, id)
			}
			if len(letters) == 1 {
				break
			}
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("tenant %s has no dead letter of %s", tenant, id)
			}
		}
	}
}
