package loop_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

var watched = []agent.Hook{{Kind: hookspec.Go, Own: tool.EncodeSettings(hookspec.Function{Name: "h"})}}

func (r *run) hooks(answers ...hook.Answer) loop.Decision {
	r.t.Helper()
	return r.step(loop.HooksAnswered{At: r.now(), Asked: wantEffect[loop.RunHooks](r), Answers: answers})
}

func words(s string) *string { return &s }

// A stop hook continues the run within its turn, with its counters unchanged, a limited number of times; or it
// ends the run; or it allows the end (A8).
func TestStopHooks(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched, MaxStopBlocks: 2}}, state.Limits{MaxTurns: 1})
	cut := text("part")
	cut.Stop = model.StopMaxOutputTokens
	r.begin(loop.TurnBegan{})
	r.respond(cut)
	for i := range 2 {
		r.begin(loop.TurnBegan{})
		r.respond(text("answer"))
		if ask := wantEffect[loop.RunHooks](r); ask.Point != hook.Stop || ask.Output != "answer" {
			t.Fatalf("asks %+v", ask)
		}
		r.hooks(hook.Answer{Block: words("not yet")})
		r.wantReason(state.StopHookBlocking)
		if r.s.Turn != 1 || r.s.Recoveries != 1 || r.s.StopBlocks != i+1 {
			t.Fatalf("turn %d, recoveries %d, blocks %d", r.s.Turn, r.s.Recoveries, r.s.StopBlocks)
		}
	}
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if n := len(msgs); msgs[n-2].Text() != "answer" || msgs[n-1].Text() != "not yet" || msgs[n-1].Role != state.RoleUser {
		t.Fatalf("the model sees %s", dump(msgs))
	}
	r.respond(text("answer"))
	r.hooks(hook.Answer{Block: words("never")})
	r.wantReason(state.EndMaxTurns)

	for want, a := range map[state.Reason]hook.Answer{state.EndStopHookPrevented: {Prevent: words("enough")}, state.EndCompleted: {}} {
		r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched}}, state.Limits{})
		r.begin(loop.TurnBegan{})
		r.respond(text("answer"))
		r.hooks(a)
		r.wantReason(want)
		if *r.s.Output != "answer" || r.s.Status != state.Completed {
			t.Errorf("%s: %s %q", want, r.s.Status, *r.s.Output)
		}
	}
}

// A message that continues a run after its end lets stop hooks block as often as before: the count starts again.
func TestStopHooksBlockAgainAfterMessage(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched, MaxStopBlocks: 1}}, state.Limits{})
	for i := range 2 {
		if i > 0 {
			more := state.UserText("and now?")
			r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "s", Message: &more}}})
			r.wantReason(state.UserMessage)
		}
		r.begin(loop.TurnBegan{})
		r.respond(text("answer"))
		r.hooks(hook.Answer{Block: words("not yet")})
		r.wantReason(state.StopHookBlocking)
		r.begin(loop.TurnBegan{})
		r.respond(text("answer"))
		r.hooks(hook.Answer{Block: words("never")})
		r.wantReason(state.EndMaxTurns)
	}
}

// A required stop hook that fails makes the run fail. A replay calls the hook with the same answer.
func TestStopHookFailed(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(text("answer"))
	r.hooks(hook.Answer{Failed: words("hook h failed: no answer within 10s")})
	r.wantReason(state.EndStopHookFailed)
	if r.s.Status != state.Failed || r.s.Output != nil || r.s.Error == nil || r.s.Error.Code != "stop_hook_failed" {
		t.Fatalf("status %s, output %v, error %+v", r.s.Status, r.s.Output, r.s.Error)
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{state.ReplaySignal(r.s.Version, r.now())}})
	r.wantReason(state.Replayed)
	r.begin(loop.TurnBegan{})
	if ask := wantEffect[loop.RunHooks](r); ask.Point != hook.Stop || ask.Output != "answer" {
		t.Fatalf("after the replay the effect is %+v", ask)
	}
	r.hooks(hook.Answer{})
	r.wantReason(state.EndCompleted)
	if r.s.Output == nil || *r.s.Output != "answer" || r.s.Error != nil {
		t.Errorf("output %v, error %+v", r.s.Output, r.s.Error)
	}
}

