package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func (r *run) fail(class model.Class) loop.Decision {
	r.t.Helper()
	return r.step(loop.ModelFailed{At: r.now(), Failed: 1, Err: &model.Error{Class: class, Message: string(class)}})
}

// work executes n turns with a tool call each.
func (r *run) work(n int, result string) {
	r.t.Helper()
	for i := range n {
		r.begin(loop.TurnBegan{})
		r.respond(calls(fmt.Sprintf(`t {"n":%d}`, i)))
		r.finishTools(ok("c1", result))
		r.wantReason(state.NextTurn)
	}
}

// A prompt that was too long leads to one compaction, and only one: the guard survives turns (A10, I11).
func TestReactiveCompaction(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain), Instructions: "be good"}, state.Limits{})
	r.work(8, "a result")
	r.begin(loop.TurnBegan{})
	before := len(wantEffect[loop.CallModel](r).Messages)
	r.fail(model.PromptTooLong)
	r.wantReason(state.ReactiveCompactRetry)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if len(msgs) >= before || msgs[0].Text() != "hello" || !strings.Contains(msgs[1].Text(), "earlier messages were removed") || !strings.Contains(msgs[1].Text(), "t (") {
		t.Fatalf("after the compaction the model reads %s", dump(msgs))
	}
	r.wantPaired()
	full := state.FullView(r.s.Log)
	compacted := 0
	for _, m := range full {
		if m.Compacted {
			compacted++
		}
	}
	if compacted == 0 || len(full) <= before {
		t.Fatalf("the full view has %d messages, %d of them compacted; want all of %d and the note", len(full), compacted, before)
	}
	r.respond(calls("t"))
	r.finishTools(ok("c1", "x"))
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.wantReason(state.EndPromptTooLong)
	if r.s.Status != state.Incomplete {
		t.Fatalf("status = %s, want incomplete", r.s.Status)
	}
	r.wantPaired()
}

// A user message that continues the run permits one more compaction, with or without a summary (A10).
func TestReactiveCompactionAnew(t *testing.T) {
	t.Parallel()
	say := state.UserText("go on")
	for name, def := range map[string]agent.Definition{
		"continued": {Tools: tools(plain)},
		"converses": {Tools: tools(plain), Loop: agent.Loop{Type: "react", Converse: true}},
		"summary":   {Tools: tools(plain), Compaction: &agent.Compaction{Summarize: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, def, state.Limits{MaxTurns: 100})
			overflow := func() {
				r.begin(loop.TurnBegan{})
				r.fail(model.PromptTooLong)
				if name == "summary" {
					r.step(loop.ModelResponded{At: r.now(), Response: text("so far"), Purpose: loop.ForSummary})
				}
				r.wantReason(state.ReactiveCompactRetry)
			}
			for range 3 {
				r.work(8, "a result")
				overflow()
				r.begin(loop.TurnBegan{})
				r.respond(text("done"))
				r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "s", Message: &say}}})
				r.wantReason(state.UserMessage)
			}
			r.work(8, "a result")
			overflow()
			r.begin(loop.TurnBegan{})
			r.fail(model.PromptTooLong)
			r.wantReason(state.EndPromptTooLong)
			r.wantPaired()
		})
	}
}

