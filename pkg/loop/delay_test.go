package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func (r *run) delay(wait time.Duration, at int64) {
	r.t.Helper()
	r.step(loop.ModelDelayed{At: r.now(), Wait: wait, Reservation: &state.Reservation{Key: "k", At: at}, Detail: "rate limit of m"})
	r.wantReason(state.WaitingSchedule)
}

// A run in a long queue waits as often as necessary. It does not switch models, does not fail, and keeps its
// reservation until its call was made (A17).
func TestDelayedModelCall(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Model: agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}, Tools: tools(plain)}
	r := start(t, def, state.Limits{})
	for i := range 20 {
		r.begin(loop.TurnBegan{})
		wantEffect[loop.CallModel](r)
		r.delay(time.Hour, int64(i+1))
		if got := r.s.Due(); !got.Equal(r.at.Add(time.Hour)) {
			t.Fatalf("due %s, want in an hour", got)
		}
		r.at = r.at.Add(time.Hour)
	}
	if r.s.Failures != 0 || r.s.Fallback != 0 || r.s.ModelRequests != 0 || r.s.Turn != 0 || r.s.Reservation == nil || r.s.Reservation.At != 20 {
		t.Fatalf("after 20 waits: %+v", r.s)
	}
	if detail := r.s.Transition.Detail; !strings.Contains(detail, "rate limit of m, retry in 1h0m0s") {
		t.Errorf("detail = %q", detail)
	}
	// A message wakes the run, which keeps its reservation.
	said := state.UserText("and?")
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "s", Message: &said}}})
	r.wantReason(state.UserMessage)
	r.begin(loop.TurnBegan{})
	if wantEffect[loop.CallModel](r); r.s.Reservation == nil {
		t.Fatal("the place is lost")
	}
	r.respond(calls("t"))
	if r.s.Reservation != nil {
		t.Error("the reservation outlives the call")
	}
	r.finishTools(ok("c1", "x"))
	r.begin(loop.TurnBegan{})
	r.delay(time.Second, 21)
	r.at = r.at.Add(time.Second)
	r.begin(loop.TurnBegan{})
	r.step(loop.ModelFailed{At: r.now(), Failed: 1, Err: &model.Error{Class: model.RateLimited}})
	r.wantReason(state.ModelFallback)
	if r.s.Reservation != nil {
		t.Error("the reservation outlives the failed call")
	}
}

// A single_call run waits in the same way.
func TestDelayedSingleCall(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Loop: agent.Loop{Type: "single_call"}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.delay(time.Minute, 1)
	r.at = r.at.Add(time.Minute)
	r.begin(loop.TurnBegan{})
	r.respond(model.Response{Parts: []state.Part{{Type: state.PartText, Text: "x"}}})
	r.wantReason(state.EndCompleted)
}

// A proactive summary waits for its quota. After a prompt that was too long, waiting would require sending that
// prompt again, so the history is cut without a summary (A18).
func TestDelayedSummary(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{At: 0.5, Window: 100, Keep: 1, Summarize: true}}
	delayed := func(r *run) {
		r.t.Helper()
		r.step(loop.ModelDelayed{At: r.now(), Wait: time.Second, Detail: "rate limit", Purpose: loop.ForSummary})
	}
	r := start(t, def, state.Limits{})
	r.work(4, "x")
	r.begin(loop.TurnBegan{})
	full := calls("t")
	full.Usage = state.Usage{InputTokens: 90}
	r.respond(full)
	r.finishTools(ok("c1", "x"))
	for range 3 {
		r.begin(loop.TurnBegan{})
		if effect := wantEffect[loop.CallModel](r); effect.Purpose != loop.ForSummary {
			t.Fatalf("the model is called for %q, want a summary", effect.Purpose)
		}
		delayed(r)
		r.wantReason(state.WaitingSchedule)
		r.at = r.at.Add(time.Second)
	}

	def.Compaction = &agent.Compaction{Keep: 1, Summarize: true}
	r = start(t, def, state.Limits{})
	r.work(4, "x")
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	if effect := wantEffect[loop.CallModel](r); effect.Purpose != loop.ForSummary {
		t.Fatalf("the model is called for %q, want a summary", effect.Purpose)
	}
	delayed(r)
	r.wantReason(state.ReactiveCompactRetry)
}

// The wait that people read has no more than milliseconds.
func TestDelayIsRounded(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Model: agent.Model{Provider: "scripted"}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	wantEffect[loop.CallModel](r)
	r.delay(14679736658, 1)
	if detail := r.s.Transition.Detail; detail != "rate limit of m, retry in 14.68s" {
		t.Errorf("detail = %q", detail)
	}
}

// After a handoff the run may compact again in reaction to a prompt that was too long: a summary that is delayed then
// also leads to a cut without one.
func TestDelayedSummaryAfterHandoff(t *testing.T) {
	t.Parallel()
	other := agent.Tool{Name: "other", Kind: "handoff", Own: []byte(`{"agent": "other"}`)}
	def := agent.Definition{Tools: append(tools(plain), other), Compaction: &agent.Compaction{Keep: 1, Summarize: true, Reactive: agent.ReactiveOnce}}
	r := start(t, def, state.Limits{})
	r.work(4, "x")
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.step(loop.ModelDelayed{At: r.now(), Wait: time.Second, Detail: "rate limit", Purpose: loop.ForSummary})
	r.wantReason(state.ReactiveCompactRetry)
	r.begin(loop.TurnBegan{})
	r.respond(calls("other"))
	r.step(loop.AgentFound{At: r.now(), Asked: wantEffect[loop.SwitchAgent](r), Agent: state.AgentRef{Name: "other", Version: 1}})
	r.wantReason(state.HandedOff)
	r.work(4, "x")
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.step(loop.ModelDelayed{At: r.now(), Wait: time.Second, Detail: "rate limit", Purpose: loop.ForSummary})
	r.wantReason(state.ReactiveCompactRetry)
}
