package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// unanswered is a store that does its work but loses the answers to the first claim, the first record and the
// first read of an agent.
type unanswered struct {
	state.Store

	claims, records, agents atomic.Int64
}

var errNoAnswer = errors.New("no answer")

func (u *unanswered) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	c, err := u.Store.Claim(ctx, q)
	if u.claims.Add(1) == 1 {
		return nil, errors.Join(errNoAnswer, err)
	}
	return c, err
}

func (u *unanswered) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	abort, err := u.Store.Record(ctx, l, r)
	if u.records.Add(1) == 1 {
		return nil, errors.Join(errNoAnswer, err)
	}
	return abort, err
}

func (u *unanswered) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	a, err := u.Store.Agent(ctx, tenant, name, version)
	if u.agents.Add(1) == 1 {
		return state.AgentVersion{}, errors.Join(errNoAnswer, err)
	}
	return a, err
}

// A run whose claim, agent read or journal write got no answer does not wait for the end of an unused lease.
// Its turn does not count as one that killed its worker (I2).
func TestLostAnswersDelayNoRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["once"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "done"}, nil })
	store := &unanswered{Store: s.store}
	s.workOn(store, s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "once"}}, call("once", "c1"), model.Scripted{Text: "end"})
	s.awaitReason(id, state.EndCompleted)
	if n := store.records.Load(); n < 2 {
		t.Errorf("%d records: none was retried", n)
	}
	if n := store.agents.Load(); n < 2 {
		t.Errorf("%d agent reads: none was retried", n)
	}
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range state.Audit(log) {
		if row.Attempt > 1 {
			t.Errorf("turn %d took %d attempts, want 1", row.Turn, row.Attempt)
		}
	}
}

// upgraded is a store with a run that a newer build writes while this worker has its lease: the worker's records are
// refused until it has released the run.
type upgraded struct {
	state.Store

	released atomic.Bool
	refused  atomic.Int64
}

func (u *upgraded) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	if !u.released.Load() {
		u.refused.Add(1)
		return nil, fmt.Errorf("run %s: %w", l.Run, state.ErrFormat)
	}
	return u.Store.Record(ctx, l, r)
}

func (u *upgraded) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	err := u.Store.Release(ctx, l, delay)
	u.released.Store(true)
	return err
}

// A worker releases a run in a newer format at its first write to the journal, because no retry of the write can
// succeed. The attempt does not count (I2).
func TestJournalOfANewerRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["once"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "done"}, nil })
	store := &upgraded{Store: s.store}
	s.workOn(store, s.config())
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "once"}}, call("once", "c1"), model.Scripted{Text: "end"})
	s.awaitReason(id, state.EndCompleted)
	if n := store.refused.Load(); n > 2 { // the write, and the hand-in of the results that it had
		t.Errorf("the worker tried %d times to write the journal of a run that it cannot write, want at most 2", n)
	}
}