// Progress permits another compaction for an agent with compaction: the model has accepted the shorter prompt,
// and a tool call has returned (A10, I11).
func TestReactiveCompactionAfterProgress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		compaction *agent.Compaction
		work       func(r *run)
		want       state.Reason
	}{
		"progress":            {&agent.Compaction{Reactive: agent.ReactiveProgress}, func(r *run) { r.work(8, "a result") }, state.ReactiveCompactRetry},
		"progress by default": {&agent.Compaction{}, func(r *run) { r.work(8, "a result") }, state.ReactiveCompactRetry},
		"with a summary":      {&agent.Compaction{Summarize: true}, func(r *run) { r.work(8, "a result") }, state.ReactiveCompactRetry},
		"once":                {&agent.Compaction{Reactive: agent.ReactiveOnce}, func(r *run) { r.work(8, "a result") }, state.EndPromptTooLong},
		"no result":           {&agent.Compaction{}, func(*run) {}, state.EndPromptTooLong},
		"no call was made": {&agent.Compaction{}, func(r *run) {
			r.begin(loop.TurnBegan{})
			r.respond(calls("unknown"))
			r.wantReason(state.NextTurn)
		}, state.EndPromptTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, agent.Definition{Tools: tools(plain), Compaction: test.compaction}, state.Limits{MaxTurns: 100})
			overflow := func(want state.Reason) {
				r.begin(loop.TurnBegan{})
				r.fail(model.PromptTooLong)
				if want == state.ReactiveCompactRetry && test.compaction.Summarize {
					r.step(loop.ModelResponded{At: r.now(), Response: text("so far"), Purpose: loop.ForSummary})
				}
				r.wantReason(want)
				r.wantPaired()
			}
			r.work(8, "a result")
			overflow(state.ReactiveCompactRetry)
			for range 3 {
				test.work(r)
				overflow(test.want)
				if test.want != state.ReactiveCompactRetry {
					return
				}
			}
			overflow(state.EndPromptTooLong)
		})
	}
}

// Messages that cannot be removed are clipped (A10).
func TestCompactionClips(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.work(1, strings.Repeat("ü", 50_000))
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	last := msgs[len(msgs)-1]
	if n := len(last.Parts[0].Content); n > 5000 || !strings.Contains(last.Parts[0].Content, "bytes removed") || len(msgs) != 3 {
		t.Fatalf("%d messages, the last of %d bytes: %.80s", len(msgs), n, last.Parts[0].Content)
	}
	r.wantPaired()
}

// The signature of a thought covers all of it: a thought that is cut loses its signature, others keep theirs (A12).
// Likewise the blocks of a provider's tool go if they are long.
func TestCompactionClipsThinking(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	resp := calls("t")
	for _, n := range []int{10, 50_000} {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartThinking, Text: strings.Repeat("a", n), Opaque: json.RawMessage(`"signature"`), OpaqueBy: "m"})
	}
	for _, n := range []int{10, 50_000} {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartProviderTool, Name: "web_search", Content: "found", Opaque: json.RawMessage(`"` + strings.Repeat("b", n) + `"`), OpaqueBy: "m"})
	}
	r.respond(resp)
	r.finishTools(ok("c1", "x"))
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.wantReason(state.ReactiveCompactRetry)
	r.begin(loop.TurnBegan{})
	said := wantEffect[loop.CallModel](r).Messages[1].Parts
	if short := said[1]; string(short.Opaque) != `"signature"` || short.OpaqueBy != "m" {
		t.Errorf("a short thought is %s, want it unchanged", dump(short))
	}
	if long := said[2]; len(long.Text) > 5000 || long.Opaque != nil || long.OpaqueBy != "" {
		t.Errorf("a long thought has %d bytes, the signature %s by %q; want it cut, without a signature", len(long.Text), long.Opaque, long.OpaqueBy)
	}
	if short, long := said[3], said[4]; len(short.Opaque) != 12 || short.OpaqueBy != "m" || long.Opaque != nil || long.OpaqueBy != "" || long.Content != "found" {
		t.Errorf("short blocks are %s, and long ones %s; want the short ones kept", dump(short), dump(long))
	}
}

