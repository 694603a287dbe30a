package loop_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// ParseAction finds the JSON action in a response, or none (K2).
func TestParseAction(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"tool":"calc","arguments":{"x":1}}`:                    "tool calc",
		"  \n{\"tool\": \"calc\"}\n ":                            "tool calc",
		"I will look.\n{\"tool\":\"calc\"}\nThen more.":          "tool calc",
		"{\"tool\": oops}\n  {\"agent\":\"bob\",\"task\":\"x\"}": "agent bob",
		"```json\n{\"tool\":\"calc\"}\n```":                      "tool calc",
		`[{"tool":"calc"}]`:                                      "",
		"Look:\n{\n \"tool\": \"calc\"\n}":                       "",
		`{"tool":"calc","agent":"bob","task":"x"}`:               "tool calc",
		`{"tool":"","agent":"bob","task":"x"}`:                   "agent bob",
		`{"tool":7}`:                                             "",
		`{"other":"x"}`:                                          "",
		`{}`:                                                     "",
		`42`:                                                     "",
		`"text"`:                                                 "",
		"no JSON at all":                                         "",
		"":                                                       "",
	} {
		a := loop.ParseAction(text)
		got := ""
		switch {
		case a.Tool != "":
			got = "tool " + a.Tool
		case a.Agent != "":
			got = "agent " + a.Agent
		}
		if got != want || a.None() != (want == "") {
			t.Errorf("ParseAction(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzParseAction(f *testing.F) {
	f.Add(`{"tool":"calc","arguments":{"x":1}}`)
	f.Add("x\n{\"agent\":1}\n{\"a\":{}}")
	f.Fuzz(func(_ *testing.T, text string) { loop.ParseAction(text) })
}

var helper = agent.Tool{Name: "researcher", Kind: toolspec.Agent, Own: tool.EncodeSettings(toolspec.Delegate{Agent: "researcher"}), Description: "Finds things out."}

func twoPhase(ts ...agent.Tool) agent.Definition {
	return agent.Definition{Instructions: "Be brief.", Loop: agent.Loop{Type: "two_phase"}, Tools: ts}
}

// Each part of the system prompt is present only where it applies (K3).
func TestTwoPhaseSystemPrompt(t *testing.T) {
	t.Parallel()
	parts := []string{"Be brief.", "## Available Tools", `{"tool":`, "## Available Agents for Delegation", `{"agent":`, "answer with {}"}
	calc := agent.Tool{Name: "calc", Description: "Calculates."}
	for name, tt := range map[string]struct {
		tools []agent.Tool
		want  []bool
	}{
		"none":   {nil, []bool{true, false, false, false, false, false}},
		"tools":  {tools(calc), []bool{true, true, true, false, false, true}},
		"agents": {tools(helper), []bool{true, false, false, true, true, true}},
		"both":   {tools(calc, helper), []bool{true, true, true, true, true, true}},
	} {
		prompt := loop.SystemPrompt(compile(t, twoPhase(tt.tools...)), "")
		at := 0
		for i, part := range parts {
			found := strings.Index(prompt, part)
			if (found >= 0) != tt.want[i] || found >= 0 && found < at {
				t.Errorf("%s: part %q is at %d (after %d), want it %t:\n%s", name, part, found, at, tt.want[i], prompt)
			}
			at = max(at, found)
		}
	}
}

func say(r *run, text string) {
	r.t.Helper()
	resp := model.Response{Parts: []state.Part{{Type: state.PartText, Text: text}}, Stop: model.StopEnd, Usage: state.Usage{OutputTokens: 5}}
	r.respond(resp)
}

// The first phase calls a tool, the second answers; the model gets no native tools (K1, K3, K4, K6).
func TestTwoPhaseTool(t *testing.T) {
	t.Parallel()
	r := start(t, twoPhase(plain), state.Limits{})
	r.begin(loop.TurnBegan{})
	ask := wantEffect[loop.CallModel](r)
	if len(ask.Tools) != 0 || !ask.Quiet || ask.Messages[0].Role != state.RoleSystem || !strings.Contains(ask.Messages[0].Text(), "- t\n") {
		t.Fatalf("the first phase is called with %s", dump(ask))
	}
	say(r, "I look it up.\n{\"tool\": \"t\", \"arguments\": {\"q\": 1}}")
	if got := wantEffect[loop.RunTools](r).Calls; len(got) != 1 || got[0].Name != "t" || got[0].Arguments != `{"q":1}` {
		t.Fatalf("runs %v", got)
	}
	if p := r.s.Log[len(r.s.Log)-1]; p.Type != state.EntryProgress || p.Step != 1 || p.Action != "tool_call" || p.Target != "t" {
		t.Fatalf("before the tool: %s, want progress", dump(p))
	}
	r.finishTools(loop.ToolResult{CallID: r.s.Open[0].ID, Name: "t", Content: "42"})
	r.wantReason(state.NextTurn)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if got := msgs[len(msgs)-1]; got.Role != state.RoleUser || got.Text() != "[Step 1/5] Tool result: 42" {
		t.Fatalf("the model reads %s", dump(got))
	}
	say(r, "{}")
	r.wantReason(state.FinalResponse)
	r.begin(loop.TurnBegan{})
	ask = wantEffect[loop.CallModel](r)
	if last := ask.Messages[len(ask.Messages)-1]; ask.Quiet || last.Text() != "Now provide your final response to the user." {
		t.Fatalf("the second phase is called with %s", dump(ask))
	}
	say(r, `{"tool":"t"} is what I would do again`)
	r.wantReason(state.EndCompleted)
	r.wantPaired()
	var session []string
	for _, e := range state.Session(r.s.Log) {
		session = append(session, e.Type)
	}
	if diff := cmp.Diff([]string{"user_message", "tool_call", "tool_result", "agent_response"}, session); diff != "" {
		t.Errorf("session events (K6):\n%s", diff)
	}
}

// A simple answer costs two model calls; five steps are the maximum (K1).
func TestTwoPhaseSteps(t *testing.T) {
	t.Parallel()
	r := start(t, twoPhase(plain), state.Limits{})
	r.begin(loop.TurnBegan{})
	say(r, "I need nothing.")
	r.wantReason(state.FinalResponse)
	r.begin(loop.TurnBegan{})
	say(r, "Hello.")
	r.wantReason(state.EndCompleted)
	if r.s.Usage.ModelCalls != 2 || *r.s.Output != "Hello." {
		t.Errorf("%d calls, output %q", r.s.Usage.ModelCalls, *r.s.Output)
	}
	// Continued by the user, the run starts with the first phase again.
	hi := state.UserText("and now?")
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Message: &hi}}})
	r.begin(loop.TurnBegan{})
	say(r, `{"tool":"t"}`)
	wantEffect[loop.RunTools](r)

	r = start(t, twoPhase(plain), state.Limits{})
	for range 5 {
		r.begin(loop.TurnBegan{})
		say(r, `{"tool":"t"}`)
		r.finishTools(loop.ToolResult{CallID: r.s.Open[0].ID, Name: "t", Content: "no", IsError: true})
	}
	r.wantReason(state.EndMaxTurns)
	if *r.s.Output != "Reached maximum reasoning steps (5)" || r.s.Usage.ModelCalls != 5 {
		t.Errorf("output %q after %d calls", *r.s.Output, r.s.Usage.ModelCalls)
	}
}

