package loop_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func by(principal string, sig state.Signal) state.Signal {
	sig.By = &state.By{Principal: principal}
	return sig
}

// The cost of calls that an earlier attempt made, and did not record, is the run's (I10).
func TestRecoveredTurnHasItsCost(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	r.begin(loop.TurnBegan{Attempt: 2, Spent: state.Usage{OutputTokens: 70, ModelCalls: 1, Estimated: true}})
	if e := r.s.Log[len(r.s.Log)-1]; e.Reason != state.Recovered || e.Usage == nil || e.Usage.OutputTokens != 70 || r.s.Usage.OutputTokens != 70 || !r.s.Usage.Estimated {
		t.Errorf("entry %s, usage %s; want both to have the cost", dump(e), dump(r.s.Usage))
	}
	r = start(t, agent.Definition{}, state.Limits{})
	r.begin(loop.TurnBegan{Attempt: 2})
	if e := r.s.Log[len(r.s.Log)-1]; e.Reason != state.Recovered || e.Usage != nil {
		t.Errorf("entry %s, want no cost", dump(e))
	}
}

// A replay of an end after which the run has continued for another reason does nothing.
func TestLateReplayDoesNothing(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	r.begin(loop.TurnBegan{Attempt: 6, Poisoned: true})
	r.wantReason(state.EndPoisoned)
	ended := r.s.Version
	r.begin(loop.TurnBegan{Signals: []state.Signal{said("go on")}})
	r.wantReason(state.UserMessage)
	if r.s.Poison != nil {
		t.Errorf("the run that continues is still poisoned: %s", dump(r.s.Poison))
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "replay", Replay: ended}}})
	wantEffect[loop.CallModel](r)
}

// Whoever requests something besides an approval counts as a requester, also with the same name: the entry of an
// approval names its sender as an approver.
func TestRequesterBesideApproval(t *testing.T) {
	t.Parallel()
	yes := state.Signal{ID: "yes", Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}}
	result := state.Signal{ID: "result", ToolResults: []state.SignalResult{{CallID: "c2", Content: "this one"}}}
	for name, test := range map[string]struct {
		signals []state.Signal
		want    []string
	}{
		"an approval":                      {[]state.Signal{by("ada", yes)}, nil},
		"an approval and a message":        {[]state.Signal{by("ada", yes), by("ada", said("and hurry"))}, []string{"ada"}},
		"an approval and a result":         {[]state.Signal{by("ada", yes), by("ada", result)}, []string{"ada"}},
		"an approval and another's result": {[]state.Signal{by("ada", yes), by("eve", result)}, []string{"eve"}},
	} {
		r := start(t, agent.Definition{Tools: tools(gated, client)}, state.Limits{})
		r.begin(loop.TurnBegan{})
		r.respond(calls(`refund {"amount":500}`, "pick"))
		before := r.s.LogLen()
		r.begin(loop.TurnBegan{Signals: test.signals})
		r.wantReason(state.Approved)
		if got := state.Askers(nil, state.After(r.s.Log, before)); !slices.Equal(got, test.want) {
			t.Errorf("%s: requesters %v, want %v", name, got, test.want)
		}
	}
}

// A message that arrives while the first model call waits for its quota continues the run. It does not wait until then.
func TestMessageDuringTheFirstDelay(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.step(loop.ModelDelayed{At: r.now(), Wait: time.Hour, Reservation: &state.Reservation{Key: "k", At: 1}, Detail: "rate limit"})
	r.wantReason(state.WaitingSchedule)
	r.begin(loop.TurnBegan{Signals: []state.Signal{said("and this")}})
	r.wantReason(state.UserMessage)
}

// A message that arrives with the end of a run continues it, unless that end is for good: then the run keeps the
// message as undelivered.
func TestLateMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end       func(r *run)
		aborted   bool
		continues bool
	}{
		"an answer":               {func(r *run) { r.begin(loop.TurnBegan{}); r.respond(text("done")) }, false, true},
		"an answer and an abort":  {func(r *run) { r.begin(loop.TurnBegan{}); r.respond(text("done")) }, true, false},
		"an abort":                {func(r *run) { r.begin(loop.TurnBegan{Abort: &state.Abort{Reason: "enough"}}) }, true, false},
		"too many attempts":       {func(r *run) { r.begin(loop.TurnBegan{Attempt: 6, Poisoned: true}) }, false, false},
		"the deadline has passed": {func(r *run) { r.s.Limits.DeadlineAt = state.At(epoch); r.begin(loop.TurnBegan{}) }, false, false},
	} {
		r := start(t, agent.Definition{}, state.Limits{})
		test.end(r)
		if !r.s.Status.Terminal() {
			t.Fatalf("%s: the run is %s", name, r.s.Status)
		}
		got := loop.ApplyLateSignals(r.s, r.now(), []state.Signal{said("wait")}, test.aborted)
		last := got.Log[len(got.Log)-1]
		if got.Status.Terminal() == test.continues || len(last.Messages) == 0 {
			t.Fatalf("%s: the run is %s, its last entry %s", name, got.Status, dump(last))
		}
		if m := last.Messages[len(last.Messages)-1]; m.Text() != "wait" || m.Undelivered == test.continues || m.ID == "" {
			t.Errorf("%s: the message is %s, want it delivered: %t", name, dump(m), test.continues)
		}
	}
}