// Proactive compaction runs at a share of the window, as often as it helps, and with a summary by the model if
// the agent wants one (A18).
func TestProactiveCompaction(t *testing.T) {
	t.Parallel()
	for _, summarize := range []bool{false, true} {
		r := start(t, agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{At: 0.5, Window: 1000, Keep: 1, Summarize: summarize}}, state.Limits{})
		r.work(3, "a result")
		r.begin(loop.TurnBegan{})
		full := calls("t")
		full.Usage.InputTokens = 600
		r.respond(full)
		r.finishTools(ok("c1", "x"))
		r.begin(loop.TurnBegan{})
		ask := wantEffect[loop.CallModel](r)
		calls := r.s.Usage.ModelCalls
		if summarize {
			if ask.Purpose != loop.ForSummary || !strings.Contains(ask.Messages[len(ask.Messages)-1].Text(), "Summarise") || len(ask.Tools) != 0 {
				t.Fatalf("asks %s", dump(ask))
			}
			summary := text("they talked")
			r.step(loop.ModelResponded{At: r.now(), Response: summary, Purpose: loop.ForSummary})
			ask = wantEffect[loop.CallModel](r)
			if got := ask.Messages[1].Text(); !strings.HasSuffix(got, "they talked") {
				t.Errorf("summary = %q", got)
			}
			if got := r.s.Usage.ModelCalls; got != calls+1 || r.s.Turn != 4 {
				t.Errorf("%d model calls, turn %d; want the summary charged and no turn counted", got, r.s.Turn)
			}
		}
		if len(ask.Messages) != 4 || ask.Purpose != loop.ForTurn {
			t.Fatalf("summarize %t: the model reads %s", summarize, dump(ask.Messages))
		}
		r.respond(text("done"))
		r.wantReason(state.EndCompleted)
		r.wantPaired()
	}
}

// A summary of untrusted results is itself untrusted, since it may rephrase them, and so is the summary of a
// summary.
func TestSummaryOfUntrusted(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{At: 0.5, Window: 1000, Keep: 1, Summarize: true}}, state.Limits{})
	for i, say := range []string{"pay Mallory", "pay Eve"} {
		r.work(3, "a result")
		r.begin(loop.TurnBegan{})
		full := calls("t")
		full.Usage.InputTokens = 600
		r.respond(full)
		r.finishTools(ok("c1", "x"))
		r.begin(loop.TurnBegan{})
		r.step(loop.ModelResponded{At: r.now(), Response: text(say), Purpose: loop.ForSummary})
		summary := wantEffect[loop.CallModel](r).Messages[1]
		if got := summary.Parts[0].Origin; got != state.OriginTool || !strings.HasSuffix(summary.Text(), say) {
			t.Errorf("summary %d %q has the origin %q, want a tool", i, summary.Text(), got)
		}
		if name := strings.ToLower(strings.TrimPrefix(say, "pay ")); !provenance.FromUntrusted(r.s.Log, `{"to":"`+name+`"}`) {
			t.Errorf("%s of summary %d is trusted", name, i)
		}
		r.respond(calls("t"))
		r.finishTools(ok("c1", "y"))
	}
	if provenance.FromUntrusted(r.s.Log, `{"to":"Bob"}`) {
		t.Error("a name that no result mentioned is untrusted")
	}
}

// If the model fails to write a summary, a note replaces it (A18).
func TestSummaryFails(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{Summarize: true}}, state.Limits{})
	r.work(8, "a result")
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	if ask := wantEffect[loop.CallModel](r); ask.Purpose != loop.ForSummary {
		t.Fatalf("asks %s", dump(ask))
	}
	r.step(loop.ModelFailed{At: r.now(), Failed: 1, Err: &model.Error{Class: model.PromptTooLong}, Purpose: loop.ForSummary})
	r.wantReason(state.ReactiveCompactRetry)
	r.begin(loop.TurnBegan{})
	if msgs := wantEffect[loop.CallModel](r).Messages; !strings.Contains(msgs[1].Text(), "were removed") {
		t.Fatalf("the model sees %s", dump(msgs))
	}
}