// Arguments that are missing or null are an empty object.
func TestTwoPhaseWithoutArguments(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"tool":"t"}`, `{"tool":"t","arguments":null}`} {
		r := start(t, twoPhase(plain), state.Limits{})
		r.begin(loop.TurnBegan{})
		say(r, text)
		if got := wantEffect[loop.RunTools](r).Calls; len(got) != 1 || got[0].Arguments != "{}" {
			t.Errorf("after %s the run makes the calls %s", text, dump(got))
		}
	}
}

// Failures are fed back to the loop (K2, K7).
func TestTwoPhaseFailures(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"agent":"nobody","task":"x"}`: "[Step 1/5] Delegation failed: Sub-agent 'nobody' not found. Available: [researcher]",
		`{"agent":"researcher"}`:        "[Step 1/5] Invalid delegation: missing 'task'",
		`{"tool":"hammer"}`:             "[Step 1/5] Tool execution failed: Unknown tool: hammer. Available tools: t, researcher",
	} {
		r := start(t, twoPhase(plain, helper), state.Limits{})
		r.begin(loop.TurnBegan{})
		say(r, text)
		r.wantReason(state.NextTurn)
		r.begin(loop.TurnBegan{})
		msgs := wantEffect[loop.CallModel](r).Messages
		if got := msgs[len(msgs)-1].Text(); got != want {
			t.Errorf("after %s the model reads %q, want %q", text, got, want)
		}
		r.wantPaired()
	}
}

