package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// begin applies what has arrived since the last turn, before anything else. It reports whether that decided the
// turn.
func (t *Turn) begin(ev TurnBegan) (Decision, bool) {
	if ev.Attempt > 1 {
		t.recovered(&ev)
	}
	t.results(ev.Results)
	t.pickUp(ev.Started)
	if t.replays(ev.Signals) {
		return t.replay(ev.Signals), true
	}
	// Drop replays that arrived after the run had continued for another reason.
	ev.Signals = slices.DeleteFunc(slices.Clone(ev.Signals), func(s state.Signal) bool { return s.Replay != 0 })
	switch {
	case t.s.Status.Terminal():
		return t.resume(ev.Signals), true
	case ev.Poisoned:
		return t.poisoned(ev), true
	case ev.Abort != nil:
		return t.aborted(*ev.Abort, ev.Signals), true
	case t.past(t.s.Limits.DeadlineAt):
		return t.missed(ev.Signals), true
	case t.s.PendingInBatch():
		return t.pendingInBatch(ev.Signals)
	case t.unborn():
		return t.later(ev.Signals), true
	case len(ev.Signals) > 0:
		return t.receive(ev.Signals), true
	case t.s.Status == state.Waiting:
		return t.woken()
	default:
		return Decision{}, false
	}
}

// recovered records that the turn begins again after an attempt that did not commit.
func (t *Turn) recovered(ev *TurnBegan) {
	e := state.Entry{
		Type: state.EntryTransition, Reason: state.Recovered, Attempt: ev.Attempt, Worker: ev.Worker,
		Version: t.s.Version, Status: state.Queued,
		Detail: fmt.Sprintf("attempt %d at the turn after version %d", ev.Attempt, t.s.Version),
	}
	if ev.Spent != (state.Usage{}) {
		e.Usage = &ev.Spent
	}
	t.append(&e)
}

// missed ends a run whose deadline has passed.
func (t *Turn) missed(signals []state.Signal) Decision {
	t.append(&state.Entry{Type: state.EntryExceeded, Limit: "deadline", UsedFraction: 1})
	return t.finish(state.EndDeadline, interruptedLate, state.Entry{Detail: "limit deadline", Output: t.lastText(), Messages: t.tooLate(signals), Requesters: state.AskersOf(signals)})
}

// pickUp handles calls that an earlier attempt started without recording an outcome. It leaves a call of an idempotent
// tool open, so that the call is made again (I4). For any other tool the result is that the outcome is unknown. An
// asynchronous tool may still answer, so its call gets that result only after the tool's time limit, which begins again
// with this attempt.
func (t *Turn) pickUp(started []string) {
	for _, o := range t.s.Open {
		if !slices.Contains(started, o.ID) {
			continue
		}
		switch spec := t.tool(o.Name); {
		case spec == nil || spec.Idempotent:
		case spec.Async:
			t.change(o.ID, func(o *state.OpenCall) {
				o.Needs, o.Until = state.NeedAsync, state.At(t.at.Add(spec.TimeLimit()))
			})
		default:
			t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: unknownOutcome, IsError: true}, true)
		}
	}
}

func (t *Turn) past(at state.Time) bool { return !at.IsZero() && !t.at.Before(at.Time) }

// said returns the user messages among signals.
func said(signals []state.Signal) []state.Message {
	var out []state.Message
	for _, sig := range signals {
		if sig.Message != nil {
			out = append(out, *sig.Message)
		}
	}
	return out
}

// causedBy returns e with the principals behind signals: By is the first known sender, and
// Requesters are all who requested something.
func causedBy(signals []state.Signal, e state.Entry) state.Entry {
	i := slices.IndexFunc(signals, func(s state.Signal) bool { return s.By != nil })
	if i >= 0 {
		e.By = signals[i].By
	}
	e.Requesters = state.AskersOf(signals)
	if len(e.Requesters) == 1 && i >= 0 && e.By.Principal == e.Requesters[0] && len(signals[i].Approvals) == 0 {
		e.Requesters = nil // By already names the only requester
	}
	return e
}

