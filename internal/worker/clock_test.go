package worker_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A worker clock that differs from the store's does not make a run spin: the store wakes a run by the store's
// clock, and a turn uses the same clock.
func TestClocksDiffer(t *testing.T) {
	for _, skew := range []time.Duration{-5 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newDeployment(t)
			s.store = memstore.New(memstore.Config{Now: func() time.Time { return time.Now().Add(skew) }})
			for range 10 {
				s.work(s.config())
			}
			waits := func(id state.RunID, reason state.Reason) (n int) {
				log, err := s.store.Log(t.Context(), id, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range log {
					if e.Reason == reason {
						n++
					}
				}
				return n
			}
			storeNow := func() time.Time { return time.Now().Add(skew) }

			at := state.At(storeNow().Add(5 * time.Second))
			later := s.createLater(at)
			s.awaitReason(later, state.EndCompleted)
			if n := waits(later, state.WaitingSchedule); n != 1 {
				t.Errorf("skew %s: a run with a later start has waited %d times", skew, n)
			}

			overloaded := model.Scripted{Error: model.Overloaded} // twice within the turn
			failed := s.submit(state.Limits{}, nil, overloaded, overloaded, overloaded, model.Scripted{Text: "done"})
			s.awaitReason(failed, state.EndCompleted)
			if n := waits(failed, state.WaitingSchedule); n != 1 {
				t.Errorf("skew %s: a run with one failed call has waited %d times", skew, n)
			}

			deadline := state.Limits{DeadlineAt: state.At(storeNow().Add(3 * time.Second))}
			asked := s.submit(deadline, []agent.Tool{{Name: "ask", Kind: "human"}}, model.Scripted{ToolCalls: []model.ScriptedCall{{ID: "c1", Name: "ask", Arguments: json.RawMessage(`{"question":"well?"}`)}}})
			st := s.awaitReason(asked, state.EndDeadline)
			if n := waits(asked, state.WaitingHumanInput); n != 1 || st.FinishedAt.Before(deadline.DeadlineAt.Time) {
				t.Errorf("skew %s: a run with a deadline has waited %d times, until %s", skew, n, st.FinishedAt)
			}
		})
	}
}

// remoteAgents is a store whose agent reads fail once the caller's context has ended.
type remoteAgents struct{ state.Store }

func (s remoteAgents) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	if err := ctx.Err(); err != nil {
		return state.AgentVersion{}, err
	}
	return s.Store.Agent(ctx, tenant, name, version)
}

// A deadline that passes before a worker has loaded the agent ends the run: the worker still loads the agent,
// because only its loop can end the run.
func TestDeadlineBeforeTheAgentIsLoaded(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.workOn(remoteAgents{s.store}, s.config())
	id := s.submit(state.Limits{DeadlineAt: state.At(time.Now().Add(-time.Second))}, nil, model.Scripted{Text: "too late"})
	if st := s.awaitReason(id, state.EndDeadline); st.Usage.ModelCalls != 0 {
		t.Errorf("%d model calls, want 0", st.Usage.ModelCalls)
	}
}
