package loop_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A tool call and an answer are two turns (D2, D4, A1, A2).
func TestReactCallsToolAndAnswers(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	if got := len(wantEffect[loop.CallModel](r).Messages); got != 1 {
		t.Fatalf("the model reads %d messages, want 1", got)
	}
	r.respond(calls("t {}"))
	if got := wantEffect[loop.RunTools](r).Calls; len(got) != 1 || got[0].ID != "c1" {
		t.Fatalf("calls = %v, want c1", got)
	}
	if last := r.s.Log[len(r.s.Log)-1]; last.Type != state.EntryModel {
		t.Fatalf("last entry before tools = %s, want the assistant's message (A1)", last.Type)
	}
	r.finishTools(ok("c1", "42"))
	r.wantReason(state.NextTurn)
	r.begin(loop.TurnBegan{})
	r.respond(text("the answer is 42"))
	r.wantReason(state.EndCompleted)
	if r.s.Turn != 2 || *r.s.Output != "the answer is 42" || r.s.Usage.ModelCalls != 2 || r.s.Usage.ToolCalls != 1 {
		t.Fatalf("state = %s", dump(r.s))
	}
	var roles []string
	for _, m := range state.View(r.s.Log) {
		roles = append(roles, fmt.Sprintf("%s@%d", m.Role, m.Turn))
	}
	if diff := cmp.Diff([]string{"user@0", "assistant@1", "tool@1", "assistant@2"}, roles); diff != "" {
		t.Fatalf("transcript (D12):\n%s", diff)
	}
	r.wantPaired()
}

// The provider's stop reason does not decide whether calls run (A3).
func TestReactIgnoresStopReason(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	resp := calls("t")
	resp.Stop = model.StopEnd
	r.respond(resp)
	wantEffect[loop.RunTools](r)

	r = start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	resp = text("done")
	resp.Stop = model.StopToolCalls
	r.respond(resp)
	r.wantReason(state.EndCompleted)
}

// max_turns N means N model calls; the tools of the last turn run (D3).
func TestReactMaxTurns(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{MaxTurns: 1})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	wantEffect[loop.RunTools](r)
	r.finishTools(ok("c1", "1"))
	r.wantReason(state.EndMaxTurns)
	if r.s.Status != state.Incomplete || r.s.Turn != 1 {
		t.Fatalf("status %s turn %d, want incomplete 1", r.s.Status, r.s.Turn)
	}
	r.wantPaired()
}

