package loop

import (
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxRecoveries is the maximum number of consecutive continuations of a response that the output
// limit cut off (A6).
const maxRecoveries = 3

// continuation is the message to the model after the output limit cut it off.
const continuation = "You were cut off. Please continue from where you stopped."

// nudge is the message to the model while most of its token budget is unspent.
const nudge = "You have used %d of %d tokens. Keep working: go deeper, verify, and improve on what you have."

// Rules distinguish one loop from another. What they decide may depend only on their arguments: a loop keeps state in a
// run through Typed. A nil field means the behavior of react.
type Rules struct {
	// Prompt returns the next request to the model. Default: the whole view, with the agent's
	// tools.
	Prompt func(t *Turn) CallModel

	// Read returns the response that the history keeps, for loops that find calls in text. Default:
	// the response.
	Read func(t *Turn, r model.Response) model.Response

	// BeforeTools runs when a response requests calls, before the loop looks at any of them. It does not run for the
	// last response that max_turns allows if OnLimit is OnLimitAnswer: the calls of that response are not made.
	BeforeTools func(t *Turn)

	// OnAnswer decides about a response without calls that is complete and no refusal, unless a condition (With) or a
	// limit has decided. The output schema does not matter yet: Complete checks it. Default: Ask with an agent that
	// converses, else Complete.
	OnAnswer func(t *Turn, text string) Decision

	// AfterTools decides when every call of a response has its result, unless a handoff, a limit, a condition (With) or
	// repeated calls have decided. Default: the next turn.
	AfterTools func(t *Turn) Decision

	routes []route

	// breaksLoops reports whether AfterTools handles calls that repeat unchanged.
	breaksLoops bool
}

// Node is a place at which a loop decides where to go (L1).
type Node string

// The nodes. New checks the conditions of With at Think, with a response without calls, and at Execute, with the
// results of all calls. Reflect and Terminate are only destinations.
const (
	Think     Node = "think"
	Execute   Node = "execute"
	Reflect   Node = "reflect"
	Terminate Node = "terminate"
)

type route struct {
	name string
	when func(s state.State, from Node) (Node, bool)
}

// With returns rules that check one more condition at Think and at Execute, before the rules decide there themselves.
// The conditions are checked in the order in which they were added, and the first that returns true wins (L4): Think
// and Execute continue the run, Reflect reflects and continues it, Terminate completes it without stop hooks. If the
// output does not match the output schema, Terminate first asks the model for one that does. Limits still apply. With
// does not change the receiver (L5).
func (r Rules) With(name string, when func(s state.State, from Node) (Node, bool)) Rules {
	r.routes = append(slices.Clip(r.routes), route{name, when})
	return r
}

// ruled is a loop of Rules, bound to an agent.
type ruled struct {
	agent *agent.Agent
	rules Rules
}

// New returns the loop of an agent that follows rules.
func New(a *agent.Agent, r Rules) Loop { return &ruled{a, r} }

// Step implements Loop.
func (l *ruled) Step(s state.State, ev Event) Decision {
	t := &Turn{s: s, agent: l.agent}
	d := l.step(t, ev)
	if t.err != nil {
		before := s // &s would move s to the heap in every step
		return Decision{Next: &before, Effect: GiveUp{t.err}}
	}
	return d
}

func (l *ruled) step(t *Turn, ev Event) Decision {
	switch ev := ev.(type) {
	case TurnBegan:
		t.at = ev.At
		open := len(t.s.Open) > 0
		if d, over := t.begin(ev); over {
			return d
		}
		if open && len(t.s.Open) == 0 {
			// All calls have results from an earlier attempt, or unknown outcomes. The turn commits them before the
			// next model call: a crash in that call is then an attempt at the next turn.
			return l.dispatch(t)
		}
		return l.proceed(t)
	case ModelResponded:
		t.at = ev.At
		if ev.Purpose == ForSummary {
			return t.summarised(ev, l.proceed)
		}
		return l.responded(t, ev)
	case ModelFailed:
		t.at = ev.At
		if ev.Purpose == ForSummary {
			return t.unsummarised(ev, l.proceed)
		}
		return t.failed(ev)
	case ModelDelayed:
		t.at = ev.At
		if ev.Purpose == ForSummary && t.reacting() {
			return t.unsummarised(ModelFailed{Err: &model.Error{Message: ev.Detail}}, l.proceed)
		}
		return t.delayed(ev)
	case HooksAnswered:
		t.at = ev.At
		t.countHookErrors(ev)
		switch ev.Asked.Point {
		case hook.Input:
			if d, over := t.inputChecked(ev); over {
				return d
			}
			return l.proceed(t)
		case hook.Stop:
			return t.stopAnswered(ev)
		default:
			return l.permitted(t, ev)
		}
	case AgentFound:
		t.at = ev.At
		return l.handedOff(t, ev)
	case ToolsFinished:
		t.at = ev.At
		return l.worked(t, ev.Results)
	case Aborted:
		t.at = ev.At
		return t.cutShort(ev)
	default:
		panic(fmt.Sprintf("loop: unknown event %T", ev))
	}
}

// proceed makes the next step of a turn without signals: the open calls of the last response, and
// then the model again.
func (l *ruled) proceed(t *Turn) Decision {
	last := lastResponse(t.s.Log)
	switch {
	case len(t.s.Open) > 0 && t.calledLast():
		return t.endWithAnswer()
	case len(t.s.Open) > 0:
		return l.work(t)
	case !t.s.ResponsePending || last == nil:
	case len(last.Message.Calls()) == 0:
		return l.answered(t)
	case l.rules.AfterTools != nil:
		return l.afterTools(t)
	}
	if d, over := t.exhausted(); over {
		return d
	}
	if d, asks := t.checkInput(); asks {
		return d
	}
	if t.windowFull() && !t.cutResults() {
		return t.compactOr(l.ask)
	}
	return l.ask(t)
}

func (l *ruled) ask(t *Turn) Decision {
	var call CallModel
	if l.rules.Prompt != nil {
		call = l.rules.Prompt(t)
	} else {
		call = CallModel{Messages: state.View(t.s.Log), Shared: l.agent.SharedInstructions(), Tools: l.agent.ToolSpecs(), ProviderTools: l.agent.ProviderTools(), Schema: t.OutputSchema()}
	}
	switch {
	case t.lastCall():
		call.ToolChoice = model.ToolChoice{Mode: model.ToolsNone}
	case call.ToolChoice.IsZero():
		call.ToolChoice = t.toolChoice()
	}
	return Decision{Next: &t.s, Effect: call}
}

// toolChoice returns the tool choice in the settings of the model in use. A choice that forces a
// call applies to the first response after user input only: with the result the model may answer.
func (t *Turn) toolChoice() model.ToolChoice {
	m := t.agent.ModelAt(t.s.Fallback)
	if m == nil || m.ToolChoice.IsZero() {
		return model.ToolChoice{}
	}
	if m.ToolChoice.Forced() && respondedTo(t.s.Log) {
		return model.ToolChoice{Mode: model.ToolsAuto}
	}
	return m.ToolChoice
}

// respondedTo reports whether the model has responded since the last user message.
func respondedTo(log []state.Entry) bool {
	for i := range slices.Backward(log) {
		e := &log[i]
		if e.Type == state.EntryModel || i == 0 && e.Checkpoint != nil && e.Checkpoint.Responded {
			return true
		}
		if e.Type == state.EntryCompacted {
			continue
		}
		for _, m := range slices.Backward(e.Messages) { // a fork begins with those of another run
			if m.Role == state.RoleAssistant {
				return true
			}
			if saidByUser([]state.Message{m}) {
				return false
			}
		}
	}
	return false
}

// saidByUser reports whether messages contain a user message that the run has received.
func saidByUser(messages []state.Message) bool {
	return slices.ContainsFunc(messages, func(m state.Message) bool { return m.Role == state.RoleUser && !m.Synthetic && !m.Undelivered })
}

// lastResponse returns the entry of the last model response, or nil.
func lastResponse(log []state.Entry) *state.Entry {
	for i := range slices.Backward(log) {
		if log[i].Type == state.EntryModel && log[i].Message != nil {
			return &log[i]
		}
	}
	return nil
}

func (l *ruled) responded(t *Turn, ev ModelResponded) Decision {
	r := ev.Response
	if r.Stop == model.StopMaxOutputTokens {
		r.Parts = dropCutCall(r.Parts)
	}
	if l.rules.Read != nil {
		r = l.rules.Read(t, r)
	}
	t.lose(ev.Lost)
	t.respond(&r, ev.Attempt, ev.Failed, ev.Duration)
	if len(t.s.Open) > 0 {
		if t.calledLast() {
			return t.endWithAnswer()
		}
		t.s.Recoveries = 0
		if l.rules.BeforeTools != nil {
			l.rules.BeforeTools(t)
		}
		return l.work(t)
	}
	return l.answered(t)
}

// answered decides about a response without calls.
func (l *ruled) answered(t *Turn) Decision {
	last := lastResponse(t.s.Log)
	text := last.Message.Text()
	switch stop := model.Stop(last.StopReason); stop {
	case model.StopRefusal, model.StopContentFilter:
		return t.move(state.EndRefused, state.Entry{Output: &text, Detail: string(stop)})
	case model.StopMaxOutputTokens:
		return t.recoverOutput(text)
	case model.StopPause:
		return t.Next(state.NextTurn, "the provider paused the response")
	default:
	}
	if t.calledLast() {
		return t.endWithAnswer()
	}
	if d, ok := l.route(t, Think); ok {
		return d
	}
	switch {
	case l.rules.OnAnswer != nil:
		return l.rules.OnAnswer(t, text)
	case l.agent.Loop.Converse:
		return t.Ask(text)
	default:
		return t.Complete(state.EndCompleted, text)
	}
}

// route applies the first condition of the loop that holds, and reports whether there is one.
func (l *ruled) route(t *Turn, from Node) (Decision, bool) {
	for _, r := range l.rules.routes {
		to, ok := r.when(t.s, from)
		if !ok {
			continue
		}
		detail := "condition " + r.name
		switch to {
		case Terminate:
			return t.conclude(from, state.EndCompleted, detail), true
		case Reflect:
			if from != Reflect {
				t.reflect()
			}
			return t.Next(state.Reflected, detail), true
		default:
			return t.Next(state.NextTurn, detail), true
		}
	}
	return Decision{}, false
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

func (t *Turn) recoverOutput(text string) Decision {
	if t.s.Recoveries >= maxRecoveries {
		return t.move(state.EndMaxOutputTokens, state.Entry{Output: &text})
	}
	t.s.Recoveries++
	t.s.ContinueTurn = true
	return t.Next(state.MaxOutputTokensRecovery, fmt.Sprintf("recovery %d of %d", t.s.Recoveries, maxRecoveries), state.UserText(continuation))
}

// Complete ends the run with an answer, for the reason r, unless the answer does not match the output schema,
// or a stop hook or an unspent token budget continues the run (A8, A11, D8). The model may retry a wrong answer
// a limited number of times; then the run fails with EndInvalidOutput. A stop hook, or a token budget with
// diminishing returns, may also end the run for its own reason.
func (t *Turn) Complete(r state.Reason, output string) Decision {
	output, err := t.accepted(output)
	if err != nil {
		return t.retryOutput(output, err)
	}
	if len(t.agent.Hooks(hook.Stop)) > 0 {
		return Decision{Next: &t.s, Effect: RunHooks{Point: hook.Stop, Output: output, Reason: r}}
	}
	return t.endOrNudge(r, output)
}

// stopAnswered applies the answer of the stop hooks.
func (t *Turn) stopAnswered(ev HooksAnswered) Decision {
	var a hook.Answer
	if len(ev.Answers) > 0 {
		a = ev.Answers[0]
	}
	output := ev.Asked.Output
	switch limit := t.agent.MaxStopBlocks(); {
	case a.Block != nil && t.s.StopBlocks >= limit:
		return t.end(state.EndMaxTurns, fmt.Sprintf("stop hooks blocked %d times", limit), output)
	case a.Block != nil:
		t.s.StopBlocks++
		t.s.ContinueTurn = true
		return t.Next(state.StopHookBlocking, fmt.Sprintf("block %d of %d", t.s.StopBlocks, limit), state.UserText(*a.Block))
	case a.Failed != nil:
		return t.stopHookFailed(*a.Failed)
	case a.Prevent != nil:
		return t.end(state.EndStopHookPrevented, *a.Prevent, output)
	default:
		return t.endOrNudge(ev.Asked.Reason, output)
	}
}

// endOrNudge ends the run, or continues it if too little of its token budget is spent.
func (t *Turn) endOrNudge(r state.Reason, output string) Decision {
	b := t.agent.Limits.TokenBudget
	if b == nil {
		return t.end(r, "", output)
	}
	next, verdict := b.Judge(t.s.Nudges, t.s.Usage.OutputTokens)
	t.s.Nudges = next
	switch verdict {
	case budget.GoOn:
		return t.Next(state.BudgetContinuation, fmt.Sprintf("continuation %d", next.Count),
			state.UserText(fmt.Sprintf(nudge, t.s.Usage.OutputTokens, b.OutputTokens)))
	case budget.Diminishing:
		return t.end(state.EndDiminishingReturns, fmt.Sprintf("after %d continuations", next.Count), output)
	default:
		return t.end(r, "", output)
	}
}

func (t *Turn) end(r state.Reason, detail, output string) Decision {
	return t.move(r, state.Entry{Detail: detail, Output: &output})
}
