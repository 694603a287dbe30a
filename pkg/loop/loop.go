package loop

import (
	"time"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Loop makes the decisions for runs of one agent. A worker uses one Loop for any number of runs at the same
// time, so it must be immutable.
type Loop interface {
	// Step returns what follows s once ev has happened. It must not change s or ev. Equal arguments must
	// give equal results: a worker may call Step more than once with one event. It may write behind the
	// end of the log of s, in the memory that states with the same log share (state.State.Append), so it
	// is not called concurrently for such states. A panic ends the attempt at the turn.
	Step(s state.State, ev Event) Decision
}

// Decision is the result of one step of a loop.
type Decision struct {
	// Next is the state after the step: for the next step or, without an Effect, for the commit. It must not be nil,
	// and the loop must not change it afterwards. A state is large, so a pointer keeps the stacks of turns small.
	Next *state.State

	// Effect for the worker to perform; nil ends the turn.
	Effect Effect
}

// Event is something that happened to a run.
type Event interface{ event() }

// TurnBegan is the first event of every turn.
type TurnBegan struct {
	At      state.Time // by the store's clock, as in all events
	Worker  string
	Attempt int // from 1

	// Signals in the run's inbox, the oldest first; with an Abort, without those that arrived after it. The
	// loop consumes all of them.
	Signals []state.Signal

	// Abort is the pending abort, or nil.
	Abort *state.Abort

	// Poisoned reports that the turn was claimed too often without a commit. Attempts whose worker was only
	// paused do not count.
	Poisoned bool

	// Results are those of calls that earlier attempts at this turn finished, or that probes found. Started
	// lists the ids of calls that those attempts may have started, and that have no result.
	Results []ToolResult
	Started []string

	// Spent estimates the cost of model calls in earlier attempts whose responses were not
	// journaled. It is zero without such calls.
	Spent state.Usage
}

// Lost is a failed model call: the text that had arrived, empty for a summary, and the cost, which may be an
// estimate.
type Lost struct {
	Text  string
	Spent state.Usage
}

// ModelResponded is a complete response to a CallModel.
type ModelResponded struct {
	At       state.Time
	Attempt  int
	Response model.Response

	// Failed is the number of failed tries of the same CallModel before this one. Lost lists those of them that
	// returned text or cost something.
	Failed int
	Lost   []Lost

	// Purpose of the CallModel that it answers.
	Purpose Purpose

	// Duration of the call, with its retries and the waits between them.
	Duration time.Duration
}

// ModelFailed reports that a model call failed, and that the worker does not retry it in this turn.
type ModelFailed struct {
	At  state.Time
	Err *model.Error

	// Failed is the number of tries of the call that were made and failed, including the last unless it was
	// refused before it was made. Lost lists the earlier ones that returned text or cost something. Spent is
	// the cost of the last.
	Failed int
	Lost   []Lost
	Spent  state.Usage

	// Purpose of the CallModel that failed.
	Purpose Purpose
}

// ModelDelayed reports that a model call was not made: the rate limit has no capacity for it yet or could not
// be read from the store, or another run is testing whether a failing model works again.
type ModelDelayed struct {
	At state.Time

	// Wait is the time until the call may be tried. Reservation is the reservation of the rate limit for that
	// time; nil if the run has none.
	Wait        time.Duration
	Reservation *state.Reservation

	// Detail explains the delay in words.
	Detail string

	// Purpose of the CallModel that was not made.
	Purpose Purpose
}

// ToolsFinished reports the result of every call that RunTools named, in any order.
type ToolsFinished struct {
	At      state.Time
	Results []ToolResult
}

// HooksAnswered reports the answers of hooks: one for each message or call that RunHooks named, in that order,
// or a single one if it named none.
type HooksAnswered struct {
	At      state.Time
	Asked   RunHooks
	Answers []hook.Answer
}

// Aborted reports that an effect was cut short or not begun: by an abort, the deadline, or a message that
// interrupts the turn.
type Aborted struct {
	At     state.Time
	Cause  AbortCause
	Reason string
	By     *state.By // who aborted the run

	// Failed is the number of tries of the model call without a response, including the one that was cut short.
	// Lost lists the earlier ones that returned text or cost something.
	Failed int
	Lost   []Lost

	// Signals that came in during the turn, before the abort, the oldest first; none with ByDeadline. With
	// ByMessage one of them interrupts the run or rolls it back.
	Signals []state.Signal

	// Partial is the text of the response that had arrived, and Spent is the cost of the call.
	Partial string
	Spent   state.Usage

	// Response holds the tool calls that had arrived complete; nil if none.
	Response *model.Response

	// Started reports that at least one tool was started. Results are the results of the calls that
	// had finished.
	Started bool
	Results []ToolResult
}

// AbortCause is the source of an abort.
type AbortCause string

// The causes.
const (
	ByUser     AbortCause = "user"
	ByDeadline AbortCause = "deadline"
	ByMessage  AbortCause = "message" // only the turn ends
)

// ToolResult is the outcome of one call.
type ToolResult struct {
	CallID   string
	Name     string
	Content  string
	Images   []state.Image
	Files    []state.Part // of type file
	IsError  bool
	Reused   bool // the result of an earlier, equal call
	Duration time.Duration
	At       state.Time

	// Origin, if not empty, is the origin of Content in place of that of the tool's kind.
	Origin state.Origin

	// Pending reports that the tool has accepted the call and answers later, with a signal.
	Pending bool

	// Ask, if not nil, is a question that the tool needs answered before it can continue.
	Ask *tool.Ask
}

func (TurnBegan) event()      {}
func (ModelResponded) event() {}
func (ModelFailed) event()    {}
func (ModelDelayed) event()   {}
func (ToolsFinished) event()  {}
func (HooksAnswered) event()  {}
func (Aborted) event()        {}

// Effect is one thing that a loop requests of the worker.
type Effect interface{ effect() }

// CallModel requests one model call. The worker adds what the loop does not know: the model's settings, keys
// and address, and the number of the call.
type CallModel struct {
	Messages []state.Message
	Shared   int // as in model.Request
	Tools    []model.ToolSpec

	// ProviderTools are those that the model's provider runs during the call.
	ProviderTools []model.ProviderTool

	Schema  []byte // of structured output; nil for none
	Purpose Purpose

	// ToolChoice says whether the model may, must or must not call tools. If a Prompt leaves it empty, a loop made by
	// New takes it from the model's settings; a choice there that forces a call applies only to the first response
	// after input of the user. If the last call that max_turns allows must be an answer, the loop sets ToolChoice to
	// none.
	ToolChoice model.ToolChoice

	// Quiet makes the worker publish no deltas of the response to the run's watchers.
	Quiet bool
}

// Purpose is the purpose of a model call.
type Purpose string

// The purposes.
const (
	ForTurn    Purpose = ""        // the turn's own response
	ForSummary Purpose = "summary" // a compaction
)

// RunTools requests these tool calls. The worker makes them in order, in batches:
// adjacent calls that may run in parallel form one batch, or several if their
// results might not fit into memory, and each other call is a batch by itself (A14).
type RunTools struct {
	Calls []state.OpenCall
}

// RunHooks calls the agent's hooks at one point: for each of Messages, before each of Calls, or before
// the run ends with Output for Reason.
type RunHooks struct {
	Point    hook.Point
	Messages []state.Message
	Calls    []state.OpenCall
	Output   string
	Reason   state.Reason
}

// GiveUp reports that the loop cannot decide, such as with a *StateError. If the error is a
// state.ErrFormat, the turn waits for a worker that supports the format. Otherwise the attempt
// counts: if no worker can continue the run, it ends poisoned and may be replayed.
type GiveUp struct{ Err error }

func (CallModel) effect() {}
func (RunTools) effect()  {}
func (RunHooks) effect()  {}
func (GiveUp) effect()    {}