// The event of a limit that ends a run has the used fraction, not that of the call which would come next.
func TestExceededHasUsedFraction(t *testing.T) {
	t.Parallel()
	usd := state.MicroUSD(30)
	for name, test := range map[string]struct {
		limits state.Limits
		child  bool
		want   float64
	}{
		"output tokens":           {state.Limits{OutputTokens: 4}, false, 1.25},
		"used up exactly":         {state.Limits{OutputTokens: 5}, false, 1},
		"cost":                    {state.Limits{CostUSD: 20, OutputTokens: 1000}, false, 1.5},
		"a child stops before it": {state.Limits{OutputTokens: 8}, true, 0.625},
	} {
		r := start(t, agent.Definition{Tools: tools(plain)}, test.limits)
		if test.child {
			r.s.Parent = &state.Parent{RunID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0S", CallID: "c1", Depth: 1}
		}
		r.begin(loop.TurnBegan{})
		response := calls("t")
		response.Usage.CostUSD = &usd
		r.respond(response)
		r.finishTools(ok("c1", "1"))
		i := slices.IndexFunc(r.s.Log, func(e state.Entry) bool { return e.Type == state.EntryExceeded })
		if i < 0 || r.s.Status != state.Incomplete || r.s.Log[i].UsedFraction != test.want {
			t.Errorf("%s: want an end with %v used:\n%s", name, test.want, dump(r.s))
		}
	}
}

// A child run stops before a model call as large as its largest one, whenever it made that, also before a checkpoint, unless the call leaves
// something of the limit. Each limit has its own largest call.
func TestChildStopsBeforeItsLargestCall(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(plain)}
	for sizes, checkpoint := range map[[2]int64]bool{{100, 300}: false, {300, 100}: true} {
		for limits, ends := range map[state.Limits]bool{
			{OutputTokens: 700}: true, {OutputTokens: 701}: false, {CostUSD: 700}: true, {CostUSD: 701}: false,
			{TotalTokens: 1400}: true, {TotalTokens: 1401}: false, {OutputTokens: 701, CostUSD: 701, TotalTokens: 1401}: false,
		} {
			r := start(t, def, limits)
			r.s.Parent = &state.Parent{RunID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0S", CallID: "c1", Depth: 1}
			for i, n := range sizes {
				if i == 1 && checkpoint {
					cut, made := loop.Checkpoint(r.s, compile(t, def), r.now())
					if !made {
						t.Fatal("there is no checkpoint")
					}
					r.s = cut
					r.s.Log = state.FromCheckpoint(cut.Log, cut.LogLen())
				}
				r.begin(loop.TurnBegan{})
				response := calls("t")
				response.Usage = state.Usage{InputTokens: n - 10, OutputTokens: n, CostUSD: new(state.MicroUSD(n))} // respond adds 10
				r.respond(response)
				r.finishTools(ok("c1", "1"))
			}
			if r.s.Status.Terminal() != ends {
				t.Errorf("after calls of %v with the limits %+v the run is %s", sizes, limits, r.s.Status)
			}
		}
	}
}

// The server tools of a mixed turn run and the rest waits. Each wait has its own signal, and results keep the
// order of the calls (D5, D6, A14).
func TestReactPauses(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain, client, gated, human)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`refund {"amount":500}`, "t", "pick", `ask_user {"question":"which one?"}`))
	if got := wantEffect[loop.RunTools](r).Calls; len(got) != 1 || got[0].ID != "c2" {
		t.Fatalf("runs %v, want c2 only", got)
	}
	r.finishTools(ok("c2", "server"))
	r.wantReason(state.WaitingApproval)
	if diff := cmp.Diff([]string{"approval:c1", "result:c3", "answer"}, r.s.Awaits()); diff != "" {
		t.Fatalf("Awaits:\n%s", diff)
	}
	if r.s.Turn != 1 {
		t.Fatalf("turn = %d on the pause, want 1 (D4)", r.s.Turn)
	}

	r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve, Arguments: `{"amount":50}`}}}}})
	r.wantReason(state.Approved)
	r.begin(loop.TurnBegan{})
	if got := wantEffect[loop.RunTools](r).Calls; len(got) != 1 || got[0].Arguments != `{"amount":50}` {
		t.Fatalf("runs %v, want the refund with edited arguments", got)
	}
	r.finishTools(ok("c1", "refunded"))
	r.wantReason(state.WaitingHumanInput)
	if r.s.Waiting.Question != "which one?" {
		t.Fatalf("question = %q", r.s.Waiting.Question)
	}
	answer := "the red one"
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Answer: &answer}, {ToolResults: []state.SignalResult{{CallID: "c3", Content: "picked"}}}}})
	r.wantReason(state.Answered)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	var got []string
	for _, m := range msgs[2:] {
		got = append(got, m.Parts[0].Content)
	}
	if diff := cmp.Diff([]string{"refunded", "server", "picked", "the red one"}, got); diff != "" {
		t.Fatalf("results in the order of the calls:\n%s", diff)
	}
	r.respond(text("done"))
	r.wantReason(state.EndCompleted)
	if r.s.Turn != 2 {
		t.Fatalf("turn = %d, want 2 (D4)", r.s.Turn)
	}
	r.wantPaired()
}

// A denial becomes an error result for the model (D6).
func TestReactDenied(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(gated)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`refund {"amount":500}`))
	r.wantReason(state.WaitingApproval)
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Deny, Reason: "too much"}}}}})
	r.wantReason(state.Denied)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if p := msgs[len(msgs)-1].Parts[0]; !p.IsError || p.Content != "Denied: too much" {
		t.Fatalf("result = %+v", p)
	}
	// Below the rule's threshold no approval is needed.
	resp := calls(`refund {"amount":5}`)
	resp.Parts[0].ID = "c9"
	r.respond(resp)
	wantEffect[loop.RunTools](r)
}

