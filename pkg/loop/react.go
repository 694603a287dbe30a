package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxRecoveries is how often in a row a response that the output limit cut off
// is continued (A6).
const maxRecoveries = 3

// continuation is what the model is told after the output limit cut it off.
const continuation = "You were cut off. Please continue from where you stopped."

type react struct{ agent *agent.Agent }

// React is the loop of native tool calls: ask the model, run the tools that it
// asks for, and go around until it asks for none (D2).
func React(a *agent.Agent) Loop { return react{a} }

// Step implements Loop.
func (l react) Step(s state.State, ev Event) Decision {
	switch ev := ev.(type) {
	case TurnBegan:
		t := &turn{s, ev.At}
		if d, over := t.begin(ev); over {
			return d
		}
		return l.proceed(t)
	case ModelResponded:
		return l.responded(&turn{s, ev.At}, ev)
	case ModelFailed:
		return (&turn{s, ev.At}).failed(ev)
	case ToolsFinished:
		t := &turn{s, ev.At}
		t.results(ev.Results)
		return l.afterTools(t)
	case Aborted:
		return (&turn{s, ev.At}).cutShort(ev)
	default:
		panic(fmt.Sprintf("loop: unknown event %T", ev))
	}
}

// begin settles what came in since the last turn, before anything else is done.
// It reports whether that was the turn.
func (t *turn) begin(ev TurnBegan) (Decision, bool) {
	if ev.Attempt > 1 {
		t.append(state.Entry{
			Type: state.EntryTransition, Reason: state.Recovered, Attempt: ev.Attempt, Worker: ev.Worker,
			Version: t.s.Version, Status: state.Queued,
			Detail: fmt.Sprintf("attempt %d at the turn after version %d", ev.Attempt, t.s.Version),
		})
	}
	t.results(ev.Results)
	switch {
	case t.s.Status.Terminal():
		return t.resume(ev.Signals), true
	case ev.Poisoned:
		return t.finish(state.EndPoisoned, poisonedText, state.Entry{
			Detail: fmt.Sprintf("claimed %d times without a commit", ev.Attempt-1),
			Error:  &state.Error{Code: string(state.EndPoisoned), Message: "the turn was claimed too often without a commit: it kills or stalls its workers"},
		}), true
	case ev.Abort != nil:
		return t.aborted(ev.Abort.Reason), true
	case t.past(t.s.Limits.DeadlineAt):
		t.append(state.Entry{Type: state.EntryExceeded, Limit: "deadline", UsedFraction: 1})
		return t.finish(state.EndDeadline, interruptedLate, state.Entry{Detail: "limit deadline", Output: t.lastText()}), true
	case len(ev.Signals) > 0:
		return t.receive(ev.Signals), true
	case t.s.Status == state.Waiting:
		return t.woken()
	default:
		return Decision{}, false
	}
}

func (t *turn) past(at state.Time) bool { return !at.IsZero() && !t.at.Before(at.Time) }

// woken decides for a waiting run to which nothing came but time.
func (t *turn) woken() (Decision, bool) {
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
	case w.Reason != state.WaitingSchedule && t.past(w.ExpiresAt):
		return t.finish(state.EndExpired, waitExpired, state.Entry{
			Detail: string(w.Reason),
			Error:  &state.Error{Code: string(state.EndExpired), Message: fmt.Sprintf("nothing came for %s within its limit", w.Reason)},
		}), true
	default:
		again := *w
		return t.move(w.Reason, state.Entry{Detail: "still", Waiting: &again}), true
	}
}

// resume continues a run that had ended with what the user says.
func (t *turn) resume(signals []state.Signal) Decision {
	var said []state.Message
	for _, sig := range signals {
		if sig.Message != nil {
			said = append(said, *sig.Message)
		}
	}
	t.s.TurnBase = t.s.Turn
	t.s.Recoveries, t.s.Failures, t.s.Reenter = 0, 0, false
	return t.move(state.UserMessage, state.Entry{Messages: said})
}

