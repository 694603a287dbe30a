package loop_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func reflective(l agent.Loop) agent.Definition {
	l.Type = "reflect"
	return agent.Definition{Tools: tools(plain, agent.Tool{Name: "submit"}), Loop: l}
}

// round is one turn with a call that differs from all others.
func (r *run) round(i int, result loop.ToolResult) {
	r.t.Helper()
	r.begin(loop.TurnBegan{})
	r.respond(calls(fmt.Sprintf(`t {"n":%d}`, i)))
	result.CallID = "c1"
	r.finishTools(result)
}

// Each finding adds a fraction of the missing confidence. The twelfth reflection, after the thirteenth model
// call, passes the threshold (L1, L2).
func TestReflectConfident(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		result string
		calls  int
	}{{"a useful result", 13}, {"meh", 20}} {
		r := start(t, reflective(agent.Loop{MaxTurns: 50}), state.Limits{MaxTurns: 50})
		for i := 1; ; i++ {
			r.round(i, ok("", tt.result))
			if r.s.Status.Terminal() {
				break
			}
			want := state.Reflected
			if i == 1 {
				want = state.NextTurn // the first turn has nothing to compare with
			}
			r.wantReason(want)
		}
		r.wantReason(state.EndConfident)
		if r.s.Usage.ModelCalls != int64(tt.calls) || r.s.Status != state.Completed || *r.s.Facts.Confidence < 0.85 {
			t.Errorf("%q: confident %v after %d calls, want %d", tt.result, *r.s.Facts.Confidence, r.s.Usage.ModelCalls, tt.calls)
		}
		r.wantPaired()
	}
}

// Each finding of a reflection changes the confidence by its amount (L2).
func TestReflectAssessments(t *testing.T) {
	t.Parallel()
	r := start(t, reflective(agent.Loop{ToolLoopThreshold: 99}), state.Limits{MaxTurns: 50})
	failed := loop.ToolResult{Name: "t", Content: "no", IsError: true}
	confidence := 0.0
	for i, step := range []struct {
		result loop.ToolResult
		want   string
		delta  float64
	}{
		{failed, "stuck", -0.10}, // a failure is reflected on at once
		{failed, "error", -0.15},
		{ok("", "long enough to be a finding"), "error", -0.15},
		{ok("", "long enough to be a finding"), "stuck", -0.10},
		{ok("", "long enough to be a finding"), "new_findings", 0.15},
		{ok("", "short"), "on_track", 0.10},
		{failed, "stuck", -0.10},
	} {
		r.round(i, step.result)
		r.wantReason(state.Reflected)
		e := r.s.Log[len(r.s.Log)-2]
		gain := step.delta
		if gain > 0 {
			gain *= 1 - confidence
		}
		confidence = math.Max(0, confidence+gain)
		if e.Type != state.EntryReflect || e.Assessment != step.want || e.ConfidenceDelta != step.delta || math.Abs(*e.Confidence-confidence) > 1e-9 {
			t.Fatalf("round %d: %s, want %s %v to %v", i, dump(e), step.want, step.delta, confidence)
		}
	}
}

// Three turns in a row with the same calls and arguments end the run. The notation of the arguments does not
// count; different arguments do (L3).
func TestToolLoop(t *testing.T) {
	t.Parallel()
	for _, def := range []agent.Definition{
		reflective(agent.Loop{}),
		{Tools: tools(plain), Loop: agent.Loop{ToolLoopThreshold: 3}},
	} {
		r := start(t, def, state.Limits{})
		for i, args := range []string{`{"a":1,"b":2}`, `{"a":2,"b":2}`, `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{ "a": 1, "b": 2 }`} {
			if r.s.Status.Terminal() {
				t.Fatalf("ended before turn %d: %s", i, r.s.Transition.Reason)
			}
			r.begin(loop.TurnBegan{})
			r.respond(calls("t " + args))
			r.finishTools(ok("c1", "x"))
		}
		r.wantReason(state.EndToolLoop)
		if r.s.Status != state.Incomplete {
			t.Errorf("status = %s", r.s.Status)
		}
		r.wantPaired()
	}
	// The order of the calls of a response and repetitions among them do not count.
	r := start(t, agent.Definition{Tools: tools(plain), Loop: agent.Loop{ToolLoopThreshold: 3}}, state.Limits{})
	for _, list := range [][]string{{`t {"a":1}`, `t {"a":2}`}, {`t {"a":2}`, `t {"a":1}`}, {`t {"a":1}`, `t {"a":2}`, `t {"a":1}`}} {
		r.begin(loop.TurnBegan{})
		r.respond(calls(list...))
		r.finishTools([]loop.ToolResult{ok("c1", "x"), ok("c2", "x"), ok("c3", "x")}[:len(list)]...)
	}
	r.wantReason(state.EndToolLoop)
	// Without a threshold, react lets a tool be polled.
	r = start(t, agent.Definition{Tools: tools(plain)}, state.Limits{MaxTurns: 5})
	for range 5 {
		r.begin(loop.TurnBegan{})
		r.respond(calls("t"))
		r.finishTools(ok("c1", "x"))
	}
	r.wantReason(state.EndMaxTurns)
}