// A truncated answer is continued at most three times in a row, within the turn; then the run ends with a typed
// reason (A6).
func TestReactMaxOutputTokens(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	cut := text("part")
	cut.Stop = model.StopMaxOutputTokens
	for range 3 {
		r.begin(loop.TurnBegan{})
		r.respond(cut)
		r.wantReason(state.MaxOutputTokensRecovery)
		if r.s.Turn != 1 {
			t.Fatalf("turn = %d, want 1", r.s.Turn)
		}
	}
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if got := msgs[len(msgs)-1].Text(); got != "You were cut off. Please continue from where you stopped." {
		t.Fatalf("continuation = %q", got)
	}
	r.respond(cut)
	r.wantReason(state.EndMaxOutputTokens)
	if r.s.Status != state.Incomplete {
		t.Fatalf("status = %s, never completed", r.s.Status)
	}
}

// An abort is handled at each of its three points, and between turns (A4).
func TestReactAborts(t *testing.T) {
	t.Parallel()
	abort := &state.Abort{Reason: "enough"}
	tests := []struct {
		name string
		do   func(r *run)
		want state.Reason
		says string // of the last result
	}{
		{"queued", func(r *run) { r.begin(loop.TurnBegan{Abort: abort}) }, state.EndAbortedQueued, ""},
		{"path A", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.step(loop.Aborted{At: r.now(), Cause: loop.ByUser})
		}, state.EndAbortedStreaming, ""},
		{"path A with whole calls", func(r *run) {
			r.begin(loop.TurnBegan{})
			resp := calls("t")
			r.step(loop.Aborted{At: r.now(), Cause: loop.ByUser, Response: &resp})
		}, state.EndAbortedStreaming, "Interrupted by user"},
		{"path B", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("t", "t"))
			r.step(loop.Aborted{At: r.now(), Cause: loop.ByUser})
		}, state.EndAbortedStreaming, "Interrupted by user"},
		{"path C", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("t", "t"))
			r.step(loop.Aborted{At: r.now(), Cause: loop.ByUser, Started: true, Results: []loop.ToolResult{ok("c1", "kept")}})
		}, state.EndAbortedTools, "Interrupted mid-execution"},
		{"after tools", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("t"))
			r.finishTools(ok("c1", "kept"))
			r.begin(loop.TurnBegan{Abort: abort})
		}, state.EndAbortedTools, "kept"},
		{"waiting", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("pick"))
			r.wantReason(state.WaitingClientTool)
			r.begin(loop.TurnBegan{Abort: abort})
		}, state.EndAbortedWaiting, "Interrupted by user"},
		{"waiting, with a result that was accepted before", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("pick"))
			r.begin(loop.TurnBegan{Abort: abort, Signals: []state.Signal{{ToolResults: []state.SignalResult{{CallID: "c1", Content: "it"}}}}})
		}, state.EndAbortedWaiting, "it"},
		{"path C, with a result that was accepted before", func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("t"))
			r.step(loop.Aborted{At: r.now(), Cause: loop.ByUser, Started: true, Signals: []state.Signal{{ToolResults: []state.SignalResult{{CallID: "c1", Content: "it"}}}}})
		}, state.EndAbortedTools, "it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, agent.Definition{Tools: tools(plain, client)}, state.Limits{})
			tt.do(r)
			r.wantReason(tt.want)
			if r.s.Status != state.Cancelled {
				t.Fatalf("status = %s, want cancelled", r.s.Status)
			}
			r.wantPaired()
			view := state.View(r.s.Log)
			if last := view[len(view)-1]; tt.says != "" && last.Parts[0].Content != tt.says {
				t.Fatalf("last result = %q, want %q", last.Parts[0].Content, tt.says)
			}
			// In every case, a user message continues the run.
			said := state.UserText("go on")
			r.begin(loop.TurnBegan{Signals: []state.Signal{{Message: &said}}})
			r.wantReason(state.UserMessage)
			r.begin(loop.TurnBegan{})
			wantEffect[loop.CallModel](r)
		})
	}
}