// tooLate handles signals to a run that ends instead of continuing. It applies the results of
// calls, and returns the user messages, marked as undelivered.
func (t *Turn) tooLate(signals []state.Signal) []state.Message {
	return undelivered(t.receiveAll(signals, func(state.Reason, string) {}))
}

// undelivered marks user messages to a run that ended without receiving them.
func undelivered(said []state.Message) []state.Message {
	for i := range said {
		said[i].Undelivered = true
	}
	return said
}

// ApplyLateSignals returns s, a state in which its turn ends the run, after the signals that arrived before that
// end was committed. Without a user message among them it returns s unchanged. A user message continues the run
// instead of ending it; if a signal has the mode Rollback, it also withdraws the last response, unless that
// response's calls have had effects. A run that was aborted or poisoned, or whose deadline has passed, still ends:
// its last entry then keeps the user messages as undelivered. aborted reports that the run has a pending abort.
func ApplyLateSignals(s state.State, at state.Time, late []state.Signal, aborted bool) state.State {
	said := said(late)
	if len(said) == 0 {
		return s
	}
	n := len(s.Log) - 1
	switch r := s.Transition.Reason; {
	case aborted || s.Status == state.Cancelled || r == state.EndDeadline || r == state.EndPoisoned:
		s.Log = slices.Clone(s.Log)
		end := &s.Log[n]
		end.Messages = slices.Clone(end.Messages)
		for _, m := range undelivered(said) {
			m.ID, m.Turn, m.At = fmt.Sprintf("msg_%d_%d", end.Seq, len(end.Messages)), end.Turn, end.At
			end.Messages = append(end.Messages, m)
		}
		return s
	default:
		s.Log = s.Log[:n:n]
		s.Status = state.Queued
		s.Version--
		t := &Turn{s: s, at: at}
		if slices.ContainsFunc(late, func(s state.Signal) bool { return s.Mode == state.Rollback }) && !effects(nil, s.Log) {
			t.s.ResponsePending = true // the end was the decision about the response
			t.rollBack()
		}
		return *t.resume(late).Next
	}
}

// unborn reports whether the start time of the run is still ahead.
func (t *Turn) unborn() bool {
	w := t.s.Waiting
	return w != nil && w.Reason == state.WaitingSchedule && t.s.Reservation == nil && t.s.Turn == 0 && t.s.Failures == 0 && !t.s.ResumeAt.IsZero() && !t.past(t.s.ResumeAt)
}

// later waits for the run's start time. It keeps the user messages that arrive until then.
func (t *Turn) later(signals []state.Signal) Decision {
	return t.move(state.WaitingSchedule, causedBy(signals, state.Entry{
		Detail: "start_at", Messages: said(signals),
		Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: t.at, ExpiresAt: t.s.ResumeAt, Calls: []state.WaitCall{}},
	}))
}

// woken decides for a waiting run that time has woken, without a signal. It reports whether it made the
// decision.
func (t *Turn) woken() (Decision, bool) {
	w := t.s.Waiting
	switch {
	case w == nil:
		return Decision{}, false
	case w.Reason == state.WaitingSchedule && t.past(t.s.ResumeAt):
		t.s.ResumeAt = state.Time{}
		if t.s.Failures > 0 {
			return t.move(state.ModelRetry, state.Entry{Detail: fmt.Sprintf("try %d", t.s.Failures+1)}), true
		}
		return Decision{}, false
	case t.giveUp():
		return t.move(state.ToolResults, state.Entry{Detail: "no result came for a call that may never have arrived"}), true
	case w.Reason != state.WaitingSchedule && t.waitedLongEnough():
		return t.finish(state.EndExpired, waitExpired, state.Entry{
			Detail: string(w.Reason),
			Error:  &state.Error{Code: string(state.EndExpired), Message: fmt.Sprintf("%s: no answer arrived before the wait expired: start a new run, with a longer limits.wait if answers take longer", w.Reason)},
		}), true
	default:
		again := *w
		return t.move(w.Reason, state.Entry{Detail: "still", Waiting: &again}), true
	}
}

