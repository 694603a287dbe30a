package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// planState is the loop's state of a run. Each turn stores it, so any worker continues
// where another one stopped.
type planState struct {
	// Plan are the steps, empty until the model has planned. Done are the results of
	// the finished steps.
	Plan []string `json:"plan,omitempty"`
	Done []string `json:"done,omitempty"`
}

func (p planState) planning() bool  { return len(p.Plan) == 0 }
func (p planState) executing() bool { return len(p.Done) < len(p.Plan) }

// plan says how planState is stored. Its version is raised when the meaning of a field
// changes; workers that know an older one then leave such runs to the others.
var plan = loop.Typed[planState]{
	Codec:    loop.Codec[planState]{Version: 1},
	Prompt:   prompt,
	OnAnswer: answered,
}

// Planner plans, executes and reflects.
func Planner(a *agent.Agent) loop.Loop { return loop.New(a, plan.Rules()) }

// prompt offers the tools only while the loop executes steps.
func prompt(t *loop.Turn, own planState) loop.CallModel {
	ask := loop.CallModel{Messages: state.View(t.State().Log)}
	switch {
	case own.planning():
		ask.Messages = append(ask.Messages, state.UserText("Write a plan of short numbered steps, one a line. Do not begin with it."))
	case own.executing():
		ask.Tools = t.Agent().ToolSpecs()
	}
	return ask
}

// answered continues with the next step of the plan, or with the phase that follows it.
func answered(t *loop.Turn, own *planState, text string) loop.Decision {
	switch {
	case own.planning():
		own.Plan = steps(text)
		return step(t, *own, state.NextTurn, "planned")
	case own.executing():
		own.Done = append(own.Done, text)
		if own.executing() {
			return step(t, *own, state.NextTurn, fmt.Sprintf("%d of %d steps", len(own.Done), len(own.Plan)))
		}
		return t.Next(state.Reflected, "executed", state.UserText("Compare what was done with the plan, then give the final answer."))
	default:
		return t.Complete(state.EndCompleted, text)
	}
}

// step continues with the first unfinished step, and publishes the progress.
func step(t *loop.Turn, own planState, r state.Reason, detail string) loop.Decision {
	n, next := len(own.Done)+1, own.Plan[len(own.Done)]
	t.Emit(loop.Progress{Step: n, Action: "plan_step", Target: next})
	return t.Next(r, detail, state.UserText(fmt.Sprintf("Now do step %d with your tools: %s Answer when it is done.", n, next)))
}

var numbered = regexp.MustCompile(`^\s*\d+[.)]\s*`)

// steps returns the numbered lines of a plan, or all of it as one step.
func steps(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if mark := numbered.FindString(line); mark != "" {
			found = append(found, strings.TrimSpace(strings.TrimPrefix(line, mark)))
		}
	}
	if len(found) == 0 {
		found = []string{strings.TrimSpace(text)}
	}
	return found
}