// A journaled response is not requested again, and the requirements of its calls are determined afresh (I3,
// F4).
func TestReactReplaysJournal(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain, client)}, state.Limits{})
	header := r.s
	r.begin(loop.TurnBegan{})
	r.respond(calls("t", "pick", "t"))
	wantEffect[loop.RunTools](r)

	// The worker dies. The next one has the old header and the journaled entry.
	journaled := r.s.Log[len(r.s.Log)-1]
	r.s = header.Append(journaled)
	r.begin(loop.TurnBegan{Attempt: 2, Results: []loop.ToolResult{ok("c1", "journaled")}})
	if got := wantEffect[loop.RunTools](r).Calls; len(got) != 1 || got[0].ID != "c3" {
		t.Fatalf("runs %v, want c3 only", got)
	}
	if r.s.Turn != 1 || r.s.Usage.ModelCalls != 1 {
		t.Fatalf("turn %d, model calls %d, want 1 and 1", r.s.Turn, r.s.Usage.ModelCalls)
	}
	r.finishTools(ok("c3", "new"))
	r.wantReason(state.WaitingClientTool)
	recovered := 0
	for _, e := range r.s.Log {
		if e.Reason == state.Recovered {
			recovered++
		}
	}
	if recovered != 1 {
		t.Fatalf("recovered entries = %d, want 1", recovered)
	}
}

// An attempt after a crash has the turn of the dead worker, whether or not the model had answered.
func TestRecoveredNamesItsTurn(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(gated)}, state.Limits{})
	recovered := func(when string, want int) {
		t.Helper()
		header := r.s
		r.begin(loop.TurnBegan{Attempt: 2})
		i := slices.IndexFunc(r.s.Log[header.LogLen():], func(e state.Entry) bool { return e.Reason == state.Recovered })
		if i < 0 {
			t.Fatalf("%s: no attempt is in the log", when)
		}
		if got := r.s.Log[int(header.LogLen())+i].Turn; got != want {
			t.Errorf("%s: the attempt has turn %d, want %d", when, got, want)
		}
	}
	recovered("before the first response", 1)
	r.respond(calls(`refund {"amount":500,"to":"a"}`))
	r.wantReason(state.WaitingApproval)
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}}}})
	recovered("after an approval", 1)
	wantEffect[loop.RunTools](r)
	r.finishTools(ok("c1", "paid"))
	recovered("before the second response", 2)
	answered := r.s.Append(state.Entry{Type: state.EntryModel, Turn: 2, Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "done"}}}})
	r.s = answered
	recovered("after the answer", 2)
}

// A temporary failure of the model postpones the turn to a known time; a permanent one ends the run (A17).
func TestReactModelFailures(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.step(loop.ModelFailed{At: r.now(), Failed: 1, Err: &model.Error{Class: model.RateLimited, RetryAfter: time.Minute}})
	r.wantReason(state.WaitingSchedule)
	if got := r.s.Due(); !got.Equal(r.at.Add(time.Minute)) {
		t.Fatalf("due %s, want in a minute", got)
	}
	r.begin(loop.TurnBegan{})
	r.wantReason(state.WaitingSchedule) // woken too early
	r.at = r.at.Add(time.Hour)
	r.begin(loop.TurnBegan{})
	r.wantReason(state.ModelRetry)
	r.begin(loop.TurnBegan{})
	wantEffect[loop.CallModel](r)
	r.step(loop.ModelFailed{At: r.now(), Failed: 1, Err: &model.Error{Class: model.Auth, Message: "bad key"}})
	r.wantReason(state.EndModelError)
	if r.s.Error == nil || r.s.Error.Code != "auth" || r.s.ModelRequests != 2 {
		t.Fatalf("error = %+v, calls %d", r.s.Error, r.s.ModelRequests)
	}
}

