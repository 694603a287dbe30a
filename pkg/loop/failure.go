package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Retries of a model call that failed for a temporary reason, each in a new turn.
const (
	maxFailures    = 5
	firstBackoff   = time.Second
	longestBackoff = 30 * time.Second
)

// failed decides what follows a model call that failed: a shorter prompt, another model, a later
// try, or the end. It withdraws the part of the response that had arrived (A12).
func (t *Turn) failed(ev ModelFailed) Decision {
	t.s.ModelRequests += ev.Failed
	t.s.Reservation = nil
	t.lose(ev.Lost)
	t.withdraw(ev.Err.Partial, ev.Spent)
	e := ev.Err
	why := &state.Error{Code: string(e.Class), Message: e.Message}
	switch {
	case e.Class == model.PromptTooLong && t.compactable() && !t.s.Compacted:
		t.s.Compacted = true
		return t.compactOr(func(t *Turn) Decision {
			return t.move(state.ReactiveCompactRetry, state.Entry{Detail: e.Message})
		})
	case e.Class == model.PromptTooLong:
		return t.finish(state.EndPromptTooLong, "", state.Entry{Detail: e.Message, Error: why})
	case e.Class == model.ContentFilter:
		return t.finish(state.EndRefused, "", state.Entry{Detail: e.Message})
	case t.fallsBack(e.Class):
		t.s.Fallback++
		t.s.FallbackBase = t.s.ModelRequests
		next := t.agent.ModelAt(t.s.Fallback)
		return t.move(state.ModelFallback, state.Entry{Detail: strings.TrimSpace(fmt.Sprintf("%s: continue with %s %s", e.Class, next.Provider, next.Name))})
	case e.Class.Retryable() && t.s.Failures < maxFailures:
		t.s.Failures++
		delay := e.RetryAfter
		if delay <= 0 {
			delay = min(firstBackoff<<(t.s.Failures-1), longestBackoff)
		}
		t.s.ResumeAt = state.At(t.at.Add(delay))
		return t.move(state.WaitingSchedule, state.Entry{
			Detail:  fmt.Sprintf("model call failed (%s), retry in %s: %s", e.Class, delay.Round(time.Millisecond), e.Message),
			Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: t.at, ExpiresAt: t.s.ResumeAt, Calls: []state.WaitCall{}},
		})
	default:
		return t.finish(state.EndModelError, "", state.Entry{Detail: string(e.Class), Error: why})
	}
}

// delayed waits until the call may be tried (ModelDelayed.Wait). This does not count as a failed
// try, does not switch to a fallback model and never ends the run, however often it happens.
func (t *Turn) delayed(ev ModelDelayed) Decision {
	t.s.Reservation = ev.Reservation
	t.s.ResumeAt = state.At(t.at.Add(ev.Wait))
	return t.move(state.WaitingSchedule, state.Entry{
		Detail:  fmt.Sprintf("%s, retry in %s", ev.Detail, ev.Wait.Round(time.Millisecond)),
		Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: t.at, ExpiresAt: t.s.ResumeAt, Calls: []state.WaitCall{}},
	})
}

// withdraw keeps the text of a response that broke off, for readers only (A12), and counts its
// cost.
func (t *Turn) withdraw(text string, spent state.Usage) {
	e := state.Entry{Type: state.EntryTombstoned}
	if text != "" {
		m := state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: text}}}
		t.stamp(&m, 0)
		e.Message, e.MessageIDs = &m, []string{m.ID}
	}
	if spent != (state.Usage{}) {
		e.Usage = &spent
	}
	if e.Message != nil || e.Usage != nil {
		t.append(&e)
	}
}

// lose withdraws several failed calls.
func (t *Turn) lose(calls []Lost) {
	for _, c := range calls {
		t.withdraw(c.Text, c.Spent)
	}
}

// RecordFailedCalls returns s with failed model calls appended to its log. A worker calls it before it releases
// a turn.
func RecordFailedCalls(s state.State, at state.Time, calls []Lost) state.State {
	t := &Turn{s: s, at: at}
	t.lose(calls)
	return t.s
}

// fallsBack reports whether the agent has another model that may succeed: none does if the request itself is at
// fault.
func (t *Turn) fallsBack(c model.Class) bool {
	switch c {
	case model.InvalidRequest, model.Cancelled:
		return false
	default:
		return t.agent != nil && t.agent.ModelAt(t.s.Fallback+1) != nil
	}
}

// aborted ends a run whose abort arrived between two effects.
func (t *Turn) aborted(abort state.Abort, signals []state.Signal) Decision {
	end := state.EndAbortedStreaming
	switch {
	case t.s.Status == state.Waiting:
		end = state.EndAbortedWaiting
	case t.s.Turn == 0:
		end = state.EndAbortedQueued
	case len(t.s.Open) > 0 || t.lastIsTool():
		end = state.EndAbortedTools
	}
	late := t.tooLate(signals)
	return t.finish(end, interruptedByUser, state.Entry{Detail: abort.Reason, By: abort.By, Messages: late, Requesters: state.AskersOf(signals)})
}

func (t *Turn) lastIsTool() bool { return lastIsTool(t.s.Log) }

func lastIsTool(log []state.Entry) bool {
	for i := range slices.Backward(log) {
		e := &log[i]
		if i == 0 && e.Checkpoint != nil {
			return e.Checkpoint.ToolLast
		}
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

// cutShort ends a run that was aborted, or whose deadline passed, during an effect (A4): before any call
// arrived, with calls that have not started, or with tools in flight. If a message has interrupted the effect,
// the run continues with it.
func (t *Turn) cutShort(ev Aborted) Decision {
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
	t.lose(ev.Lost)
	if len(t.s.Open) == 0 && ev.Response != nil && len((state.Message{Parts: ev.Response.Parts}).Calls()) > 0 {
		t.withdraw(ev.Partial, state.Usage{})
		r := *ev.Response
		if ev.Spent != (state.Usage{}) {
			r.Usage = ev.Spent
		}
		t.respond(&r, 0, max(0, ev.Failed-1), 0)
	} else {
		t.withdraw(ev.Partial, ev.Spent)
		t.s.ModelRequests += ev.Failed
	}
	t.results(ev.Results)
	if ev.Cause == ByMessage {
		t.toolsCut, t.interrupted = ev.Started, true
		return t.receive(ev.Signals)
	}
	late := t.tooLate(ev.Signals)
	t.undecided(end, ev.By)
	for _, o := range t.s.Open {
		text := unfinished
		if o.Needs != "" {
			text = untouched
		}
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
	}
	return t.move(end, state.Entry{Detail: ev.Reason, By: ev.By, Messages: late, Requesters: state.AskersOf(ev.Signals)})
}

// Fail ends a run for a reason outside its loop: its definition does not load, or this worker does not know its
// loop. r must be a reason why a run ends.
func Fail(s state.State, at state.Time, r state.Reason, message string) Decision {
	t := &Turn{s: s, at: at}
	return t.finish(r, "Interrupted: "+message, state.Entry{Detail: message, Error: &state.Error{Code: string(r), Message: message}})
}
