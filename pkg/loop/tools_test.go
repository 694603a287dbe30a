package loop_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func ids(calls []state.OpenCall) string {
	var out []string
	for _, c := range calls {
		out = append(out, c.ID)
	}
	return strings.Join(out, " ")
}

// reused lists the calls of the last response that got an earlier result.
func (r *run) reused() string {
	var out []string
	for _, e := range r.s.Log {
		if e.Type == state.EntryReused {
			out = append(out, e.CallID+"="+e.Message.Parts[0].Content)
		}
	}
	return strings.Join(out, " ")
}

// The same call of an idempotent tool runs once in a run, within one response and over turns, in any notation
// of its arguments. Errors are not reused (L7).
func TestIdempotentReuse(t *testing.T) {
	t.Parallel()
	book := agent.Tool{Name: "book", Idempotent: true}
	r := start(t, agent.Definition{Tools: tools(book, plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`book {"a":1,"b":2}`, `book {"b":2, "a":1}`, `book {"a":2}`, `t {}`, `t {}`))
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c1 c3 c4 c5" {
		t.Fatalf("runs %s, want c1 c3 c4 c5", got)
	}
	r.finishTools(
		loop.ToolResult{CallID: "c1", Name: "book", Content: "booked"},
		loop.ToolResult{CallID: "c3", Name: "book", Content: "down", IsError: true},
		ok("c4", "x"), ok("c5", "x"))
	r.wantReason(state.NextTurn)
	if got := r.reused(); got != "c2=booked" {
		t.Fatalf("reused %q", got)
	}
	r.wantPaired()
	r.begin(loop.TurnBegan{})
	r.respond(calls(`book {"b":2,"a":1}`, `book {"a":2}`))
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c2" {
		t.Fatalf("runs %s, want c2, which had failed", got)
	}
	r.finishTools(loop.ToolResult{CallID: "c2", Name: "book", Content: "up"})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`book {"a":2}`))
	r.wantReason(state.NextTurn)
	if got := r.reused(); got != "c2=booked c1=booked c1=up" {
		t.Fatalf("reused %q", got)
	}
	r.wantPaired()
}

// The results before a checkpoint are reused as the others are, and its errors are not (L7).
func TestReuseBehindCheckpoint(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(agent.Tool{Name: "book", Idempotent: true})}
	r := start(t, def, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`book {"a":1}`, `book {"a":2}`))
	r.finishTools(
		loop.ToolResult{CallID: "c1", Name: "book", Content: "booked"},
		loop.ToolResult{CallID: "c2", Name: "book", Content: "down", IsError: true})
	r.wantReason(state.NextTurn)
	s, made := loop.Checkpoint(r.s, compile(t, def), r.now())
	if !made {
		t.Fatal("there is no checkpoint")
	}
	r.s = s
	r.s.Log = state.FromCheckpoint(s.Log, s.LogLen())
	r.begin(loop.TurnBegan{})
	r.respond(calls(`book {"a":1}`, `book {"a":2}`))
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c2" {
		t.Errorf("runs %s, want c2, which had failed", got)
	}
	if got := r.reused(); got != "c1=booked" {
		t.Errorf("reused %q, want c1", got)
	}
}

// A call that an approval edited is reused by its edited arguments, not by those of the model.
func TestEditedCallIsReusedAsEdited(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(agent.Tool{Name: "t", Idempotent: true, Approval: "args.n > 5"})}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`t {"n":9}`))
	r.wantReason(state.WaitingApproval)
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve, Arguments: `{"n":3}`}}}}})
	r.begin(loop.TurnBegan{})
	r.finishTools(ok("c1", "three"))
	r.begin(loop.TurnBegan{})
	r.respond(calls(`t {"n":3}`))
	if got := r.reused(); got != "c1=three" {
		t.Fatalf("reused %q", got)
	}
}

