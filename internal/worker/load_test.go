package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// slowAgents is a store that answers the first read of an agent only when the caller gives up.
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

// An abort while a worker loads an agent for the first time ends the run at once, not at the end of the lease
// (I7).
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
		t.Errorf("the run ended at attempt %d: the worker dropped the first one with its lease", end.Attempt)
	}
}