// With four eyes, another person must approve what an approver has edited, also if no rule matches the new arguments.
func TestFourEyesAskAgain(t *testing.T) {
	t.Parallel()
	for _, four := range []bool{false, true} {
		r := start(t, agent.Definition{Tools: tools(gated)}, state.Limits{})
		r.begin(loop.TurnBegan{})
		r.respond(calls(`refund {"amount":500}`))
		edit := state.Signal{ID: "e", FourEyes: four, Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve, Arguments: `{"amount":5}`}}}
		r.begin(loop.TurnBegan{Signals: []state.Signal{by("ada", edit)}})
		r.begin(loop.TurnBegan{})
		if !four {
			wantEffect[loop.RunTools](r)
			continue
		}
		r.wantReason(state.WaitingApproval)
		if again := r.s.Waiting.Calls[0].Again; again == nil || again.Reason != state.AgainFourEyes {
			t.Errorf("the call asks again with %s", dump(again))
		}
		yes := state.Signal{ID: "y", FourEyes: true, Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}}
		r.begin(loop.TurnBegan{Signals: []state.Signal{by("bob", yes)}})
		r.begin(loop.TurnBegan{})
		wantEffect[loop.RunTools](r)
	}
}

// The result of a client keeps its files and images.
func TestClientResultKeepsItsFiles(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(client)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("pick"))
	result := state.SignalResult{
		CallID: "c1", Content: "this one", Images: []state.Image{{MediaType: "image/png", Data: "AAAA"}},
		Files: []state.Part{{Type: state.PartFile, FileID: "f", MediaType: "application/pdf"}},
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "r", ToolResults: []state.SignalResult{result}}}})
	view := state.View(r.s.Log)
	if p := view[len(view)-1].Parts[0]; p.Content != "this one" || len(p.Images) != 1 || len(p.Files) != 1 || p.Files[0].FileID != "f" {
		t.Errorf("the history has %s", dump(p))
	}
}

// A replay opens again the calls that a worker makes. A child ends with the run, so that its call keeps its error. A
// replay of another end does nothing.
func TestReplayOpensCallsOfWorkers(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain, helper)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t", `researcher {"task":"a"}`))
	if len(r.s.Open) != 2 || r.s.Open[1].Needs != state.NeedChild {
		t.Fatalf("open calls %s", dump(r.s.Open))
	}
	r.begin(loop.TurnBegan{Attempt: 6, Poisoned: true})
	r.wantReason(state.EndPoisoned)
	if p := r.s.Poison; p == nil || len(p.Calls) != 1 || p.Calls[0].ID != "c1" || p.Attempts != 5 {
		t.Fatalf("poison %s, want the call of the worker", dump(p))
	}
	ended := r.s
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "late", Replay: ended.Version - 1}, said("go on")}})
	r.wantReason(state.UserMessage)
	r.s = ended
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "replay", Replay: ended.Version}}})
	r.wantReason(state.Replayed)
	if len(r.s.Open) != 1 || r.s.Open[0].ID != "c1" {
		t.Errorf("open calls %s", dump(r.s.Open))
	}
}

// An approval that expires is denied without a reason, and says that it has expired. Another end of the run is the
// reason.
func TestUndecidedApprovals(t *testing.T) {
	t.Parallel()
	for name, expired := range map[string]bool{"expired": true, "aborted": false} {
		r := start(t, agent.Definition{Tools: tools(gated)}, state.Limits{WaitMS: 1})
		r.begin(loop.TurnBegan{})
		r.respond(calls(`refund {"amount":500}`))
		ev := loop.TurnBegan{}
		if !expired {
			ev.Abort = &state.Abort{Reason: "enough"}
		}
		r.begin(ev)
		i := slices.IndexFunc(r.s.Log, func(e state.Entry) bool { return e.Type == state.EntryDecided })
		if i < 0 {
			t.Fatalf("%s: nothing was decided: %s", name, dump(r.s.Transition))
		}
		if d := r.s.Log[i].Approval; d.Decision != state.Deny || d.Expired != expired || (d.Reason == "") != expired {
			t.Errorf("%s: %s", name, dump(d))
		}
	}
}

// A question that was answered is not shown again, whatever its call waits for next.
func TestAnsweredQuestionIsGone(t *testing.T) {
	t.Parallel()
	asks := func(text string) loop.ToolResult {
		return loop.ToolResult{CallID: "c1", Name: "t", Ask: &tool.Ask{Question: text, State: json.RawMessage(`{"at":"` + text + `"}`)}}
	}
	r := start(t, agent.Definition{Tools: tools(agent.Tool{Name: "t", Async: true})}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	r.finishTools(asks("sure?"))
	r.wantReason(state.WaitingHumanInput)
	if w := r.s.Waiting; w.Question != "sure?" || w.Calls[0].Message != "sure?" {
		t.Errorf("the run waits for %s", dump(w))
	}
	yes := "yes"
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Answer: &yes}}})
	r.wantReason(state.Answered)
	r.begin(loop.TurnBegan{})
	if c := wantEffect[loop.RunTools](r).Calls[0]; c.Answer == nil || *c.Answer != "yes" || c.Question != "" {
		t.Errorf("the call continues as %s", dump(c))
	}
	r.finishTools(asks("really?"))
	if o := r.s.Open[0]; o.Answer != nil || o.Question != "really?" {
		t.Errorf("the second question has %s", dump(o))
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Answer: &yes}}})
	r.begin(loop.TurnBegan{})
	r.finishTools(loop.ToolResult{CallID: "c1", Name: "t", Pending: true})
	r.wantReason(state.WaitingTool)
	if w := r.s.Waiting; w.Question != "" || w.Calls[0].Message != "" {
		t.Errorf("the run waits for its tool, and shows %s", dump(w))
	}
}
