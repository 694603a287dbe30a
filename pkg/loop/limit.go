package loop

import (
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// notCalled answers a call in the response that had to be an answer.
const notCalled = "Not called: the run has reached its limit of turns and had to answer."

// answersAtLimit reports whether the last model call that max_turns allows must be an answer.
func (t *Turn) answersAtLimit() bool {
	return t.agent.Loop.OnLimit == agent.OnLimitAnswer && t.s.Limits.MaxTurns > 0
}

// lastCall reports whether the next model call is the last that max_turns allows, and must be an answer.
func (t *Turn) lastCall() bool {
	next := t.Count() + 1
	if t.s.ContinueTurn {
		next--
	}
	return t.answersAtLimit() && next >= t.s.Limits.MaxTurns
}

// calledLast reports whether the last response is the one that had to be an answer.
func (t *Turn) calledLast() bool {
	return t.answersAtLimit() && t.Count() >= t.s.Limits.MaxTurns
}

// endWithAnswer ends the run with the response of its last call. It does not call stop hooks: they could not
// continue the run.
func (t *Turn) endWithAnswer() Decision {
	text := lastResponse(t.s.Log).Message.Text()
	text, _ = t.accepted(text) // the run is incomplete with a wrong answer, too
	return t.finish(state.EndMaxTurns, notCalled, state.Entry{Detail: "limit " + budget.MaxTurns, Output: &text})
}
