package loop

import (
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// poisoned ends a run whose turn was claimed too often without a commit. It keeps the signals that
// arrived, and the open calls, which a replay makes again. It does not keep calls that wait for a
// child run: the child ends with this run, and a replay leaves the error as the result of the call.
func (t *Turn) poisoned(ev TurnBegan) Decision {
	said := t.receiveAll(ev.Signals, func(state.Reason, string) {})
	p := &state.Poison{Attempts: ev.Attempt - 1}
	for _, o := range t.s.Open {
		if o.Needs != state.NeedChild {
			p.Calls = append(p.Calls, o)
		}
	}
	t.s.Poison, t.s.DeadLettered = p, true
	return t.finish(state.EndPoisoned, poisonedText, state.Entry{
		Messages: said, Detail: fmt.Sprintf("claimed %d times without a commit", p.Attempts),
		Error: &state.Error{Code: string(state.EndPoisoned), Message: fmt.Sprintf("the workers that executed this turn crashed or stalled %d times, the maximum, so it was stopped: find the cause in their logs, then replay it with turnpike dead replay", p.Attempts)},
	})
}

// stopHookFailed ends a run whose answer a required stop hook could not judge. The answer stays in the history
// and is not the output. A replay calls the hooks about it again, without another model call.
func (t *Turn) stopHookFailed(message string) Decision {
	t.s.ResponsePending = true
	return t.hookFailed(state.EndStopHookFailed, message)
}

// hookFailed ends a run whose hook failed to make a required decision. A replay calls the hook again.
func (t *Turn) hookFailed(r state.Reason, message string) Decision {
	t.s.Poison, t.s.DeadLettered = &state.Poison{}, true
	return t.move(r, state.Entry{Detail: message, Error: &state.Error{Code: string(r), Message: message}})
}

// replays reports whether a signal requests a replay of the run's current end.
func (t *Turn) replays(signals []state.Signal) bool {
	return t.s.Poison != nil && slices.ContainsFunc(signals, func(s state.Signal) bool { return s.Replay == t.s.Version })
}

// replay continues from the failed turn. It withdraws the results that a poisoned end gave to the calls in
// Poison.Calls, and opens these calls again. Others keep their results: calls for which a child run was started, and
// calls of unknown outcome, which must not be repeated (I4).
func (t *Turn) replay(signals []state.Signal) Decision {
	p := t.s.Poison
	from := fmt.Sprintf("%s at version %d", t.s.Transition.Reason, t.s.Version)
	if ids := madeUp(t.s.Log, p.Calls); len(ids) > 0 {
		t.append(&state.Entry{Type: state.EntryTombstoned, MessageIDs: ids})
	}
	t.s.Open, t.s.Poison = p.Calls, nil
	return t.move(state.Replayed, state.Entry{Messages: said(signals), Detail: from})
}

// madeUp returns the ids of the synthetic results that the end of the run gave to calls.
func madeUp(log []state.Entry, calls []state.OpenCall) []string {
	var ids []string
	ended := false
	for _, e := range slices.Backward(log) {
		switch {
		case e.Type == state.EntryFinished && !ended:
			ended = true
		case !ended:
		case e.Type != state.EntryTool:
			return ids
		case e.Message.Synthetic && slices.ContainsFunc(calls, func(o state.OpenCall) bool { return o.ID == e.CallID }):
			ids = append([]string{e.Message.ID}, ids...)
		}
	}
	return ids
}
