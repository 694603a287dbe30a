package main

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The input - is a text from standard input, and not a hyphen.
func TestInput(t *testing.T) {
	t.Parallel()
	got, err := submission{Input: "-"}.input(strings.NewReader("two\nlines"))
	if err != nil || string(got) != `"two\nlines"` {
		t.Errorf("input = %s, %v", got, err)
	}
	for in, s := range map[string]submission{" \n": {Input: "-"}, "": {}, "x": {Input: "a", From: "b"}} {
		if got, err := s.input(strings.NewReader(in)); err == nil {
			t.Errorf("input of %+v is %s", s, got)
		}
	}
}

// Each wait has a command that ends it.
func TestHint(t *testing.T) {
	t.Parallel()
	child := "run_child"
	for want, w := range map[string]*api.Waiting{
		"turnpike approve run_1 ": {Reason: string(state.WaitingApproval)},
		"turnpike answer run_1 ":  {Reason: string(state.WaitingHumanInput), Calls: []api.WaitCall{{ID: "c1", Needs: "answer"}}},
		"turnpike message run_1 ": {Reason: string(state.WaitingHumanInput)},
		"turnpike result run_1 c2": {Reason: string(state.WaitingClientTool), Calls: []api.WaitCall{
			{ID: "c1", Needs: "approval"}, {ID: "c2", Needs: "result"},
		}},
		"turnpike result run_1 c3": {Reason: string(state.WaitingTool), Calls: []api.WaitCall{{ID: "c3", Needs: "async"}}},
		"/v1/runs/run_1/signals":   {Reason: string(state.WaitingClientTool), Calls: []api.WaitCall{{ID: "c1", Needs: "result", RunID: &child}}},
	} {
		if got := hint("run_1", w); !strings.Contains(got, want) {
			t.Errorf("hint(%+v) = %q, want %q", w, got, want)
		}
	}
}