// A delegation waits for the other agent's run (K4, K6, K7).
func TestTwoPhaseDelegation(t *testing.T) {
	t.Parallel()
	r := start(t, twoPhase(helper), state.Limits{})
	r.begin(loop.TurnBegan{})
	say(r, `{"agent":"researcher","task":"find it"}`)
	r.wantReason(state.WaitingChild)
	o := r.s.Open[0]
	if o.Child == "" || o.Arguments != `{"task":"find it"}` || r.s.Waiting.Calls[0].RunID != o.Child {
		t.Fatalf("open call %s", dump(o))
	}
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Child: &state.ChildResult{CallID: o.ID, RunID: o.Child, Content: "found"}}}})
	r.wantReason(state.ChildFinished)
	r.begin(loop.TurnBegan{})
	r.wantReason(state.NextTurn)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if got := msgs[len(msgs)-1].Text(); got != "[Step 1/5] Agent response: found" {
		t.Fatalf("the model reads %q", got)
	}
	say(r, "{}")
	r.begin(loop.TurnBegan{})
	say(r, "It is there.")
	var session []string
	for _, e := range state.Session(r.s.Log) {
		session = append(session, e.Type)
	}
	if diff := cmp.Diff([]string{"user_message", "delegation_request", "delegation_response", "agent_response"}, session); diff != "" {
		t.Errorf("session events (K6):\n%s", diff)
	}
}

// The model reads that a delegation failed, and why (K7).
func TestTwoPhaseDelegationFails(t *testing.T) {
	t.Parallel()
	r := start(t, twoPhase(plain, helper), state.Limits{})
	r.begin(loop.TurnBegan{})
	say(r, `{"agent":"researcher","task":"find it"}`)
	o := r.s.Open[0]
	r.begin(loop.TurnBegan{Signals: []state.Signal{{Child: &state.ChildResult{CallID: o.ID, RunID: o.Child, Content: "no model", IsError: true}}}})
	r.begin(loop.TurnBegan{})
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if got, want := msgs[len(msgs)-1].Text(), "[Step 1/5] Delegation failed: no model"; got != want {
		t.Errorf("the model reads %q, want %q", got, want)
	}
}

// The prompt of two_phase has the values of the run's variables, and the instructions once.
func TestTwoPhaseVariables(t *testing.T) {
	t.Parallel()
	def := twoPhase(plain)
	def.Instructions, def.Variables = "Help {{who}}.", json.RawMessage(`{"properties": {"who": {"type": "string"}}}`)
	r := start(t, def, state.Limits{})
	r.s.Variables = json.RawMessage(`{"who": "Ada"}`)
	system := state.Message{ID: "msg_1_s", Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: "Help Ada."}}}
	r.s.Log[0].Messages = append([]state.Message{system}, r.s.Log[0].Messages...)
	r.begin(loop.TurnBegan{})
	prompt := wantEffect[loop.CallModel](r).Messages[0].Text()
	if !strings.HasPrefix(prompt, "Help Ada.") || strings.Count(prompt, "Help") != 1 {
		t.Errorf("prompt = %s", prompt)
	}
}
