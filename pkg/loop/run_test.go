package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// run drives a loop by hand: the test is the worker.
type run struct {
	t    *testing.T
	loop loop.Loop
	s    state.State
	last loop.Decision
	at   time.Time
}

func compile(t *testing.T, def agent.Definition) *agent.Agent {
	t.Helper()
	def.Name = "test"
	if def.Model.Provider == "" {
		def.Model = agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "unused"}}}
	}
	a, err := agent.Builtin().Compile(def, 1)
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return a
}

func start(t *testing.T, def agent.Definition, limits state.Limits) *run {
	t.Helper()
	a := compile(t, def)
	name := def.Loop.Type
	if name == "" {
		name = "react"
	}
	if limits.MaxTurns == 0 {
		limits.MaxTurns = agent.DefaultMaxTurns
	}
	s := state.State{ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", Agent: "test", AgentVersion: 1, Loop: name, Limits: limits}
	input := state.UserText("hello")
	input.ID = "msg_1_0"
	s, err := s.Move(state.Submitted, state.Entry{At: state.At(epoch), Messages: []state.Message{input}})
	if err != nil {
		t.Fatal(err)
	}
	return &run{t: t, loop: loop.Builtin()[name](a), s: s, at: epoch}
}

// step feeds one event, and checks that the loop left its arguments unchanged.
func (r *run) step(ev loop.Event) loop.Decision {
	r.t.Helper()
	before := encode(r.t, r.s)
	again := r.loop.Step(r.s, ev)
	r.last = r.loop.Step(r.s, ev)
	if diff := cmp.Diff(encode(r.t, *again.Next), encode(r.t, *r.last.Next)); diff != "" {
		r.t.Fatalf("Step: equal inputs gave different outputs:\n%s", diff)
	}
	if diff := cmp.Diff(before, encode(r.t, r.s)); diff != "" {
		r.t.Fatalf("Step changed its input (A2):\n%s", diff)
	}
	r.s = *r.last.Next
	if r.last.Effect == nil && r.s.Version == 0 {
		r.t.Fatal("Step ended the turn without a transition")
	}
	return r.last
}

func encode(t *testing.T, s state.State) string {
	t.Helper()
	b, err := state.EncodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Log {
		line, err := state.EncodeEntry(&e)
		if err != nil {
			t.Fatal(err)
		}
		b = append(append(b, '\n'), line...)
	}
	return string(b)
}

func (r *run) now() state.Time {
	r.at = r.at.Add(time.Second)
	return state.At(r.at)
}

func (r *run) begin(ev loop.TurnBegan) loop.Decision {
	r.t.Helper()
	ev.At = r.now()
	if ev.Attempt == 0 {
		ev.Attempt = 1
	}
	ev.Worker = "w1"
	return r.step(ev)
}

func (r *run) respond(resp model.Response) loop.Decision {
	r.t.Helper()
	resp.Usage.InputTokens += 10
	return r.step(loop.ModelResponded{At: r.now(), Attempt: 1, Response: resp})
}

func (r *run) finishTools(results ...loop.ToolResult) loop.Decision {
	r.t.Helper()
	return r.step(loop.ToolsFinished{At: r.now(), Results: results})
}

func text(s string) model.Response {
	return model.Response{Parts: []state.Part{{Type: state.PartText, Text: s}}, Stop: model.StopEnd, Usage: state.Usage{OutputTokens: 5}}
}

func calls(names ...string) model.Response {
	var parts []state.Part
	for i, n := range names {
		name, args, _ := strings.Cut(n, " ")
		if args == "" {
			args = "{}"
		}
		parts = append(parts, state.Part{Type: state.PartToolCall, ID: fmt.Sprintf("c%d", i+1), Name: name, Arguments: args})
	}
	return model.Response{Parts: parts, Stop: model.StopToolCalls, Usage: state.Usage{OutputTokens: 5}}
}

func ok(id, content string) loop.ToolResult {
	return loop.ToolResult{CallID: id, Name: "t", Content: content}
}

func (r *run) wantReason(want state.Reason) {
	r.t.Helper()
	if r.last.Effect != nil {
		r.t.Fatalf("turn continues with %T, want it to end %s", r.last.Effect, want)
	}
	if got := r.s.Transition.Reason; got != want {
		r.t.Fatalf("reason = %s (%s), want %s", got, r.s.Transition.Detail, want)
	}
}

func wantEffect[E loop.Effect](r *run) E {
	r.t.Helper()
	e, ok := r.last.Effect.(E)
	if !ok {
		r.t.Fatalf("effect = %T (reason %s), want %T", r.last.Effect, r.s.Transition.Reason, e)
	}
	return e
}

// wantPaired checks I5: every call has exactly one result, directly after it and in order.
func (r *run) wantPaired() {
	r.t.Helper()
	view := state.View(r.s.Log)
	for i := 0; i < len(view); i++ {
		asked := view[i].Calls()
		for j, c := range asked {
			k := i + 1 + j
			if k >= len(view) || view[k].Role != state.RoleTool || view[k].Parts[0].CallID != c.ID {
				r.t.Fatalf("call %s has no result after it (I5): %s", c.ID, dump(view))
			}
		}
		i += len(asked)
	}
}

func dump(v any) string {
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}

func tools(ts ...agent.Tool) []agent.Tool { return ts }

var (
	plain  = agent.Tool{Name: "t"}
	client = agent.Tool{Name: "pick", Kind: toolspec.Client, Schema: json.RawMessage(`{"type":"object"}`)}
	gated  = agent.Tool{Name: "refund", Approval: "args.amount > 100"}
	human  = agent.Tool{Name: agent.AskUser, Kind: toolspec.Human}
)