// So it is behind one checkpoint, and behind two.
func TestEditedCallIsReusedAsEditedBehindCheckpoint(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(agent.Tool{Name: "t", Idempotent: true, Approval: "args.n > 5"}, agent.Tool{Name: "u"})}
	for checkpoints := range 3 {
		r := start(t, def, state.Limits{})
		r.begin(loop.TurnBegan{})
		r.respond(calls(`t {"n":9}`))
		r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve, Arguments: `{"n":3}`}}}}})
		r.begin(loop.TurnBegan{})
		r.finishTools(ok("c1", "three"))
		for range checkpoints {
			s, made := loop.Checkpoint(r.s, compile(t, def), r.now())
			if !made {
				t.Fatal("there is no checkpoint")
			}
			r.s = s
			r.s.Log = state.FromCheckpoint(s.Log, s.LogLen())
			r.begin(loop.TurnBegan{})
			r.respond(calls("u"))
			r.finishTools(loop.ToolResult{CallID: "c1", Name: "u", Content: "done"})
		}
		r.begin(loop.TurnBegan{})
		r.respond(calls(`t {"n":3}`))
		if got := r.reused(); got != "c1=three" {
			t.Errorf("behind %d checkpoints: reused %q, want the result of the edited call", checkpoints, got)
		}
	}
}

// A result that is reused has the images, files and origin of the first.
func TestReusedResultHasWhatTheFirstHad(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(agent.Tool{Name: "t", Idempotent: true})}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	first := ok("c1", "a page")
	first.Images = []state.Image{{MediaType: "image/png", Data: "AAAA"}}
	first.Files = []state.Part{{Type: state.PartFile, FileID: "f", MediaType: "application/pdf"}}
	first.Origin = state.OriginWeb
	r.finishTools(first)
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	view := state.View(r.s.Log)
	if p := view[len(view)-1].Parts[0]; r.reused() != "c1=a page" || !cmp.Equal(p.Images, first.Images) || !cmp.Equal(p.Files, first.Files) || p.Origin != first.Origin {
		t.Errorf("reused %q, and the history has %s", r.reused(), dump(p))
	}
}

// Calls that can never run are answered at once, with an error that a model can act on (A7).
func TestCallsThatNeverRun(t *testing.T) {
	t.Parallel()
	strict := agent.Tool{Name: "strict", Schema: json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)}
	r := start(t, agent.Definition{Tools: tools(strict, agent.Tool{Name: "once", MaxCalls: 1})}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("hammer", `strict {"n":"x"}`, `strict nonsense`, "once", "once"))
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c4" {
		t.Fatalf("runs %s, want c4", got)
	}
	r.finishTools(loop.ToolResult{CallID: "c4", Name: "once", Content: "x"})
	r.begin(loop.TurnBegan{})
	r.respond(calls("once"))
	r.wantReason(state.NextTurn)
	r.begin(loop.TurnBegan{})
	var got []string
	for _, m := range wantEffect[loop.CallModel](r).Messages {
		if m.Role == state.RoleTool && m.Parts[0].IsError {
			got = append(got, m.Parts[0].Content)
		}
	}
	for i, want := range []string{"Unknown tool: hammer. Available tools: strict, once", `Invalid arguments for tool "strict"`, "are not a JSON object", "maximum of 1 calls", "maximum of 1 calls"} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("error %d = %q, want %q in it", i, got, want)
		}
	}
	r.wantPaired()
}

// The model of an agent without tools gets an error that says so.
func TestCallOfAnAgentWithoutTools(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("hammer"))
	r.wantReason(state.NextTurn)
	r.begin(loop.TurnBegan{})
	said := wantEffect[loop.CallModel](r).Messages
	if got := said[len(said)-1].Parts[0].Content; !strings.HasSuffix(got, "Available tools: none") {
		t.Errorf("the model reads %q", got)
	}
}

