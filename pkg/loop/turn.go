package loop

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The texts of synthetic results for calls that did not finish (A4).
const (
	interruptedByUser = "Interrupted by user"
	interruptedMid    = "Interrupted mid-execution"
	interruptedLate   = "Interrupted: the run's deadline has passed"
	waitExpired       = "No answer: the wait for it has expired"
	poisonedText      = "Interrupted: the turn failed its workers too often"
	unknownOutcome    = "The outcome of this call is unknown: a worker was lost while it ran, and the tool must not be called twice. " +
		"Find out what happened before you call it again."
)

// Turn holds the State of a run during one decision. It has many methods because they are all that Rules can see and
// do: each is one question about the run or one move. A transition that State.Move refuses is a bug in a loop and
// panics. The worker recovers from the panic. If the last attempt at the turn panics too, the run ends poisoned rather
// than wrong. A Turn must not be used after the decision.
type Turn struct {
	s     state.State
	at    state.Time
	agent *agent.Agent
	err   error // why nothing can be decided

	toolsCut    bool // tools were in flight when an event cut the turn short
	interrupted bool // a message has interrupted the run in this turn
	rolledBack  bool // that message has withdrawn the turn
}

// State returns the current state of the run within the turn.
func (t *Turn) State() state.State { return t.s }

// Agent returns the definition of the agent that executes the turn.
func (t *Turn) Agent() *agent.Agent { return t.agent }

// Count returns the number of turns that max_turns counts: those since the submission
// or, if a message continued the run after its end, since then.
func (t *Turn) Count() int { return t.s.Turn - t.s.TurnBase }

// Next ends the turn. The next turn calls the model again, unless the run ends or pauses first. r must be a reason
// that leads to Queued. Next adds the messages in say to the history, before that call, and marks them in place as
// written by Turnpike.
func (t *Turn) Next(r state.Reason, detail string, say ...state.Message) Decision {
	t.s.ResponsePending = false
	for i := range say {
		say[i].Synthetic = true
	}
	return t.move(r, state.Entry{Detail: detail, Messages: say})
}

// End ends the run without consulting hooks. r must be a reason why a run ends. Open calls get an error
// as their result (I5). If r would complete the run and output does not match the output schema, the run fails
// with EndInvalidOutput instead.
func (t *Turn) End(r state.Reason, detail, output string) Decision {
	return t.finish(r, "Interrupted: "+detail, state.Entry{Detail: detail, Output: &output})
}

// Ask pauses the run until a person answers or sends a message. If the limit for waits ends first, the run
// expires.
func (t *Turn) Ask(question string) Decision {
	t.s.ResponsePending = false
	return t.wait(state.WaitingHumanInput, question)
}

func (t *Turn) append(e *state.Entry) {
	if e.At.IsZero() {
		e.At = t.at
	}
	switch {
	case e.Type == state.EntryModel:
	case e.Reason == state.Recovered:
		e.Turn = t.s.CurrentTurn() // the attempt may have died before the model answered
	default:
		e.Turn = t.s.Turn
	}
	t.s.Extend(e)
}

func (t *Turn) move(r state.Reason, e state.Entry) Decision {
	r = t.ended(r, &e)
	e.At = t.at
	for i := range e.Messages {
		t.stamp(&e.Messages[i], i)
	}
	if err := t.s.Advance(r, &e); err != nil {
		panic("loop: " + err.Error())
	}
	return Decision{Next: &t.s}
}

// stamp completes the i-th message of the entry that is appended next. Ids follow from the position in the log,
// so a replay gives the same ones.
func (t *Turn) stamp(m *state.Message, i int) {
	m.ID = fmt.Sprintf("msg_%d_%d", t.s.LogLen()+1, i)
	m.Turn = t.s.Turn
	m.At = t.at
}

// finish ends the run. Every call without a result gets one that gives the reason (I5).
func (t *Turn) finish(r state.Reason, unanswered string, e state.Entry) Decision {
	t.undecided(r, e.By)
	t.answerAll(unanswered)
	return t.move(r, e)
}

// answerAll gives every open call a synthetic error result.
func (t *Turn) answerAll(text string) {
	for _, o := range t.s.Open {
		t.result(ToolResult{CallID: o.ID, Name: o.Name, Content: text, IsError: true}, true)
	}
}

// result appends the result of a call. A call that is not open has its result
// already, so a second one changes nothing.
func (t *Turn) result(r ToolResult, synthetic bool) {
	i := slices.IndexFunc(t.s.Open, func(o state.OpenCall) bool { return o.ID == r.CallID })
	if i < 0 {
		return
	}
	m := state.ToolResult(r.CallID, r.Content, r.IsError, r.Images...)
	m.Parts[0].Files = r.Files
	m.Synthetic = synthetic
	if !synthetic {
		m.Parts[0].Origin = cmp.Or(r.Origin, originOf(r.Name, t.tool(r.Name)))
	}
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
	if o := t.s.Open[i]; o.Edited {
		e.Arguments = o.Arguments
	}
	t.append(&e)
	if t.s.Compacted && t.agent != nil && t.agent.CompactsAnew() && progressed(t.s.Log) {
		t.s.Compacted = false
	}
}

// originOf is the origin of a tool's result. Most results have the default origin,
// which is not stored.
func originOf(name string, spec *agent.CompiledTool) state.Origin {
	switch {
	case name == agent.AskUser || spec != nil && spec.By == tool.ByPerson:
		return state.OriginPerson
	case spec == nil:
		return ""
	case spec.By == tool.ByChild || spec.Kind == "a2a":
		return state.OriginAgent
	case spec.Kind == "http":
		return state.OriginWeb
	default:
		return ""
	}
}

