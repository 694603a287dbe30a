package loop

import (
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// pendingInBatch decides for a run that is pending in its batch. After the start signal the run continues in this very
// turn; if user messages came with the signal, it continues in the next turn, and if it has a later start_at of its
// own, it waits for that. User messages that arrive earlier stay in the history for when the run starts. It reports
// whether it made the decision of this turn.
func (t *Turn) pendingInBatch(signals []state.Signal) (Decision, bool) {
	said := said(signals)
	if !slices.ContainsFunc(signals, func(s state.Signal) bool { return s.Start }) {
		still := *t.s.Waiting
		return t.move(state.WaitingSchedule, causedBy(signals, state.Entry{Detail: state.BatchDetail, Messages: said, Waiting: &still})), true
	}
	t.s = t.s.Started()
	if at := t.s.ResumeAt; !at.IsZero() && !t.past(at) {
		return t.later(signals), true
	}
	t.s.ResumeAt = state.Time{}
	if len(said) > 0 {
		return t.move(state.UserMessage, causedBy(signals, state.Entry{Messages: said})), true
	}
	return Decision{}, false
}