// A call that an earlier attempt started, with unknown outcome, is not started again, whatever happens in
// between. An idempotent one is, and an asynchronous one may still answer (I4).
func TestStartedCalls(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain, agent.Tool{Name: "safe", Idempotent: true}, agent.Tool{Name: "later", Async: true})}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t", "safe", "later", "t {\"n\":2}"))
	wantEffect[loop.RunTools](r)
	// The worker is lost; the next attempt also finds a user's message.
	hi := state.UserText("hurry")
	r.begin(loop.TurnBegan{
		Attempt: 2, Started: []string{"c1", "c3", "c4"}, Results: []loop.ToolResult{ok("c4", "kept")},
		Signals: []state.Signal{{Message: &hi}},
	})
	r.wantReason(state.UserMessage)
	r.begin(loop.TurnBegan{})
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c2" {
		t.Fatalf("runs %s, want only c2", got)
	}
	r.finishTools(loop.ToolResult{CallID: "c2", Name: "safe", Content: "x"})
	r.wantReason(state.WaitingTool)
	if diff := cmp.Diff([]string{"result:c3"}, r.s.Awaits()); diff != "" {
		t.Fatalf("Awaits:\n%s", diff)
	}
	if r.s.Due().IsZero() {
		t.Fatal("the wait for a call that may never have arrived has no limit (I2)")
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ToolResults: []state.SignalResult{{CallID: "c3", Content: "at last"}}}}})
	r.wantReason(state.ToolResults)
	r.begin(loop.TurnBegan{})
	var got []string
	for _, m := range wantEffect[loop.CallModel](r).Messages {
		if m.Role == state.RoleTool {
			got = append(got, m.Parts[0].Content)
		}
	}
	if len(got) != 4 || !strings.HasPrefix(got[0], "The outcome of this call is unknown") || got[2] != "at last" || got[3] != "kept" {
		t.Fatalf("results = %q", got)
	}
	r.wantPaired()
}

// For the result of an asynchronous tool the run waits, without a worker (I6).
func TestPendingResult(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(agent.Tool{Name: "later", Async: true}, plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("later", "t"))
	r.finishTools(loop.ToolResult{CallID: "c1", Name: "later", Pending: true}, ok("c2", "now"))
	r.wantReason(state.WaitingTool)
	if r.s.Usage.ToolCalls != 1 {
		t.Errorf("%d tool calls counted, want the answered one", r.s.Usage.ToolCalls)
	}
	r.begin(loop.TurnBegan{Abort: &state.Abort{Reason: "enough"}})
	r.wantReason(state.EndAbortedWaiting)
	r.wantPaired()
}

// Delegations have a maximum depth and number at a time. The ids of child runs follow from the calls (D11).
func TestDelegation(t *testing.T) {
	t.Parallel()
	deep := helper
	deep.Own = tool.EncodeSettings(toolspec.Delegate{Agent: "researcher", MaxDepth: 2})
	r := start(t, agent.Definition{Tools: tools(helper, plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`researcher {"task":"a"}`, `t`, `researcher {"task":"b"}`))
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c2" {
		t.Fatalf("runs %s", got)
	}
	r.finishTools(ok("c2", "x"))
	r.wantReason(state.WaitingChild)
	if r.s.Open[0].Child == r.s.Open[1].Child || r.s.Waiting.ExpiresAt != (state.Time{}) {
		t.Fatalf("waits %s", dump(r.s.Waiting))
	}
	if _, err := state.ParseRunID(string(r.s.Open[0].Child)); err != nil {
		t.Fatal(err)
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Child: &state.ChildResult{CallID: "c3", RunID: r.s.Open[1].Child, Content: "b done", Usage: state.Usage{OutputTokens: 70}}}}})
	r.wantReason(state.ChildFinished)
	r.begin(loop.TurnBegan{})
	r.wantReason(state.WaitingChild)
	if r.s.Usage.OutputTokens != 75 {
		t.Errorf("output tokens = %d, want the child's 70 and 5 of its own", r.s.Usage.OutputTokens)
	}
	r.begin(loop.TurnBegan{Abort: &state.Abort{}})
	r.wantReason(state.EndAbortedWaiting)
	r.wantPaired()

	r = start(t, agent.Definition{Tools: tools(deep)}, state.Limits{})
	r.s.Parent = &state.Parent{RunID: r.s.ID, Depth: 2}
	r.begin(loop.TurnBegan{})
	r.respond(calls(`researcher {"task":"a"}`))
	r.wantReason(state.NextTurn)

	r = start(t, agent.Definition{Tools: tools(helper)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	many := make([]string, agent.MaxChildren+1)
	for i := range many {
		many[i] = `researcher {"task":"x"}`
	}
	r.respond(calls(many...))
	r.wantReason(state.WaitingChild)
	if len(r.s.Open) != agent.MaxChildren {
		t.Errorf("%d delegations at once, want %d", len(r.s.Open), agent.MaxChildren)
	}
}

// Children that are at work count when an approval allows one more.
func TestDelegationBesideWaitingChildren(t *testing.T) {
	t.Parallel()
	asking := helper
	asking.Approval = `args.task == "y"`
	for _, running := range []int{agent.MaxChildren - 1, agent.MaxChildren} {
		r := start(t, agent.Definition{Tools: tools(asking)}, state.Limits{})
		r.begin(loop.TurnBegan{})
		many := slices.Repeat([]string{`researcher {"task":"x"}`}, running)
		r.respond(calls(append(many, `researcher {"task":"y"}`)...))
		r.wantReason(state.WaitingApproval)
		last := r.s.Open[len(r.s.Open)-1]
		r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: last.ID, Decision: state.Approve}}}}})
		r.begin(loop.TurnBegan{})
		r.wantReason(state.WaitingChild)
		if len(r.s.Open) != agent.MaxChildren {
			t.Errorf("%d children were at work: %d after one more, want %d", running, len(r.s.Open), agent.MaxChildren)
		}
	}
}