// The guard of the compaction survives stop hooks, so a hook that always blocks and a prompt that is always too
// long cannot loop forever (A8, I11).
func TestStopHookAndCompaction(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.wantReason(state.ReactiveCompactRetry)
	r.begin(loop.TurnBegan{})
	r.respond(text("answer"))
	r.hooks(hook.Answer{Block: words("more")})
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.wantReason(state.EndPromptTooLong)
}

// Stop hooks run only for valid answers: not for a refusal, a failure or a truncated response (A8, A9).
func TestStopHooksAreNotAsked(t *testing.T) {
	t.Parallel()
	for stop, want := range map[model.Stop]state.Reason{
		model.StopRefusal: state.EndRefused, model.StopContentFilter: state.EndRefused, model.StopMaxOutputTokens: state.MaxOutputTokensRecovery,
	} {
		r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched}}, state.Limits{})
		r.begin(loop.TurnBegan{})
		resp := text("x")
		resp.Stop = stop
		r.respond(resp)
		r.wantReason(want)
	}
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.fail(model.Auth)
	r.wantReason(state.EndModelError)
}

// A worker that is lost during hooks leaves the response behind: the model is not called again (I3).
func TestStopHooksSurviveCrash(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Stop: watched}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(text("answer"))
	wantEffect[loop.RunHooks](r)
	r.begin(loop.TurnBegan{Attempt: 2})
	r.hooks(hook.Answer{})
	r.wantReason(state.EndCompleted)
	if r.s.Usage.ModelCalls != 1 {
		t.Errorf("%d model calls", r.s.Usage.ModelCalls)
	}
}

// A hook before a tool denies a call, asks a person, or changes the arguments; the agent's own approval rule
// sees the changed ones (A13).
func TestPreToolHooks(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain, gated, client), Hooks: &agent.Hooks{PreTool: watched}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t {}", `refund {"amount":5}`, "t {\"n\":3}", "pick", "hammer"))
	if got := ids(wantEffect[loop.RunHooks](r).Calls); got != "c1 c2 c3 c4" {
		t.Fatalf("the hook is called about %s, although that call can never run", got)
	}
	r.hooks(
		hook.Answer{Deny: words("not on Sundays")}, hook.Answer{Arguments: json.RawMessage(`{"amount": 500}`)}, hook.Answer{Approval: true}, hook.Answer{},
	)
	r.wantReason(state.WaitingApproval)
	var needs string
	for _, o := range r.s.Open {
		needs += o.ID + ":" + string(o.Needs) + ":" + o.Arguments + " "
	}
	if want := `c2:approval:{"amount":500} c3:approval:{"n":3} c4:result:{} `; needs != want {
		t.Fatalf("needs %s, want %s", needs, want)
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{
		{Approvals: []state.Approval{{CallID: "c2", Decision: state.Approve}, {CallID: "c3", Decision: state.Approve}}},
		{ToolResults: []state.SignalResult{{CallID: "c4", Content: "picked"}}},
	}})
	r.begin(loop.TurnBegan{})
	if got := wantEffect[loop.RunTools](r).Calls; ids(got) != "c2 c3" || got[0].Arguments != `{"amount":500}` {
		t.Fatalf("runs %s", dump(got))
	}
	r.finishTools(loop.ToolResult{CallID: "c2", Name: "refund", Content: "x"}, ok("c3", "y"))
	r.wantReason(state.NextTurn)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if p := msgs[2].Parts[0]; !p.IsError || p.Content != "Denied: not on Sundays" {
		t.Errorf("result = %+v", p)
	}
	r.wantPaired()
}

// An abort during hooks answers the calls, none of which was started (A4).
func TestAbortDuringHooks(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain), Hooks: &agent.Hooks{PreTool: watched}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	r.step(loop.Aborted{At: r.now(), Cause: loop.ByUser})
	r.wantReason(state.EndAbortedStreaming)
	r.wantPaired()
}

