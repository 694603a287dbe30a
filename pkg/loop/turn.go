package loop

import (
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// What a synthetic result says of a call that did not finish (A4).
const (
	interruptedByUser = "Interrupted by user"
	interruptedMid    = "Interrupted mid-execution"
	interruptedLate   = "Interrupted: the run's deadline has passed"
	waitExpired       = "No answer: the wait for it has expired"
	poisonedText      = "Interrupted: the turn failed its workers too often"
)

// Retries of a model call that failed for a passing reason, over turns.
const (
	maxFailures   = 5
	firstBackoff  = time.Second
	longestBackof = 30 * time.Second
)

// turn is a State on its way through one decision. A move that the machine does
// not have is a bug in a loop, so it panics; the worker recovers and the turn
// ends poisoned rather than wrong.
type turn struct {
	s  state.State
	at state.Time
}

func (t *turn) append(e state.Entry) {
	if e.At.IsZero() {
		e.At = t.at
	}
	if e.Type != state.EntryModel {
		e.Turn = t.s.Turn
	}
	t.s = t.s.Append(e)
}

func (t *turn) move(r state.Reason, e state.Entry) Decision {
	e.At = t.at
	for i := range e.Messages {
		t.stamp(&e.Messages[i], i)
	}
	next, err := t.s.Move(r, e)
	if err != nil {
		panic("loop: " + err.Error())
	}
	t.s = next
	return Decision{Next: next}
}

// stamp completes the i-th message of the entry that is appended next. Ids follow
// from the place in the log, so a replay gives the same ones.
func (t *turn) stamp(m *state.Message, i int) {
	m.ID = fmt.Sprintf("msg_%d_%d", t.s.LogLen()+1, i)
	m.Turn = t.s.Turn
	m.At = t.at
}

// finish ends the run. Every call that has no result yet gets one that says why
// (I5).
func (t *turn) finish(r state.Reason, unanswered string, e state.Entry) Decision {
	t.answerAll(unanswered)
	return t.move(r, e)
}

// answerAll gives every open call a synthetic error result.
func (t *turn) answerAll(text string) {
	for _, o := range t.s.Open {
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
	}
}

// result appends the result of a call. A call that is not open has its result
// already, so a second one changes nothing.
func (t *turn) result(r ToolResult, synthetic bool) {
	if !slices.ContainsFunc(t.s.Open, func(o state.OpenCall) bool { return o.ID == r.CallID }) {
		return
	}
	m := state.ToolResult(r.CallID, r.Content, r.IsError)
	m.Synthetic = synthetic
	t.stamp(&m, 0)
	if !r.At.IsZero() {
		m.At = r.At
	}
	e := state.Entry{
		Type: state.EntryTool, At: r.At, Message: &m, CallID: r.CallID, Name: r.Name, IsError: r.IsError,
		DurationMS: r.Duration.Milliseconds(),
	}
	if r.Reused {
		e.Type = state.EntryReused
	}
	t.append(e)
}

// results appends what tools returned, in the order of the calls (A14).
func (t *turn) results(rs []ToolResult) {
	for _, o := range slices.Clone(t.s.Open) {
		for _, r := range rs {
			if r.CallID == o.ID {
				t.result(r, false)
				break
			}
		}
	}
}

// respond appends a model response and returns its message.
func (t *turn) respond(r model.Response, attempt, failed int) state.Message {
	m := state.Message{Role: state.RoleAssistant, Model: r.Model, Parts: t.normalise(r.Parts)}
	t.stamp(&m, 0)
	turnNo := t.s.Turn
	if !t.s.Reenter {
		turnNo++
	}
	m.Turn = turnNo
	u := r.Usage
	u.ModelCalls = 1
	t.append(state.Entry{
		Type: state.EntryModel, Turn: turnNo, Attempt: attempt, Message: &m, StopReason: string(r.Stop), Usage: &u, FailedCalls: failed,
	})
	for _, w := range budget.Warnings(t.s.Limits, t.s.Usage, t.turns(), t.at.Time, t.s.Warned) {
		t.append(state.Entry{Type: state.EntryWarning, Limit: w.Limit, UsedFraction: w.Fraction})
	}
	return m
}

// normalise gives every call an id that no other call of the response has, and
// arguments in compact form. Ids that come back in a later turn stay as the
// provider gave them: a result belongs to the response before it.
func (t *turn) normalise(parts []state.Part) []state.Part {
	used := map[string]bool{}
	out := slices.Clone(parts)
	for i := range out {
		p := &out[i]
		if p.Type != state.PartToolCall {
			continue
		}
		for n := 0; p.ID == "" || used[p.ID]; n++ {
			p.ID = fmt.Sprintf("call_%d_%d", t.s.LogLen()+1, i+n*len(out))
		}
		used[p.ID] = true
		if p.Arguments == "" {
			p.Arguments = "{}"
		}
		if c, ok := state.CompactObject(p.Arguments); ok {
			p.Arguments = c
		}
	}
	return out
}

// turns is how many turns count against max_turns.
func (t *turn) turns() int { return t.s.Turn - t.s.TurnBase }

// exhausted ends the run if a limit leaves no room for another model call.
func (t *turn) exhausted() (Decision, bool) {
	turns := t.turns()
	if t.s.Reenter {
		turns--
	}
	r, limit, over := budget.Exhausted(t.s.Limits, t.s.Usage, turns, t.at.Time)
	if !over {
		return Decision{}, false
	}
	if r != state.EndMaxTurns {
		t.append(state.Entry{Type: state.EntryExceeded, Limit: limit, UsedFraction: 1})
	}
	return t.finish(r, interruptedLate, state.Entry{Detail: "limit " + limit, Output: t.lastText()}), true
}

// lastText is what the model said last, for runs that end without an answer.
func (t *turn) lastText() *string {
	for _, e := range slices.Backward(t.s.Log) {
		if e.Type == state.EntryModel {
			if text := e.Message.Text(); text != "" {
				return &text
			}
			return nil
		}
	}
	return nil
}

// aborted ends a run that somebody aborted between two effects.
func (t *turn) aborted(reason string) Decision {
	end := state.EndAbortedStreaming
	switch {
	case t.s.Status == state.Waiting:
		end = state.EndAbortedWaiting
	case t.s.Turn == 0:
		end = state.EndAbortedQueued
	case len(t.s.Open) > 0 || t.lastIsTool():
		end = state.EndAbortedTools
	}
	return t.finish(end, interruptedByUser, state.Entry{Detail: reason})
}

func (t *turn) lastIsTool() bool {
	for _, e := range slices.Backward(t.s.Log) {
		switch e.Type {
		case state.EntryTool, state.EntryReused:
			return true
		case state.EntryModel, state.EntrySubmitted:
			return false
		default:
			if len(e.Messages) > 0 {
				return false
			}
		}
	}
	return false
}

// cutShort ends a run that was aborted, or that met its deadline, during an
// effect (A4): before any call was seen, with calls seen but not started, or with
// tools under way.
func (t *turn) cutShort(ev Aborted) Decision {
	unfinished, untouched := interruptedMid, interruptedByUser
	end := state.EndAbortedStreaming
	if ev.Started {
		end = state.EndAbortedTools
	} else {
		unfinished = untouched
	}
	if ev.Cause == ByDeadline {
		unfinished, untouched, end = interruptedLate, interruptedLate, state.EndDeadline
	}
	if len(t.s.Open) == 0 && ev.Response != nil && len((state.Message{Parts: ev.Response.Parts}).Calls()) > 0 {
		t.respond(*ev.Response, 0, max(0, ev.Failed-1))
	} else {
		t.s.FailedCalls += ev.Failed
	}
	t.results(ev.Results)
	for _, o := range t.s.Open {
		text := unfinished
		if o.Needs != "" {
			text = untouched
		}
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
	}
	return t.move(end, state.Entry{Detail: ev.Reason})
}

// Fail ends a run for a reason that no loop can see: its definition does not
// load, or its loop is unknown to this worker.
func Fail(s state.State, at state.Time, r state.Reason, message string) Decision {
	t := &turn{s, at}
	return t.finish(r, "Interrupted: "+message, state.Entry{Detail: message, Error: &state.Error{Code: string(r), Message: message}})
}

// failed decides what follows a model call that failed: a later try, or the end.
func (t *turn) failed(ev ModelFailed) Decision {
	t.s.FailedCalls += ev.Failed
	e := ev.Err
	switch {
	case e.Class == model.PromptTooLong:
		return t.finish(state.EndPromptTooLong, "", state.Entry{Detail: e.Message, Error: &state.Error{Code: string(e.Class), Message: e.Message}})
	case e.Class == model.ContentFilter:
		return t.finish(state.EndRefused, "", state.Entry{Detail: e.Message})
	case e.Class.Retryable() && t.s.Failures < maxFailures:
		t.s.Failures++
		delay := e.RetryAfter
		if delay <= 0 {
			delay = min(firstBackoff<<(t.s.Failures-1), longestBackof)
		}
		t.s.ResumeAt = state.At(t.at.Add(delay))
		return t.move(state.WaitingSchedule, state.Entry{
			Detail:  fmt.Sprintf("model call failed (%s), again in %s", e.Class, delay),
			Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: t.at, ExpiresAt: t.s.ResumeAt, Calls: []state.WaitCall{}},
		})
	default:
		return t.finish(state.EndModelError, "", state.Entry{
			Detail: string(e.Class), Error: &state.Error{Code: string(e.Class), Message: e.Message},
		})
	}
}