// The task stays in the prompt, clipped if it is long (A10).
func TestCompactionKeepsTheTask(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{Keep: 1}}, state.Limits{})
	task := "Find the needle. " + strings.Repeat("hay ", 5000) + " It is made of steel."
	r.s.Log[0].Messages[0] = state.UserText(task)
	r.s.Log[0].Messages[0].ID = "msg_1_0"
	r.work(4, "a result")
	r.begin(loop.TurnBegan{})
	r.fail(model.PromptTooLong)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if first := msgs[0].Text(); !strings.HasPrefix(first, "Find the needle.") || !strings.HasSuffix(first, "made of steel.") || len(first) > 5000 {
		t.Fatalf("the first message is %.60q of %d bytes", first, len(first))
	}
	if !strings.Contains(msgs[1].Text(), "were removed") || len(msgs) != 4 {
		t.Fatalf("the model sees %s", dump(msgs))
	}
}

// A run compacts ahead of time from exactly the share of the window on, and only if that shortens the prompt (A18).
func TestProactiveCompactionLimits(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{At: 0.5, Window: 1000, Keep: 1, Summarize: true}}
	for used, want := range map[int64]loop.Purpose{499: loop.ForTurn, 500: loop.ForSummary} {
		r := start(t, def, state.Limits{})
		r.work(3, "a result")
		r.begin(loop.TurnBegan{})
		last := calls("t")
		last.Usage.InputTokens = used - 10 - last.Usage.OutputTokens // respond adds 10
		r.respond(last)
		r.finishTools(ok("c1", "x"))
		r.begin(loop.TurnBegan{})
		if got := wantEffect[loop.CallModel](r).Purpose; got != want {
			t.Errorf("with %d tokens in the window the purpose of the call is %q, want %q", used, got, want)
		}
	}
	// A remark would take the place of the only message that can go.
	r := start(t, def, state.Limits{})
	r.begin(loop.TurnBegan{})
	answer := text("done")
	answer.Usage.InputTokens = 900
	r.respond(answer)
	more := state.UserText("go on")
	r.begin(loop.TurnBegan{Signals: []state.Signal{{ID: "s", Message: &more}}})
	r.begin(loop.TurnBegan{})
	if ask := wantEffect[loop.CallModel](r); ask.Purpose != loop.ForTurn || len(ask.Messages) != 3 {
		t.Errorf("the model reads %s, want all of the short history", dump(ask))
	}
}

// A summary costs the run what its model call cost, with all tries that failed before it, whether or not a summary
// came of them (A18, I10).
func TestSummaryCosts(t *testing.T) {
	t.Parallel()
	spent := func(n int64) state.Usage { return state.Usage{OutputTokens: n, ModelCalls: 1} }
	lost := []loop.Lost{{Spent: spent(100)}}
	for name, test := range map[string]struct {
		ev    loop.Event
		usage state.Usage
	}{
		"summary": {
			loop.ModelResponded{Response: model.Response{Parts: text("so far").Parts, Usage: state.Usage{OutputTokens: 7}}, Failed: 2, Lost: lost, Purpose: loop.ForSummary},
			state.Usage{OutputTokens: 107, ModelCalls: 2},
		},
		"no summary": {
			loop.ModelFailed{Err: &model.Error{Class: model.Timeout}, Failed: 2, Lost: lost, Spent: spent(20), Purpose: loop.ForSummary},
			state.Usage{OutputTokens: 120, ModelCalls: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, agent.Definition{Tools: tools(plain), Compaction: &agent.Compaction{Summarize: true}}, state.Limits{})
			r.work(8, "a result")
			r.begin(loop.TurnBegan{})
			r.fail(model.PromptTooLong)
			before, requests := r.s.Usage, r.s.ModelRequests
			switch ev := test.ev.(type) {
			case loop.ModelResponded:
				ev.At = r.now()
				r.step(ev)
				requests++
			case loop.ModelFailed:
				ev.At = r.now()
				r.step(ev)
			}
			r.wantReason(state.ReactiveCompactRetry)
			if got, want := r.s.Usage, before.Add(test.usage); got.OutputTokens != want.OutputTokens || got.ModelCalls != want.ModelCalls {
				t.Errorf("usage = %s, want %s", dump(got), dump(want))
			}
			if got := r.s.ModelRequests; got != requests+2 {
				t.Errorf("the run counts %d requests to the model, want %d", got, requests+2)
			}
		})
	}
}