// The remaining budget is divided among the children of a run, so that together they cannot spend it twice
// (I10).
func TestChildrenShareBudget(t *testing.T) {
	t.Parallel()
	deadline := state.At(epoch.Add(time.Hour))
	r := start(t, agent.Definition{Tools: tools(helper)}, state.Limits{OutputTokens: 100, TotalTokens: 1000, CostUSD: 1000, DeadlineAt: deadline})
	r.begin(loop.TurnBegan{})
	both := calls(`researcher {"task":"a"}`, `researcher {"task":"b"}`)
	both.Usage.InputTokens = 295
	r.respond(both)
	child := compile(t, agent.Definition{Instructions: "search", Limits: agent.Limits{CostUSD: 200, OutputTokens: 5000}})
	var output, total int64
	for i, o := range r.s.Open {
		run, err := loop.ChildRun(r.s, o, child, nil)
		if err != nil {
			t.Fatal(err)
		}
		output, total = output+run.Limits.OutputTokens, total+run.Limits.TotalTokens
		if run.Limits.CostUSD != 200 || run.Limits.DeadlineAt != deadline || run.Parent.Depth != 1 || run.Parent.CallID != o.ID || run.ID != o.Child {
			t.Errorf("child %s", dump(run))
		}
		if view := state.View(run.Log); len(view) != 2 || view[1].Text() != []string{"a", "b"}[i] {
			t.Errorf("the child reads %s", dump(view))
		}
	}
	if output > 95 || output < 90 {
		t.Errorf("the children may spend %d of the 95 output tokens that are left", output)
	}
	if total > 700 || total < 690 {
		t.Errorf("the children may spend %d of the 700 tokens that are left", total)
	}
}