// receive applies signals and moves on for the reason of the first.
func (t *turn) receive(signals []state.Signal) Decision {
	var said []state.Message
	var reason state.Reason
	var details []string
	because := func(r state.Reason, detail string) {
		if reason == "" {
			reason = r
		}
		details = append(details, detail)
	}
	for _, sig := range signals {
		for _, a := range sig.Approvals {
			t.decide(a, because)
		}
		for _, r := range sig.ToolResults {
			t.result(ToolResult{CallID: r.CallID, Name: t.nameOf(r.CallID), Content: r.Content, IsError: r.IsError, At: sig.At}, false)
			because(state.ToolResults, r.CallID)
		}
		if c := sig.Child; c != nil {
			t.result(ToolResult{CallID: c.CallID, Name: t.nameOf(c.CallID), Content: c.Content, IsError: c.IsError, At: sig.At}, false)
			t.s.Usage = t.s.Usage.Add(c.Usage)
			because(state.ChildFinished, string(c.RunID))
		}
		if sig.Answer != nil {
			if i := slices.IndexFunc(t.s.Open, func(o state.OpenCall) bool { return o.Needs == state.NeedAnswer }); i >= 0 {
				o := t.s.Open[i]
				t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: *sig.Answer, At: sig.At}, false)
				because(state.Answered, o.ID)
			} else {
				said = append(said, state.UserText(*sig.Answer))
				because(state.Answered, "")
			}
		}
		if sig.Message != nil {
			said = append(said, *sig.Message)
			because(state.UserMessage, "")
		}
	}
	t.s.Recoveries, t.s.Reenter = 0, false
	return t.move(reason, state.Entry{Messages: said, Detail: strings.Join(slices.DeleteFunc(details, func(d string) bool { return d == "" }), ", ")})
}

// decide applies one approval or denial.
func (t *turn) decide(a state.Approval, because func(state.Reason, string)) {
	i := slices.IndexFunc(t.s.Open, func(o state.OpenCall) bool { return o.ID == a.CallID })
	if i < 0 {
		return
	}
	o := t.s.Open[i]
	if a.Decision == state.Deny {
		text := "Denied"
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
		because(state.Denied, o.ID)
		return
	}
	o.Needs = ""
	detail := o.ID
	if a.Arguments != "" {
		o.Arguments = a.Arguments
		detail += " with edited arguments"
	}
	t.s.Open = slices.Clone(t.s.Open)
	t.s.Open[i] = o
	because(state.Approved, detail)
}

func (t *turn) nameOf(callID string) string {
	for _, o := range t.s.Open {
		if o.ID == callID {
			return o.Name
		}
	}
	return ""
}

// proceed does the next thing of a turn in which nothing came in from outside:
// calls that may run, then calls that must wait, then the model.
func (l react) proceed(t *turn) Decision {
	if len(t.s.Open) > 0 {
		// A journaled response comes back without the needs of its calls.
		l.classify(t)
		return l.dispatch(t)
	}
	if d, over := t.exhausted(); over {
		return d
	}
	return Decision{Next: t.s, Effect: CallModel{Messages: state.View(t.s.Log), Tools: l.agent.ToolSpecs()}}
}

func (l react) responded(t *turn, ev ModelResponded) Decision {
	r := ev.Response
	if r.Stop == model.StopMaxOutputTokens {
		r.Parts = dropCutCall(r.Parts)
	}
	m := t.respond(r, ev.Attempt, ev.Failed)
	if len(t.s.Open) > 0 {
		t.s.Recoveries = 0
		l.classify(t)
		return l.dispatch(t)
	}
	text := m.Text()
	switch r.Stop {
	case model.StopRefusal, model.StopContentFilter:
		return t.move(state.EndRefused, state.Entry{Output: &text, Detail: string(r.Stop)})
	case model.StopMaxOutputTokens:
		return t.recoverOutput(text)
	case model.StopPause:
		return t.move(state.NextTurn, state.Entry{Detail: "the provider paused the response"})
	default:
	}
	if l.agent.Loop.Converse {
		return t.wait(state.WaitingHumanInput, text)
	}
	return t.move(state.EndCompleted, state.Entry{Output: &text})
}

// dropCutCall removes a last tool call whose arguments the output limit cut off:
// it must not run, and without a result it must not stay.
func dropCutCall(parts []state.Part) []state.Part {
	if n := len(parts); n > 0 && parts[n-1].Type == state.PartToolCall {
		if _, whole := state.CompactObject(parts[n-1].Arguments); !whole {
			return parts[:n-1]
		}
	}
	return parts
}

