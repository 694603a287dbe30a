package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// slowAgents is a store that answers the first question for an agent when the asker
// gives up.
type slowAgents struct {
	state.Store

	asked chan struct{}
	times *atomic.Int32
}

func (s slowAgents) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	if s.times.Add(1) == 1 {
		close(s.asked)
		<-ctx.Done()
		return state.AgentVersion{}, ctx.Err()
	}
	return s.Store.Agent(ctx, tenant, name, version)
}

// I7: an abort that comes while a worker asks for an agent that it does not know yet ends
// the run at once, and not when the lease does.
func TestAbortWhileTheAgentIsLoaded(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	store := slowAgents{s.store, make(chan struct{}), &atomic.Int32{}}
	s.workOn(store, s.config())
	id := s.submit(state.Limits{}, nil, model.Scripted{Text: "never said"})
	<-store.asked
	s.abort(id)
	s.awaitReason(id, state.EndAbortedQueued)
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if end := log[len(log)-1]; end.Attempt != 1 {
		t.Errorf("the run ended at attempt %d: the first one was dropped with its lease", end.Attempt)
	}
}