// Continuations follow the exact arithmetic of the token budget (A11).
func TestTokenBudget(t *testing.T) {
	t.Parallel()
	b := budget.Tokens{OutputTokens: 10_000}
	for _, tt := range []struct {
		totals []int64
		want   []budget.Verdict
	}{
		{[]int64{600, 1300, 1900, 2100, 2200}, []budget.Verdict{budget.GoOn, budget.GoOn, budget.GoOn, budget.GoOn, budget.Diminishing}},
		{[]int64{9000}, []budget.Verdict{budget.Enough}},
		{[]int64{100, 200, 300, 400}, []budget.Verdict{budget.GoOn, budget.GoOn, budget.GoOn, budget.Diminishing}},
	} {
		var n state.Nudges
		for i, total := range tt.totals {
			var got budget.Verdict
			if n, got = b.Judge(n, total); got != tt.want[i] {
				t.Errorf("%v: verdict %d at %d, want %d", tt.totals, got, total, tt.want[i])
			}
		}
	}
	def := agent.Definition{Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 1000, MinDelta: 50}}}
	r := start(t, def, state.Limits{})
	for i := range 4 {
		r.begin(loop.TurnBegan{})
		resp := text("more")
		resp.Usage.OutputTokens = 10
		r.respond(resp)
		if i < 3 {
			r.wantReason(state.BudgetContinuation)
		}
	}
	r.wantReason(state.EndDiminishingReturns)
	r.wantPaired()
	r = start(t, def, state.Limits{})
	r.begin(loop.TurnBegan{})
	resp := text("a lot")
	resp.Usage.OutputTokens = 900
	r.respond(resp)
	r.wantReason(state.EndCompleted)
}

// The continuations before a message do not count after it, and neither do the tokens.
func TestTokenBudgetAfterAMessage(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Limits: agent.Limits{TokenBudget: &budget.Tokens{OutputTokens: 1000, MinDelta: 50, MinCount: 1}}}
	r := start(t, def, state.Limits{})
	answer := func(tokens int64, want state.Reason) {
		t.Helper()
		r.begin(loop.TurnBegan{})
		resp := text("more")
		resp.Usage.OutputTokens = tokens
		r.respond(resp)
		r.wantReason(want)
	}
	answer(100, state.BudgetContinuation)
	answer(10, state.BudgetContinuation)
	answer(10, state.EndDiminishingReturns)
	r.begin(loop.TurnBegan{Signals: []state.Signal{said("try again")}})
	r.wantReason(state.UserMessage)
	answer(10, state.BudgetContinuation)
	answer(10, state.EndDiminishingReturns)
}

// A tool whose answer may change opts out of reuse, and is called again (L7).
func TestReuseIsOptional(t *testing.T) {
	t.Parallel()
	no := false
	r := start(t, agent.Definition{Tools: tools(agent.Tool{Name: "clock", Idempotent: true, Reuse: &no})}, state.Limits{})
	for range 2 {
		r.begin(loop.TurnBegan{})
		r.respond(calls("clock", "clock"))
		if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c1 c2" {
			t.Fatalf("runs %s", got)
		}
		r.finishTools(loop.ToolResult{CallID: "c1", Name: "clock", Content: "9"}, loop.ToolResult{CallID: "c2", Name: "clock", Content: "10"})
	}
}

// An approval runs exactly the shown arguments, also if the client sends them along (D6).
func TestApprovalIsBound(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(gated)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`refund {"amount":500,"to":"a"}`))
	r.wantReason(state.WaitingApproval)
	shown := r.s.Waiting.Calls[0]
	if shown.Needs != state.NeedApproval {
		t.Errorf("the call needs %q", shown.Needs)
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve, Arguments: `{"to":"a","amount":500}`}}}}})
	if r.s.Transition.Detail != "c1" {
		t.Errorf("detail = %q, want no edit", r.s.Transition.Detail)
	}
	r.begin(loop.TurnBegan{})
	if got := wantEffect[loop.RunTools](r).Calls[0].Arguments; got != string(shown.Arguments) {
		t.Errorf("runs %s, want the shown %s", got, shown.Arguments)
	}
}

// Without a remaining budget there is no delegation (I10).
func TestNoDelegationWithoutBudget(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(helper)}, state.Limits{OutputTokens: 5})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`researcher {"task":"a"}`))
	r.wantReason(state.EndTokenBudget)
	r.wantPaired()
}

