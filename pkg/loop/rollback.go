package loop

import (
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// rolledBack is the detail of a transition after a rollback.
const rolledBack = "rolled back"

// EffectsStarted reports whether a call of the turn in flight has started or may have, so that the turn cannot
// be withdrawn. s is a run as a store has it, and log its log, journaled entries included. A call may have
// started once the response with it is recorded: from then on a worker makes it, or hooks decide about it.
// While the run waits, a call has started if it has a result that Turnpike did not write, or one that says that the
// outcome is unknown, if its tool asked a question, or if a child run, a client or an asynchronous tool answers it.
func EffectsStarted(s state.State, log []state.Entry) bool {
	if s.Status.Terminal() {
		return false // no turn is in flight
	}
	for i := range slices.Backward(log) {
		e := &log[i]
		if _, moves := e.Reason.Status(); moves {
			break
		}
		if e.Type == state.EntryModel && len(e.Message.Calls()) > 0 {
			return true
		}
	}
	return len(s.Open) > 0 && (s.Status != state.Waiting || effects(s.Open, log))
}

// effects reports whether a call of the last response, which has open calls, has had an effect.
func effects(open []state.OpenCall, log []state.Entry) bool {
	if slices.ContainsFunc(open, func(o state.OpenCall) bool {
		return o.AskState != nil || o.Needs == state.NeedChild || o.Needs == state.NeedAsync || o.Needs == state.NeedResult
	}) {
		return true
	}
	for i := range slices.Backward(log) {
		switch e := &log[i]; e.Type {
		case state.EntryModel:
			return false
		case state.EntryTool, state.EntryReused:
			if !e.Message.Synthetic || e.Message.Parts[0].Content == unknownOutcome {
				return true
			}
		default:
		}
	}
	return false
}

// rollBack withdraws the turn in flight: its responses, the results of their calls and what Turnpike
// said between them. All calls must have results. It reports whether there was a turn to withdraw.
func (t *Turn) rollBack() bool {
	if !t.s.ResponsePending && !t.s.ContinueTurn {
		return false
	}
	var ids []string
	for i := range t.s.Log {
		e := &t.s.Log[i]
		switch {
		case e.Type == state.EntryModel && e.Turn == t.s.Turn, len(ids) > 0 && (e.Type == state.EntryTool || e.Type == state.EntryReused):
			ids = append(ids, e.Message.ID)
		case len(ids) > 0 && e.Type == state.EntryTransition:
			for _, m := range e.Messages {
				if m.Synthetic {
					ids = append(ids, m.ID)
				}
			}
		}
	}
	if len(ids) == 0 {
		return false
	}
	t.append(&state.Entry{Type: state.EntryTombstoned, MessageIDs: ids, Detail: rolledBack})
	t.s.ResponsePending, t.s.ContinueTurn = false, false
	return true
}