func (t *turn) recoverOutput(text string) Decision {
	if t.s.Recoveries >= maxRecoveries {
		return t.move(state.EndMaxOutputTokens, state.Entry{Output: &text})
	}
	t.s.Recoveries++
	t.s.Reenter = true
	goOn := state.UserText(continuation)
	goOn.Synthetic = true
	return t.move(state.MaxOutputTokensRecovery, state.Entry{
		Messages: []state.Message{goOn}, Detail: fmt.Sprintf("recovery %d of %d", t.s.Recoveries, maxRecoveries),
	})
}

// classify finds out what each open call needs before it can run. Calls that an
// approval has cleared come back from the header and are not asked again: only a
// call that stands as the model made it is looked at.
func (l react) classify(t *turn) {
	if t.s.Cleared {
		return
	}
	open := slices.Clone(t.s.Open)
	for i, o := range open {
		spec := l.agent.Tool(o.Name)
		switch {
		case o.Name == agent.AskUser || spec != nil && spec.Kind == agent.KindHuman:
			open[i].Needs, open[i].Question = state.NeedAnswer, question(o.Arguments)
		case spec == nil || spec.Validate(o.Arguments) != nil:
			// The worker answers it with an error for the model.
		case spec.NeedsApproval(o.Arguments):
			open[i].Needs = state.NeedApproval
		case spec.Kind == agent.KindClient:
			open[i].Needs = state.NeedResult
		}
	}
	t.s.Open, t.s.Cleared = open, true
}

func question(arguments string) string {
	var args struct {
		Question string `json:"question"`
	}
	if json.Unmarshal([]byte(arguments), &args) != nil || args.Question == "" {
		return arguments
	}
	return args.Question
}

// dispatch runs the calls that may run now, or waits for the others.
func (l react) dispatch(t *turn) Decision {
	var run []state.OpenCall
	for _, o := range t.s.Open {
		if o.Needs != "" {
			continue
		}
		if spec := l.agent.Tool(o.Name); spec != nil && spec.Kind == agent.KindClient && spec.Validate(o.Arguments) == nil {
			continue
		}
		run = append(run, o)
	}
	if len(run) > 0 {
		return Decision{Next: t.s, Effect: RunTools{Calls: run}}
	}
	return l.afterTools(t)
}

func (l react) afterTools(t *turn) Decision {
	if len(t.s.Open) == 0 {
		t.s.Recoveries = 0
		if d, over := t.exhausted(); over {
			return d
		}
		return t.move(state.NextTurn, state.Entry{})
	}
	l.handOver(t)
	reason, ask := waitFor(t.s.Open)
	return t.wait(reason, ask)
}

// handOver turns approved client calls into calls that wait for their result.
func (l react) handOver(t *turn) {
	open := slices.Clone(t.s.Open)
	for i, o := range open {
		if o.Needs == "" {
			open[i].Needs = state.NeedResult
		}
	}
	t.s.Open = open
}

// waitFor names the wait of a run with several open calls: the most pressing
// need.
func waitFor(open []state.OpenCall) (state.Reason, string) {
	byNeed := []struct {
		need   state.Need
		reason state.Reason
	}{
		{state.NeedApproval, state.WaitingApproval},
		{state.NeedAnswer, state.WaitingHumanInput},
		{state.NeedResult, state.WaitingClientTool},
		{state.NeedChild, state.WaitingChild},
		{state.NeedAsync, state.WaitingTool},
	}
	for _, b := range byNeed {
		for _, o := range open {
			if o.Needs == b.need {
				return b.reason, o.Question
			}
		}
	}
	panic("loop: waits for nothing")
}

// wait pauses the run until a signal comes, or until its limit for waits.
func (t *turn) wait(r state.Reason, question string) Decision {
	w := &state.Wait{Reason: r, Since: t.at, Calls: []state.WaitCall{}, Question: question}
	if ms := t.s.Limits.WaitMS; ms > 0 {
		w.ExpiresAt = state.At(t.at.Add(time.Duration(ms) * time.Millisecond))
	}
	for _, o := range t.s.Open {
		c := state.WaitCall{ID: o.ID, Tool: o.Name, Arguments: rawArguments(o.Arguments), Message: o.Question}
		if o.Needs == state.NeedApproval {
			c.Message = fmt.Sprintf("%s asks for approval", o.Name)
		}
		w.Calls = append(w.Calls, c)
	}
	return t.move(r, state.Entry{Waiting: w})
}

// rawArguments is what a model gave as arguments, as JSON in any case.
func rawArguments(text string) json.RawMessage {
	if c, ok := state.CompactObject(text); ok {
		return json.RawMessage(c)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage("null")
	}
	return quoted
}
