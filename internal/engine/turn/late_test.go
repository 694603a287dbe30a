package turn_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// expires is a loop that ends the run as expired after the model's response. meanwhile is called before that.
type expires struct {
	loop.Loop

	meanwhile func()
}

func (e expires) Step(s state.State, ev loop.Event) loop.Decision {
	if r, ok := ev.(loop.ModelResponded); ok {
		e.meanwhile()
		return loop.Fail(s, r.At, state.EndExpired, "too late")
	}
	return e.Loop.Step(s, ev)
}

// A signal that arrives before the commit of the expiry keeps the run: another turn receives the signal.
func TestSignalBeforeExpiry(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	say := state.UserText("I am here")
	s.loops["expires"] = func(a *agent.Agent) loop.Loop {
		return expires{loop.React(a), func() {
			if _, err := s.store.Signal(t.Context(), s.id, state.Signal{ID: "s", Message: &say}, time.Second); err != nil {
				t.Error(err)
			}
		}}
	}
	s.submit(agent.Definition{Loop: agent.Loop{Type: "expires"}}, model.Scripted{Text: "end"})
	s.next(t.Context(), "w1")
	if got, want := strings.Join(s.steps, " "), "claim commit release nak"; got != want {
		t.Errorf("steps: %s\nwant:  %s", got, want)
	}
	if r := s.record(); r.Status.Terminal() || r.Version != 1 || r.Attempts != 0 {
		t.Errorf("the run is %s at version %d after %d attempts", r.Status, r.Version, r.Attempts)
	}
}

// A message that arrives before the commit of the end, and before an abort, does not continue the run: its end keeps the
// message.
func TestLateMessageBeforeAnAbort(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	say := state.UserText("and then?")
	s.hooks["say"] = hook.Func(func(ctx context.Context, _ hook.Request) (hook.Answer, error) {
		_, err := s.store.Signal(ctx, s.id, state.Signal{ID: "s", Message: &say}, time.Second)
		if err == nil {
			_, err = s.store.Abort(ctx, s.id, state.Abort{Reason: "enough"}, time.Second)
		}
		return hook.Answer{}, err
	})
	s.submit(agent.Definition{Hooks: &agent.Hooks{Stop: named("say")}}, model.Scripted{Text: "end"})
	s.next(t.Context(), "w1")
	log, err := s.store.Snapshot().Log(s.id)
	if err != nil {
		t.Fatal(err)
	}
	if last := log[len(log)-1]; !s.record().Status.Terminal() || len(last.Messages) != 1 || last.Messages[0].Text() != "and then?" {
		t.Errorf("the run is %s, and its last entry %+v; want an end with the message", s.record().Status, last)
	}
}

// A turn that the store refuses because of its format is released, and offered again after a while: another worker may
// be of the right version.
func TestTurnOfAnotherFormat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.tools["pay"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "PAID"}, nil })
		s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, calls("pay", "c1"))
		s.fail["record"] = state.ErrFormat
		s.next(t.Context(), "w1")
		if got, want := strings.Join(s.steps, " "), "claim record release nak"; got != want {
			t.Errorf("steps: %s\nwant:  %s", got, want)
		}
		released := time.Now()
		s.next(t.Context(), "w2")
		if time.Since(released) != time.Second { // of the bubble: Periods.Sweep
			t.Errorf("the turn is offered again after %s, want 1s", time.Since(released))
		}
		if r := s.record(); r.Version != 2 {
			t.Errorf("the run has version %d", r.Version)
		}
	})
}