// giveUp answers the asynchronous calls that are not waited for any longer, and
// reports whether there are any.
func (t *Turn) giveUp() bool {
	found := false
	for _, o := range t.s.Open {
		if o.Needs == state.NeedAsync && t.past(o.Until) {
			t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: unknownOutcome, IsError: true}, true)
			found = true
		}
	}
	return found
}

// waitedLongEnough reports whether the limit for waits has passed. It ignores children, which
// have limits of their own.
func (t *Turn) waitedLongEnough() bool {
	w := t.s.Waiting
	end := waitEnd(t.s.Limits, w.Since)
	return w.Reason != state.WaitingChild && t.past(end)
}

func waitEnd(l state.Limits, since state.Time) state.Time {
	if l.WaitMS == 0 {
		return state.Time{}
	}
	return state.At(since.Add(time.Duration(l.WaitMS) * time.Millisecond))
}

// resume continues an ended run with user messages.
func (t *Turn) resume(signals []state.Signal) Decision {
	t.s.TurnBase = t.s.Turn
	t.s.Recoveries, t.s.Failures, t.s.StopBlocks = 0, 0, 0
	t.s.ContinueTurn, t.s.ResponsePending, t.s.Reservation = false, false, nil
	t.s.Nudges = state.Nudges{LastTotal: t.s.Usage.OutputTokens}
	t.s.LoopState, t.s.Poison, t.s.Compacted = state.LoopState{}, nil, false
	return t.move(state.UserMessage, causedBy(signals, state.Entry{Messages: said(signals)}))
}

// receive applies signals and continues the run for the reason of the first that applies, or because a message
// interrupted it.
func (t *Turn) receive(signals []state.Signal) Decision {
	var reason state.Reason
	var details []string
	said := t.receiveAll(signals, func(r state.Reason, detail string) {
		if reason == "" {
			reason = r
		}
		details = append(details, detail)
	})
	if t.interrupted {
		reason, t.s.ResponsePending, t.s.LoopState = state.Interrupted, false, state.LoopState{}
	}
	if t.rolledBack {
		details = append(details, rolledBack)
	}
	if last := lastResponse(t.s.Log); len(said) > 0 && last != nil && len(last.Message.Calls()) == 0 {
		t.s.ResponsePending = false // an answer that a message follows does not end the run
	}
	t.s.Recoveries, t.s.ContinueTurn, t.s.ResumeAt = 0, false, state.Time{}
	t.s.Compacted = t.s.Compacted && len(said) == 0
	return t.move(reason, causedBy(signals, state.Entry{Messages: said, Detail: strings.Join(slices.DeleteFunc(details, func(d string) bool { return d == "" }), ", ")}))
}

// receiveAll applies signals, calls because with the reason and detail of each, and returns the
// user messages.
func (t *Turn) receiveAll(signals []state.Signal, because func(state.Reason, string)) (said []state.Message) {
	for _, sig := range signals {
		for _, a := range sig.Approvals {
			t.decide(a, sig, because)
		}
		for _, r := range sig.ToolResults {
			t.result(ToolResult{CallID: r.CallID, Name: t.nameOf(r.CallID), Content: r.Content, Images: r.Images, Files: r.Files, IsError: r.IsError, At: sig.At}, false)
			because(state.ToolResults, r.CallID)
		}
		if c := sig.Child; c != nil {
			t.result(ToolResult{CallID: c.CallID, Name: t.nameOf(c.CallID), Content: c.Content, IsError: c.IsError, At: sig.At}, false)
			t.s.Usage = t.s.Usage.Add(c.Usage)
			because(state.ChildFinished, string(c.RunID))
		}
		for _, c := range sig.Refused {
			t.result(ToolResult{CallID: c.CallID, Name: t.nameOf(c.CallID), Content: c.Content, IsError: true, At: sig.At}, false)
			because(state.ChildFinished, string(c.RunID))
		}
		if sig.Answer != nil {
			if i := slices.IndexFunc(t.s.Open, func(o state.OpenCall) bool { return o.Needs == state.NeedAnswer }); i >= 0 {
				o := t.s.Open[i]
				if o.AskState != nil {
					t.change(o.ID, func(o *state.OpenCall) { o.Needs, o.Question, o.Answer = "", "", sig.Answer })
				} else {
					t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: *sig.Answer, At: sig.At}, false)
				}
				because(state.Answered, o.ID)
			} else {
				said = append(said, state.UserText(*sig.Answer))
				because(state.Answered, "")
			}
		}
		if sig.Message != nil {
			if sig.Mode.Interrupts() {
				t.interrupt(sig)
			}
			said = append(said, *sig.Message)
			because(state.UserMessage, "")
		}
	}
	return said
}

