package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// journey has the arguments of the tool. Its fields are the schema.
type journey struct {
	To string `json:"to" jsonschema:"a city"`
	By string `json:"by" jsonschema:"train or plane"`
}

// timetable is a tool. Its result is journaled: no crash makes a worker call it again.
func timetable(_ context.Context, j journey) (string, error) {
	return "9:02 to " + j.To + ", platform 4", nil
}

// noFlights is a hook that the worker calls before each tool call.
func noFlights(_ context.Context, r hook.Request) (hook.Answer, error) {
	var j journey
	if err := json.Unmarshal(r.Call.Arguments, &j); err != nil || j.By != "plane" {
		return hook.Answer{}, err
	}
	return hook.Answer{Deny: new("we take the train")}, nil
}

// checks is the state that the loop below keeps in a run.
type checks struct {
	Made bool `json:"made,omitempty"`
}

// checked asks the model to check its answer once. Everything else is as in react.
var checked = loop.Typed[checks]{OnAnswer: func(t *loop.Turn, own *checks, text string) loop.Decision {
	if own.Made {
		return t.Complete(state.EndCompleted, text)
	}
	own.Made = true
	return t.Next(state.Reflected, "checked", state.UserText("Check your answer against the timetable, then give it again."))
}}

// show prints what an event adds to the conversation.
func show(out io.Writer, e turnpike.Event) {
	if e.Message == nil {
		return
	}
	for _, p := range e.Message.Parts {
		switch p.Type {
		case state.PartToolCall:
			fmt.Fprintf(out, "%s %s\n", p.Name, p.Arguments)
		case state.PartToolResult:
			fmt.Fprintf(out, "  %s\n", p.Content)
		case state.PartProviderTool:
			fmt.Fprintf(out, "%s %s\n  %s\n", p.Name, p.Arguments, p.Content)
		default:
			fmt.Fprintln(out, p.Text)
		}
	}
}