// A required input hook that fails makes the run fail before the model reads the message. A replay calls the
// hook with the same message.
func TestInputHookFailed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"react", "single_call"} {
		r := start(t, agent.Definition{Loop: agent.Loop{Type: kind}, Hooks: &agent.Hooks{Input: watched}}, state.Limits{})
		r.begin(loop.TurnBegan{})
		first := wantEffect[loop.RunHooks](r).Messages
		r.hooks(hook.Answer{Failed: words("hook h failed: no answer within 10s"), Failures: 1})
		r.wantReason(state.EndInputHookFailed)
		if r.s.Status != state.Failed || r.s.Output != nil || r.s.Error == nil || r.s.Error.Code != "input_hook_failed" || r.s.Trouble.HookErrors != 1 {
			t.Fatalf("%s: status %s, output %v, error %+v, trouble %+v", kind, r.s.Status, r.s.Output, r.s.Error, r.s.Trouble)
		}
		r.begin(loop.TurnBegan{Signals: []state.Signal{state.ReplaySignal(r.s.Version, r.now())}})
		r.wantReason(state.Replayed)
		r.begin(loop.TurnBegan{})
		if again := wantEffect[loop.RunHooks](r).Messages; len(again) != 1 || again[0].ID != first[0].ID {
			t.Fatalf("%s: after the replay it calls hooks about %s, want %s", kind, dump(again), dump(first))
		}
		r.hooks(hook.Answer{Replace: words("instead")})
		if got := wantEffect[loop.CallModel](r).Messages; len(got) != 1 || got[0].Text() != "instead" {
			t.Fatalf("%s: the model reads %s, want the replacement", kind, dump(got))
		}
		r.respond(text("answer"))
		r.wantReason(state.EndCompleted)
	}
}

// Messages that arrive together are checked together. A refused one ends the run. When another message
// continues the run, the model reads the allowed messages, and never the refused one.
func TestInputHooksOfSeveralMessages(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Hooks: &agent.Hooks{Input: watched}}, state.Limits{})
	say := func(id, s string) state.Signal {
		m := state.UserText(s)
		return state.Signal{ID: id, Message: &m, At: r.now()}
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{say("a", "one"), say("b", "two")}})
	r.wantReason(state.UserMessage)
	r.begin(loop.TurnBegan{})
	if n := len(wantEffect[loop.RunHooks](r).Messages); n != 3 {
		t.Fatalf("hooks are called about %d messages, want the submission and two", n)
	}
	r.hooks(hook.Answer{}, hook.Answer{Refuse: words("no")}, hook.Answer{Replace: words("2")})
	r.wantReason(state.EndRefused)
	if r.s.Status != state.Incomplete || *r.s.Output != "no" {
		t.Fatalf("the run is %s with %q", r.s.Status, *r.s.Output)
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{say("c", "three")}})
	r.begin(loop.TurnBegan{})
	if asked := wantEffect[loop.RunHooks](r).Messages; len(asked) != 1 || asked[0].Text() != "three" {
		t.Fatalf("hooks are called about %s, want the new message", dump(asked))
	}
	r.hooks(hook.Answer{})
	var read []string
	for _, m := range wantEffect[loop.CallModel](r).Messages {
		read = append(read, m.Text())
	}
	if want := []string{"hello", "2", "three"}; !slices.Equal(read, want) {
		t.Errorf("the model reads %q, want %q", read, want)
	}
	withdrawn := 0
	for _, m := range state.FullView(r.s.Log) {
		if m.Tombstoned {
			withdrawn++
		}
	}
	if withdrawn != 2 {
		t.Errorf("the full view marks %d messages as withdrawn, want the refused and the replaced one", withdrawn)
	}
}

// The failures of hooks add up over the turns of a run.
func TestHookFailuresAddUp(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	for _, answers := range [][]hook.Answer{{{Failures: 1}, {Failures: 2}}, {{}}, {{Failures: 1}}} {
		r.step(loop.HooksAnswered{At: r.now(), Asked: loop.RunHooks{Point: hook.Input}, Answers: answers})
	}
	if n := r.s.Trouble.HookErrors; n != 4 {
		t.Errorf("the run counts %d failures of hooks, want 4", n)
	}
}
