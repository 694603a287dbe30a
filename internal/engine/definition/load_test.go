package definition_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// stuck is a store that does not answer.
type stuck struct{ state.Agents }

func (stuck) Agent(ctx context.Context, _, _ string, _ int) (state.AgentVersion, error) {
	<-ctx.Done()
	return state.AgentVersion{}, ctx.Err()
}

// The loading of an agent ends after a minute, so that its turn keeps neither its slot nor its lease forever, and the
// error does not end the run.
func TestLoadingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		agents := definition.New(stuck{}, definition.Config{Patience: time.Hour})
		began := time.Now() // the bubble's clock
		_, err := agents.Get(t.Context(), state.DefaultTenant, "a", 1)
		if _, invalid := errors.AsType[*definition.InvalidError](err); invalid || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get = %v, want an error that may pass", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Get took %s, want a minute", took)
		}
	})
}

// flaky is a store that fails a number of times before it answers that it has no such agent.
type flaky struct {
	state.Agents

	fails int
	reads *int
}

func (f flaky) Agent(context.Context, string, string, int) (state.AgentVersion, error) {
	if *f.reads++; *f.reads <= f.fails {
		return state.AgentVersion{}, errors.New("no answer")
	}
	return state.AgentVersion{}, state.ErrNotFound
}

// A read that fails is repeated until the store answers; the answer that the agent does not exist ends the run.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []int{0, 1, 3} {
			reads := 0
			agents := definition.New(flaky{fails: fails, reads: &reads}, definition.Config{Patience: time.Hour})
			_, err := agents.Get(t.Context(), state.DefaultTenant, "a", 1)
			if _, invalid := errors.AsType[*definition.InvalidError](err); !invalid || reads != fails+1 {
				t.Errorf("a store that fails %d times: %d reads, %v; want one more read than failures, and an InvalidError", fails, reads, err)
			}
		}
	})
}
