package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

// A third-party loop runs on any worker, without a change elsewhere (D10).
func TestPlanner(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1. Find a train", "plan_step  1: Find a train.", "next_turn  planned", "plan_step  2: Name its platform.", "next_turn  1 of 2 steps",
		"reflected  executed", "take the 9:02 from platform 4", "run.finished   completed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func loops() loop.Registry {
	all := loop.Builtin()
	all["planner"] = Planner
	return all
}

// The loop keeps the general properties of loops in random histories with crashes, aborts and difficult models.
func TestPlannerIsALoop(t *testing.T) {
	t.Parallel()
	turnpiketest.Loop(t, loops(), agent.Definition{
		Loop: agent.Loop{Type: "planner"}, Tools: []agent.Tool{{Name: "timetable", Idempotent: true}, {Name: "book"}},
	})
}

// begun returns a run, and the loop that is bound to its agent.
func begun(t *testing.T) (loop.Loop, state.State, state.Time) {
	t.Helper()
	a, err := agent.Builtin(loops().Names()...).Compile(agent.Definition{
		Name: "traveller", Loop: agent.Loop{Type: "planner"}, Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "x"}}},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := state.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	s, err := state.State{ID: "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", Agent: a.Name, Loop: "planner", Limits: state.Limits{MaxTurns: 9}}.
		Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{state.UserText("to Lisbon")}})
	if err != nil {
		t.Fatal(err)
	}
	return Planner(a), s, at
}

// The plan survives the store as the state of this loop, with its version.
func TestPlanIsKept(t *testing.T) {
	t.Parallel()
	l, s, at := begun(t)
	d := l.Step(s, loop.TurnBegan{At: at, Worker: "w1", Attempt: 1})
	d = l.Step(*d.Next, loop.ModelResponded{At: at, Attempt: 1, Response: model.Response{Parts: []state.Part{{Type: state.PartText, Text: "1. Find it.\n2) Go."}}}})
	if d.Effect != nil {
		t.Fatalf("Step = %+v", d)
	}
	b, err := state.EncodeState(*d.Next)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := state.DecodeState(b)
	if err != nil {
		t.Fatal(err)
	}
	own, err := plan.Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(planState{Plan: []string{"Find it.", "Go."}}, own); diff != "" {
		t.Errorf("the loop restored a different plan:\n%s", diff)
	}
	if got := stored.LoopState; got.Version != 1 || string(got.Data) != `{"plan":["Find it.","Go."]}` {
		t.Errorf("stored as %s of version %d", got.Data, got.Version)
	}
}

// A plan that the loop cannot decode stops the turn, with an error that names the loop and the reason.
func TestPlanThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for own, newer := range map[*state.LoopState]bool{
		{Version: 2, Data: json.RawMessage(`{"plan":{"steps":[]}}`)}: true,
		{Version: 1, Data: json.RawMessage(`{"plan":"Find it."}`)}:   false,
	} {
		l, s, at := begun(t)
		s.LoopState = *own
		d := l.Step(s, loop.TurnBegan{At: at, Worker: "w1", Attempt: 1})
		stops, _ := d.Effect.(loop.GiveUp)
		e, ok := errors.AsType[*loop.StateError](stops.Err)
		if !ok || e.Loop != "planner" || e.Version != own.Version || e.Knows != 1 {
			t.Errorf("Step = %+v, want it to stop with a StateError", d)
		}
		if got := errors.Is(stops.Err, state.ErrFormat); got != newer {
			t.Errorf("%v: left to newer workers %v, want %v", stops.Err, got, newer)
		}
		// A run can be ended whatever the state of its loop.
		if d := l.Step(s, loop.TurnBegan{At: at, Worker: "w1", Attempt: 6, Poisoned: true}); d.Effect != nil || d.Next.Status != state.Failed {
			t.Errorf("Step of a poisoned turn = %+v", d)
		}
	}
}
