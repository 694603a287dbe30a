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
