package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A provider that panics when a call tests its model does not keep later calls from testing it.
func TestTrialPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, calls := newDeployment(t), 0
		cfg := s.config()
		cfg.Providers["openai"] = generator(func(context.Context, model.Request) (model.Response, error) {
			switch calls++; calls {
			case 1:
				return model.Response{}, &model.Error{Class: model.Overloaded, Streamed: true, RetryAfter: time.Millisecond}
			case 2:
				panic("ouch")
			}
			return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "done"}}, Stop: model.StopEnd}, nil
		})
		cfg.Breakers = model.BreakerPolicy{Failures: 1, Rest: time.Second}
		s.work(cfg)
		s.awaitReason(s.submitTo(agent.Definition{Name: "a", Model: agent.Model{Provider: "openai", Name: "m"}}), state.EndCompleted)
	})
}