// interrupt answers the open calls for a message that interrupts the run. It denies those that wait
// for approval.
func (t *Turn) interrupt(sig state.Signal) {
	t.interrupted = t.interrupted || len(t.s.Open) > 0
	// A turn that had committed when the message arrived may have calls that others make: it is interrupted.
	back := sig.Mode == state.Rollback && !t.toolsCut && !effects(t.s.Open, t.s.Log)
	for _, o := range t.s.Open {
		text := interruptedByUser
		switch {
		case o.Needs == state.NeedApproval:
			no := state.Approval{CallID: o.ID, Decision: state.Deny, Reason: string(state.Interrupted)}
			t.decide(no, sig, func(state.Reason, string) {})
			continue
		case o.Needs == "" && t.toolsCut:
			text = interruptedMid
		}
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
	}
	if back && t.rollBack() {
		t.interrupted, t.rolledBack = true, true
	}
}

// decide applies one approval or denial. It ignores one whose call is not open.
func (t *Turn) decide(a state.Approval, sig state.Signal, because func(state.Reason, string)) {
	i := slices.IndexFunc(t.s.Open, func(o state.OpenCall) bool { return o.ID == a.CallID })
	if i < 0 {
		return
	}
	o := t.s.Open[i]
	// An approval with other arguments replaces the call's. If they equal the call's own, they
	// only identify the call that the approver saw.
	edited := a.Decision == state.Approve && a.Arguments != "" && sign(o.Name, a.Arguments) != sign(o.Name, o.Arguments)
	said := state.Decided{Decision: a.Decision, Reason: a.Reason}
	if edited {
		said.Arguments = json.RawMessage(a.Arguments)
	}
	t.decided(o, said, sig.By, sig.At)
	if a.Decision == state.Deny {
		text := "Denied"
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
		because(state.Denied, o.ID)
		return
	}
	detail := o.ID
	if edited {
		detail += " with edited arguments"
	}
	t.change(o.ID, func(o *state.OpenCall) {
		o.Needs, o.Again, o.SecondApprover = "", "", false
		if edited {
			o.Arguments, o.Edited, o.Recheck = a.Arguments, true, true
			o.SecondApprover = sig.FourEyes
		}
	})
	because(state.Approved, detail)
}

// decided records a decision about a call that waits for approval, with the arguments that the approver could
// see.
func (t *Turn) decided(o state.OpenCall, said state.Decided, by *state.By, at state.Time) {
	said.Shown = o.RawArguments()
	said.Hash = t.s.ApprovalHash(o.ID, o.Name, said.Shown)
	t.append(&state.Entry{Type: state.EntryDecided, At: at, By: by, CallID: o.ID, Name: o.Name, Approval: &said})
}

// undecided records a denial of each call that still waits for approval at the end of the run, with the reason of that
// end, or as expired. It gives no results. Readers of events then have no open approval, and an approval without a hash
// cannot apply to a later call with the same id.
func (t *Turn) undecided(end state.Reason, by *state.By) {
	said := state.Decided{Decision: state.Deny, Reason: string(end)}
	if end == state.EndExpired {
		said.Reason, said.Expired = "", true
	}
	for _, o := range t.s.Open {
		if o.Needs == state.NeedApproval {
			t.decided(o, said, by, t.at)
		}
	}
}

func (t *Turn) nameOf(callID string) string {
	for _, o := range t.s.Open {
		if o.ID == callID {
			return o.Name
		}
	}
	return ""
}
