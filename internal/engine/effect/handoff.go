package effect

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// find looks up the agent to which a run is handed over. It has no effect outside the turn: until the commit
// another attempt may find a later version.
func (s *shared) find(ctx context.Context, t *Turn, effect loop.SwitchAgent) (loop.Event, error) {
	found := loop.AgentFound{Asked: effect}
	a, err := s.agents.Latest(ctx, t.Run.Tenant, effect.Agent)
	invalid, ok := errors.AsType[*definition.InvalidError](err)
	switch {
	case ctx.Err() != nil:
		return loop.Aborted{}, nil
	case ok:
		found.Problem = invalid.Error()
	case err != nil:
		return nil, &NotLoadedError{err}
	case a.Loop.Type == "single_call":
		found.Problem = fmt.Sprintf("the agent %s uses the loop single_call, which cannot continue a conversation: hand off to another agent, or answer yourself", a.Name)
	default:
		found.Agent = state.AgentRef{Name: effect.Agent, Version: a.Version}
		if found.Instructions, err = a.Instruct(a.OwnVariables(t.Run.Variables)); err != nil {
			found.Problem = err.Error()
		}
	}
	found.At = s.clock.Now()
	return found, nil
}