// A deadline and an expired wait end the run with a typed reason and every call answered.
func TestReactTimeLimits(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(client)}, state.Limits{WaitMS: 60_000})
	r.begin(loop.TurnBegan{})
	r.respond(calls("pick"))
	r.wantReason(state.WaitingClientTool)
	r.at = r.at.Add(2 * time.Minute)
	r.begin(loop.TurnBegan{})
	r.wantReason(state.EndExpired)
	r.wantPaired()

	r = start(t, agent.Definition{Tools: tools(client)}, state.Limits{DeadlineAt: state.At(epoch.Add(time.Minute))})
	r.begin(loop.TurnBegan{})
	r.respond(calls("pick"))
	r.at = r.at.Add(2 * time.Minute)
	r.begin(loop.TurnBegan{})
	r.wantReason(state.EndDeadline)
	r.wantPaired()
}

// A turn that kills its workers ends the run with every call answered.
func TestReactPoisoned(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	r.begin(loop.TurnBegan{Attempt: 6, Poisoned: true})
	r.wantReason(state.EndPoisoned)
	r.wantPaired()
}

// A converse agent waits for the next message after each answer, and counts turns across them.
func TestReactConverse(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Loop: agent.Loop{Converse: true}}, state.Limits{MaxTurns: 2})
	r.begin(loop.TurnBegan{})
	r.respond(text("who are you?"))
	r.wantReason(state.WaitingHumanInput)
	answer := "me"
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Answer: &answer}}})
	r.wantReason(state.Answered)
	r.begin(loop.TurnBegan{})
	r.respond(text("and now?"))
	r.wantReason(state.WaitingHumanInput)
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Answer: &answer}}})
	r.begin(loop.TurnBegan{})
	r.wantReason(state.EndMaxTurns)
}

// Colliding or missing call ids of a provider become unique ones.
func TestCallIDsAreUnique(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	resp := calls("t", "t", "t")
	resp.Parts[1].ID, resp.Parts[2].ID = "c1", ""
	r.begin(loop.TurnBegan{})
	r.respond(resp)
	seen := map[string]bool{}
	for _, c := range wantEffect[loop.RunTools](r).Calls {
		if c.ID == "" || seen[c.ID] {
			t.Fatalf("call id %q is empty or a duplicate", c.ID)
		}
		seen[c.ID] = true
	}
}

// Providers repeat call ids over the turns of a run: each result stays with its own response (I5).
func TestCallIDsMayComeBack(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	for _, content := range []string{"first", "second"} {
		r.begin(loop.TurnBegan{})
		r.respond(calls("t"))
		if got := wantEffect[loop.RunTools](r).Calls; got[0].ID != "c1" {
			t.Fatalf("call id = %s, want the provider's", got[0].ID)
		}
		r.finishTools(ok("c1", content))
	}
	view := state.View(r.s.Log)
	if len(view) != 5 || view[2].Parts[0].Content != "first" || view[4].Parts[0].Content != "second" {
		t.Fatalf("transcript = %s", dump(view))
	}
}

// A run with a later start begins then, even if it gets messages before. One that waits after a failure
// continues when it gets a message.
func TestMessageDuringSchedule(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	at := state.At(r.at.Add(time.Hour))
	r.s.ResumeAt = at
	r.s, _ = r.s.Move(state.WaitingSchedule, state.Entry{At: r.now(), Waiting: &state.Wait{Reason: state.WaitingSchedule, ExpiresAt: at}})
	hi := state.UserText("and hurry")
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Message: &hi}}})
	r.wantReason(state.WaitingSchedule)
	if r.s.Due() != at.Time {
		t.Fatalf("due %v, want %v", r.s.Due(), at)
	}
	r.at = at.Time
	r.begin(loop.TurnBegan{})
	if msgs := wantEffect[loop.CallModel](r).Messages; len(msgs) != 2 || msgs[1].Text() != "and hurry" {
		t.Fatalf("the model sees %s", dump(msgs))
	}
	r.fail(model.Overloaded)
	r.wantReason(state.WaitingSchedule)
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Message: &hi}}})
	r.wantReason(state.UserMessage)
	if !r.s.ResumeAt.IsZero() {
		t.Error("the delay outlives the wait")
	}
}