// results appends the results of tools, in the order of the calls (A14). It skips calls
// that still wait for an answer.
func (t *Turn) results(rs []ToolResult) {
	for _, o := range t.s.Open {
		for _, r := range rs {
			if r.CallID == o.ID && !r.Pending && r.Ask == nil {
				t.result(r, false)
				break
			}
		}
	}
}

// respond appends a model response and returns its message.
func (t *Turn) respond(r *model.Response, attempt, failed int, took time.Duration) *state.Message {
	m := t.assistant(r)
	t.recordModel(r, m, attempt, failed, took)
	t.warn()
	return m
}

// assistant returns a response as the message of the next entry.
func (t *Turn) assistant(r *model.Response) *state.Message {
	m := &state.Message{Role: state.RoleAssistant, Model: r.Model, Parts: t.normalise(r.Parts)}
	t.stamp(m, 0)
	if !t.s.ContinueTurn {
		m.Turn++
	}
	return m
}

// recordModel appends the response r, whose message is m.
func (t *Turn) recordModel(r *model.Response, m *state.Message, attempt, failed int, took time.Duration) {
	u := r.Usage
	u.ModelCalls = 1
	t.append(&state.Entry{
		Type: state.EntryModel, Turn: m.Turn, Attempt: attempt, Message: m, StopReason: string(r.Stop), Usage: &u, FailedCalls: failed, DurationMS: took.Milliseconds(),
		Cache: string(r.Cache),
	})
}

// warn appends the warnings about limits that the last response has brought near.
func (t *Turn) warn() {
	for _, w := range budget.Warnings(t.s.Limits, t.s.Usage, t.Count(), t.at.Time, t.s.Warned) {
		t.append(&state.Entry{Type: state.EntryWarning, Limit: w.Limit, UsedFraction: w.Fraction})
	}
}

// normalise gives every call an id that no other call of the response has, and arguments in compact form if they are a
// JSON object; empty ones become {}. Ids that recur in a later turn stay unchanged: a result belongs to the response
// before it.
func (t *Turn) normalise(parts []state.Part) []state.Part {
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

// exhausted ends the run if a limit allows no other model call.
func (t *Turn) exhausted() (Decision, bool) {
	turns := t.Count()
	if t.s.ContinueTurn {
		turns--
	}
	used := t.s.Usage
	if t.s.Parent != nil {
		// Siblings that each passed their share by a call would pass the limit of
		// their parent by as many (I10): a child stops before a call that does not fit.
		used = used.Add(largestCall(t.s.Log))
	}
	r, limit, over := budget.Exhausted(t.s.Limits, used, turns, t.at.Time)
	if !over {
		return Decision{}, false
	}
	return t.exceeded(r, limit, turns), true
}

// exceeded ends the run for the reason r: a limit allows no other model call.
func (t *Turn) exceeded(r state.Reason, limit string, turns int) Decision {
	if r != state.EndMaxTurns {
		t.append(&state.Entry{Type: state.EntryExceeded, Limit: limit, UsedFraction: budget.FractionOf(limit, t.s.Limits, t.s.Usage, turns)})
	}
	return t.finish(r, interruptedLate, state.Entry{Detail: "limit " + limit, Output: t.lastText()})
}

// largestCall returns the highest usage of one response so far, for each limit
// separately: the estimate for the next one.
func largestCall(log []state.Entry) state.Usage {
	var most state.Usage
	if c := state.CheckpointOf(log); c != nil {
		most = c.Largest
	}
	for i := range log {
		e := &log[i] // an entry is large
		if e.Type != state.EntryModel || e.Usage == nil {
			continue
		}
		most.InputTokens = max(most.InputTokens, e.Usage.InputTokens)
		most.OutputTokens = max(most.OutputTokens, e.Usage.OutputTokens)
		if c := e.Usage.CostUSD; c != nil && (most.CostUSD == nil || *c > *most.CostUSD) {
			most.CostUSD = c
		}
	}
	return most
}

// lastText returns the text of the last response that was not withdrawn, for runs that end without an answer;
// nil if that response has no text.
func (t *Turn) lastText() *string { return lastText(t.s.Log) }

func lastText(log []state.Entry) *string {
	var withdrawn []string
	for i := range slices.Backward(log) {
		e := &log[i]
		if i == 0 && e.Checkpoint != nil {
			return e.Checkpoint.Text
		}
		if e.Type == state.EntryTombstoned {
			withdrawn = append(withdrawn, e.MessageIDs...)
		}
		if e.Type == state.EntryModel && !slices.Contains(withdrawn, e.Message.ID) {
			if text := e.Message.Text(); text != "" {
				return &text
			}
			return nil
		}
	}
	return nil
}

// WithNotes returns s with system messages added to the last entry of its log, which is the turn's transition:
// texts of hooks for the next model call (A13).
func WithNotes(s state.State, notes []string) state.State {
	if len(notes) == 0 || len(s.Log) == 0 {
		return s
	}
	s.Log = slices.Clone(s.Log)
	last := &s.Log[len(s.Log)-1]
	last.Messages = slices.Clone(last.Messages)
	for _, text := range notes {
		last.Messages = append(last.Messages, state.Message{
			ID: fmt.Sprintf("msg_%d_%d", last.Seq, len(last.Messages)), Role: state.RoleSystem, Turn: last.Turn, At: last.At, Synthetic: true,
			Parts: []state.Part{{Type: state.PartText, Text: text}},
		})
	}
	return s
}