// An asynchronous call whose worker was lost may never have reached its tool: an idempotent one is made again,
// and any other has a wait no longer than its timeout (I2, I4).
func TestLostAsyncCalls(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(agent.Tool{Name: "later", Async: true}, agent.Tool{Name: "again", Async: true, Idempotent: true})}, state.Limits{WaitMS: 3_600_000})
	r.begin(loop.TurnBegan{})
	r.respond(calls("later", "again"))
	r.begin(loop.TurnBegan{Attempt: 2, Started: []string{"c1"}})
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c2" {
		t.Fatalf("runs %s, want c2 again", got)
	}
	r.finishTools(loop.ToolResult{CallID: "c2", Name: "again", Pending: true})
	r.wantReason(state.WaitingTool)
	r.at = r.s.Due()
	r.begin(loop.TurnBegan{})
	r.wantReason(state.ToolResults)
	r.begin(loop.TurnBegan{})
	r.wantReason(state.WaitingTool)
	if diff := cmp.Diff([]string{"result:c2"}, r.s.Awaits()); diff != "" {
		t.Fatalf("Awaits:\n%s", diff)
	}
	r.at = r.s.Due()
	r.begin(loop.TurnBegan{})
	r.wantReason(state.EndExpired)
	r.wantPaired()
}

// A run and its children, in parallel and in generations, exceed the run's limit by less than one call (I10).
func TestChildrenKeepTheLimit(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(helper, plain)}
	for _, size := range []int64{7, 30, 90} {
		for _, limit := range []int64{40, 100, 333} {
			for _, fan := range []int{1, 2, 5} {
				r := start(t, def, state.Limits{OutputTokens: limit, MaxTurns: 200})
				spent := r.spend(size, fan, 2)
				if most := limit + size; spent >= most {
					t.Errorf("calls of %d, limit %d, %d children at a time: %d spent", size, limit, fan, spent)
				}
				if spent != r.s.Usage.OutputTokens {
					t.Errorf("the run counts %d of %d", r.s.Usage.OutputTokens, spent)
				}
			}
		}
	}
}

// spend runs to the end with responses of one size, which delegate while generations are left, and returns the
// spend of all runs.
func (r *run) spend(size int64, fan, generations int) (total int64) {
	r.t.Helper()
	for !r.s.Status.Terminal() {
		r.begin(loop.TurnBegan{})
		if r.last.Effect == nil {
			continue
		}
		names := []string{"t"}
		if generations > 0 {
			names = make([]string, fan)
			for i := range names {
				names[i] = fmt.Sprintf(`researcher {"task":"%d"}`, i)
			}
		}
		resp := calls(names...)
		resp.Usage.OutputTokens = size
		total += size
		r.respond(resp)
		if e, ok := r.last.Effect.(loop.RunTools); ok {
			r.finishTools(allDone(e.Calls)...)
		}
		var results []state.Signal
		for _, o := range r.s.Open {
			if o.Needs != state.NeedChild {
				continue
			}
			s, err := loop.ChildRun(r.s, o, compile(r.t, agent.Definition{Tools: tools(helper, plain), Loop: agent.Loop{MaxTurns: 200}}), nil)
			if err != nil {
				r.t.Fatal(err)
			}
			child := &run{t: r.t, loop: r.loop, s: s, at: r.at}
			total += child.spend(size, fan, generations-1)
			result := loop.ChildResult(child.s)
			results = append(results, state.Signal{ID: string(s.ID), Child: &result})
		}
		if len(results) > 0 {
			r.begin(loop.TurnBegan{Signals: results})
		}
	}
	return total
}

func allDone(calls []state.OpenCall) []loop.ToolResult {
	var out []loop.ToolResult
	for _, c := range calls {
		out = append(out, loop.ToolResult{CallID: c.ID, Name: c.Name, Content: "x"})
	}
	return out
}

// open calls are still handled (I5).
func TestStateOfAnEarlierBuild(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(gated)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls(`refund {"amount":500}`))
	r.s.ResponsePending = false
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}}}})
	r.begin(loop.TurnBegan{})
	if got := ids(wantEffect[loop.RunTools](r).Calls); got != "c1" {
		t.Fatalf("runs %q, want c1", got)
	}
}