// Reflection can be off, or in every second turn. An answer is reflected on and ends the run; a terminal tool
// runs, and completes it (L1).
func TestReflectRoutes(t *testing.T) {
	t.Parallel()
	count := func(r *run) (n int) {
		for _, e := range r.s.Log {
			if e.Type == state.EntryReflect {
				n++
			}
		}
		return n
	}
	off := false
	for _, tt := range []struct {
		loop agent.Loop
		want int
	}{{agent.Loop{}, 4}, {agent.Loop{ReflectInterval: 2}, 2}, {agent.Loop{EnableReflection: &off}, 0}} {
		r := start(t, reflective(tt.loop), state.Limits{})
		for i := range 4 {
			r.round(i, ok("", "x"))
		}
		r.begin(loop.TurnBegan{})
		r.respond(text("the answer"))
		r.wantReason(state.EndCompleted)
		if got := count(r); got != tt.want {
			t.Errorf("%+v: %d reflections, want %d", tt.loop, got, tt.want)
		}
	}
	r := start(t, reflective(agent.Loop{TerminalTools: []string{"submit"}}), state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("submit"))
	wantEffect[loop.RunTools](r)
	r.finishTools(loop.ToolResult{CallID: "c1", Name: "submit", Content: "submitted"})
	r.wantReason(state.EndCompleted)
	if *r.s.Output != "submitted" {
		t.Errorf("output = %q", *r.s.Output)
	}
	r.wantPaired()
}

// Guidance is in the log, and the model reads it only if the agent says so (L2).
func TestReflectGuidance(t *testing.T) {
	t.Parallel()
	for _, tell := range []bool{false, true} {
		r := start(t, reflective(agent.Loop{TellGuidance: tell}), state.Limits{})
		r.round(1, loop.ToolResult{Name: "t", Content: "no", IsError: true})
		r.begin(loop.TurnBegan{})
		msgs := wantEffect[loop.CallModel](r).Messages
		if got := len(msgs) == 4; got != tell {
			t.Errorf("tell_guidance %t: the model reads %s", tell, dump(msgs))
		}
	}
}

// Conditions override the next node, in order, and adding one creates new rules. Limits still hold (L4, L5).
func TestConditions(t *testing.T) {
	t.Parallel()
	base := loop.ReflectRules()
	enough := base.With("silent", func(state.State, loop.Node) (loop.Node, bool) { return "", false }).
		With("enough", func(s state.State, from loop.Node) (loop.Node, bool) {
			return loop.Terminate, from == loop.Execute && s.Turn == 2
		}).
		With("late", func(s state.State, from loop.Node) (loop.Node, bool) {
			return loop.Reflect, from == loop.Execute && s.Turn <= 2
		})
	a := compile(t, reflective(agent.Loop{}))
	r := start(t, reflective(agent.Loop{}), state.Limits{})
	r.loop = loop.New(a, enough)
	r.round(1, ok("", "x"))
	r.wantReason(state.Reflected)
	r.round(2, ok("", "x"))
	r.wantReason(state.EndCompleted)
	if r.s.Transition.Detail != "condition enough" {
		t.Errorf("detail = %q", r.s.Transition.Detail)
	}
	// The original rules are unchanged.
	r = start(t, reflective(agent.Loop{}), state.Limits{})
	r.loop = loop.New(a, base)
	r.round(1, ok("", "x"))
	r.round(2, ok("", "x"))
	r.wantReason(state.Reflected)
	// A condition that always continues meets the limit.
	r = start(t, reflective(agent.Loop{}), state.Limits{MaxTurns: 3})
	r.loop = loop.New(a, base.With("again", func(state.State, loop.Node) (loop.Node, bool) { return loop.Think, true }))
	for range 3 {
		r.begin(loop.TurnBegan{})
		r.respond(text("answer"))
		r.wantReason(state.NextTurn)
	}
	r.begin(loop.TurnBegan{})
	r.wantReason(state.EndMaxTurns)
}
