package state

import (
	"fmt"
	"slices"
)

// Status is the current status of a run. A run starts Queued, or Waiting for its start; the replacement of a lost
// run starts Failed. A run stays in a terminal status until a user message or a replay continues it.
type Status string

// The statuses.
const (
	Queued     Status = "queued"
	Running    Status = "running"
	Waiting    Status = "waiting"
	Completed  Status = "completed"
	Incomplete Status = "incomplete"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Statuses returns every status, in the order of a run's life.
func Statuses() []Status {
	return []Status{Queued, Running, Waiting, Completed, Incomplete, Failed, Cancelled}
}

// Terminal reports whether the run has ended.
func (s Status) Terminal() bool {
	return s == Completed || s == Incomplete || s == Failed || s == Cancelled
}

// Reason identifies the cause of a transition. Two transitions may lead to the same status for different
// reasons; metrics, logs and tests distinguish them by Reason.
type Reason string

// Reasons why a run continues.
const (
	Submitted               Reason = "submitted"
	NextTurn                Reason = "next_turn"
	MaxOutputTokensRecovery Reason = "max_output_tokens_recovery"
	StopHookBlocking        Reason = "stop_hook_blocking"
	ReactiveCompactRetry    Reason = "reactive_compact_retry"
	BudgetContinuation      Reason = "budget_continuation"
	OutputRetry             Reason = "output_retry"
	ModelFallback           Reason = "model_fallback"
	ModelRetry              Reason = "model_retry"
	Reflected               Reason = "reflected"
	FinalResponse           Reason = "final_response"
	ToolResults             Reason = "tool_results"
	Approved                Reason = "approved"
	Denied                  Reason = "denied"
	Answered                Reason = "answered"
	ChildFinished           Reason = "child_finished"
	UserMessage             Reason = "user_message"
	Interrupted             Reason = "interrupted"
	HandedOff               Reason = "handed_off"
	Forked                  Reason = "forked"
	Recovered               Reason = "recovered"
	Replayed                Reason = "replayed"
)

// Reasons why a run waits.
const (
	WaitingApproval   Reason = "waiting_approval"
	WaitingClientTool Reason = "waiting_client_tool"
	WaitingHumanInput Reason = "waiting_human_input"
	WaitingChild      Reason = "waiting_child"
	WaitingTool       Reason = "waiting_tool"
	WaitingSchedule   Reason = "waiting_schedule"
)

// ByPerson reports whether a run that waits with this reason waits for a person.
func (r Reason) ByPerson() bool { return r == WaitingApproval || r == WaitingHumanInput }

// Reasons why a run ends.
const (
	EndCompleted          Reason = "completed"
	EndConfident          Reason = "confident"
	EndStopHookPrevented  Reason = "stop_hook_prevented"
	EndMaxTurns           Reason = "max_turns"
	EndTokenBudget        Reason = "token_budget_exhausted"
	EndDiminishingReturns Reason = "diminishing_returns"
	EndCostBudget         Reason = "cost_budget_exhausted"
	EndDeadline           Reason = "deadline_exceeded"
	EndPromptTooLong      Reason = "prompt_too_long"
	EndMaxOutputTokens    Reason = "max_output_tokens"
	EndToolLoop           Reason = "tool_loop"
	EndRefused            Reason = "refused"
	EndModelError         Reason = "model_error"
	EndInvalidOutput      Reason = "invalid_output"
	EndInvalidAgent       Reason = "invalid_agent"
	EndPoisoned           Reason = "poisoned"
	EndExpired            Reason = "expired"
	EndInputHookFailed    Reason = "input_hook_failed"
	EndStopHookFailed     Reason = "stop_hook_failed"
	EndLost               Reason = "lost"
	EndAbortedQueued      Reason = "aborted_queued"
	EndAbortedStreaming   Reason = "aborted_streaming"
	EndAbortedTools       Reason = "aborted_tools"
	EndAbortedWaiting     Reason = "aborted_waiting"
)

// edge is one legal move: from any of the statuses in from to the status to.
type edge struct {
	reason Reason
	from   []Status
	to     Status
}

var (
	fresh   = []Status{""}
	turning = []Status{Queued, Waiting}
	resting = []Status{Queued, Waiting, Completed, Incomplete, Failed, Cancelled}
)

// edges is the whole state machine: no other move is possible. The
// diagram in docs/reference/state-machine.md is generated from it.
//
// A move starts from the status in the header, which only moves change. A claim or a signal does not: the turn of
// a run that a signal has woken moves from Waiting, or from the end of the run. So the machine has no Running.
var edges = []edge{
	{Submitted, fresh, Queued},
	{Forked, fresh, Queued},

	{NextTurn, turning, Queued},
	{MaxOutputTokensRecovery, turning, Queued},
	{StopHookBlocking, turning, Queued},
	{ReactiveCompactRetry, turning, Queued},
	{BudgetContinuation, turning, Queued},
	{OutputRetry, turning, Queued},
	{ModelFallback, turning, Queued},
	{ModelRetry, turning, Queued},
	{Reflected, turning, Queued},
	{FinalResponse, turning, Queued},
	{ToolResults, turning, Queued},
	{Approved, turning, Queued},
	{Denied, turning, Queued},
	{Answered, turning, Queued},
	{ChildFinished, turning, Queued},
	{UserMessage, resting, Queued},
	{Interrupted, turning, Queued},
	{HandedOff, turning, Queued},
	{Replayed, []Status{Failed}, Queued},

	{WaitingApproval, turning, Waiting},
	{WaitingClientTool, turning, Waiting},
	{WaitingHumanInput, turning, Waiting},
	{WaitingChild, turning, Waiting},
	{WaitingTool, turning, Waiting},
	{WaitingSchedule, append([]Status{""}, turning...), Waiting},

	{EndCompleted, turning, Completed},
	{EndConfident, turning, Completed},
	{EndStopHookPrevented, turning, Completed},

	{EndMaxTurns, turning, Incomplete},
	{EndTokenBudget, turning, Incomplete},
	{EndDiminishingReturns, turning, Incomplete},
	{EndCostBudget, turning, Incomplete},
	{EndDeadline, turning, Incomplete},
	{EndPromptTooLong, turning, Incomplete},
	{EndMaxOutputTokens, turning, Incomplete},
	{EndToolLoop, turning, Incomplete},
	{EndRefused, turning, Incomplete},

	{EndModelError, turning, Failed},
	{EndInvalidOutput, turning, Failed},
	{EndInvalidAgent, turning, Failed},
	{EndPoisoned, turning, Failed},
	{EndExpired, turning, Failed},
	{EndInputHookFailed, turning, Failed},
	{EndStopHookFailed, turning, Failed},
	{EndLost, turning, Failed},

	{EndAbortedQueued, turning, Cancelled},
	{EndAbortedStreaming, turning, Cancelled},
	{EndAbortedTools, turning, Cancelled},
	{EndAbortedWaiting, turning, Cancelled},
}

var edgeByReason = func() map[Reason]edge {
	m := make(map[Reason]edge, len(edges))
	for _, e := range edges {
		m[e.reason] = e
	}
	return m
}()

// Reasons returns the reason of every move of the machine, in the order of its table. Recovered is not
// among them, see Reason.Status.
func Reasons() []Reason {
	all := make([]Reason, len(edges))
	for i, e := range edges {
		all[i] = e.reason
	}
	return all
}

// WaitReasons returns the reasons why a run may wait.
func WaitReasons() []Reason {
	return slices.DeleteFunc(Reasons(), func(r Reason) bool { return edgeByReason[r].to != Waiting })
}

// Status returns the status to which r leads, and false if r is not a move of the machine.
// Recovered is not one: it marks a turn that was retried after a fault.
func (r Reason) Status() (Status, bool) {
	e, ok := edgeByReason[r]
	return e.to, ok
}

// Terminal reports whether r ends a run.
func (r Reason) Terminal() bool {
	s, ok := r.Status()
	return ok && s.Terminal()
}

// TransitionError reports a move that the machine does not have.
type TransitionError struct {
	From   Status
	Reason Reason
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("a run with the status %q cannot make a transition with the reason %q: correct the loop; if it is a built-in one, report this bug in Turnpike", e.From, e.Reason)
}

// legal returns the status after a move, or a *TransitionError.
func legal(from Status, r Reason) (Status, error) {
	e, ok := edgeByReason[r]
	if !ok || !slices.Contains(e.from, from) {
		return "", &TransitionError{From: from, Reason: r}
	}
	return e.to, nil
}
