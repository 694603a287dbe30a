package state

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// RunID names one run for its whole life: "run_" and a ULID.
type RunID string

// Priority is the lane a run travels on.
type Priority string

// The priorities.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Priorities lists the lanes, the most urgent first.
func Priorities() []Priority { return []Priority{High, Normal, Low} }

// State is the header of one run after one transition, with the log behind it.
// It is a value: methods return a changed copy and never touch the receiver, so
// a State may be shared freely.
//
// A header has two parts, and a store may write the first once only. How they are stored
// is in ADR 27; the names below are those of format 2.
type State struct {
	// Format in which the run is stored; 0 of a run that is not stored yet.
	Format int `json:"format"`

	// What is fixed at submission. Nobody changes it afterwards.
	ID           RunID             `json:"id"`
	Agent        string            `json:"agent"`
	AgentVersion int               `json:"agent_version"`
	Loop         string            `json:"loop"`
	Tenant       string            `json:"tenant"`
	Priority     Priority          `json:"priority"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Parent       *Parent           `json:"parent,omitempty"`
	OutputSchema json.RawMessage   `json:"output_schema,omitempty"`
	Limits       Limits            `json:"limits"`
	Stream       string            `json:"stream,omitempty"`
	ReplyTo      string            `json:"reply_to,omitempty"`
	Webhook      *Webhook          `json:"webhook,omitempty"`
	CreatedAt    Time              `json:"created_at"`

	// What turns change.
	Status  Status `json:"status"`
	Turn    int    `json:"turn"`
	Version int64  `json:"version"`

	// Batch is the run's place in its batch; nil for a run on its own.
	Batch *Batch `json:"batch,omitempty"`

	Output           *string         `json:"output,omitempty"`
	StructuredOutput json.RawMessage `json:"structured_output,omitempty"`
	Error            *Error          `json:"error,omitempty"`

	// LoopState is what the run's loop keeps for itself, opaque to everybody else. A
	// user message that continues an ended run takes it away: the loop begins anew.
	LoopState LoopState `json:"loop_state,omitzero"`

	// Facts are what the loop has published of the run.
	Facts Facts `json:"facts,omitzero"`

	// Waiting says what a waiting run waits for; nil otherwise.
	Waiting *Wait `json:"waiting,omitempty"`

	// Open are the tool calls of the last assistant message that have no result
	// yet, in the order of the calls.
	Open []OpenCall `json:"open,omitempty"`

	// NeedsDetermined reports whether the loop has determined the needs of the open calls: a
	// call whose Needs is empty may then run.
	NeedsDetermined bool `json:"cleared,omitempty"`

	// ResponsePending reports whether the loop has yet to process the last model response:
	// some of its calls are open, or a worker was lost before the loop decided about it.
	ResponsePending bool `json:"undecided,omitempty"`

	// ResumeAt is when a run in waiting_schedule goes on by itself.
	ResumeAt Time `json:"resume_at,omitzero"`

	// Reservation is the time that a rate limit has reserved for the run, until the worker has
	// made the call for which it waits.
	Reservation *Reservation `json:"reservation,omitempty"`

	// Warned lists the limits whose soft warning was given.
	Warned []string `json:"warned,omitempty"`

	// TurnBase is the turn count when the run was last continued by a user
	// message after it had ended: max_turns counts from there.
	TurnBase int `json:"turn_base,omitempty"`

	// ContinueTurn reports whether the next model response belongs to the turn that is
	// already counted: the run recovers within it (A6, A8).
	ContinueTurn bool `json:"reenter,omitempty"`

	// Failures are turns in a row in which the model call failed; Recoveries are
	// continuations in a row after the output limit.
	Failures   int `json:"failures,omitempty"`
	Recoveries int `json:"recoveries,omitempty"`

	// Compacted says that the one compaction which answers a prompt that was too long has
	// been made since a person last said something (A10, I11).
	Compacted bool `json:"compacted,omitempty"`

	// StopBlocks counts how often stop hooks sent the run on (A8).
	StopBlocks int `json:"stop_blocks,omitempty"`

	// Fallback is the place of the model in use in the chain of fallbacks, and
	// FallbackBase how often models before it were asked (A12).
	Fallback     int `json:"fallback,omitempty"`
	FallbackBase int `json:"fallback_base,omitempty"`

	// Nudges tracks the continuations towards a token budget (A11).
	Nudges Nudges `json:"nudges,omitzero"`

	// Poison is what a replay of the run needs; nil unless it ended poisoned and
	// nobody has continued it since.
	Poison *Poison `json:"poison,omitempty"`

	// DeadLettered says that a worker has stored a dead letter about the run, or will. It stays
	// true when the run continues, so that a deletion knows that it must look for letters.
	DeadLettered bool `json:"dead_lettered,omitempty"`

	// ModelRequests is the number of model calls made for this run, including failed ones
	// and excluding those of child runs.
	ModelRequests int `json:"asked,omitempty"`

	// TraceSpan is fixed by whoever is first to trace the run.
	TraceSpan string `json:"trace_parent,omitempty"`

	StartedAt  Time `json:"started_at,omitzero"`
	UpdatedAt  Time `json:"updated_at"`
	FinishedAt Time `json:"finished_at,omitzero"`

	// IdleMS is the time between the ends of the run and what continued it: a replay or a user
	// message.
	IdleMS int64 `json:"idle_ms,omitempty"`

	Transition Transition `json:"transition"`
	Usage      Usage      `json:"usage"`

	// Log is the run's history as far as the holder has read it. It is kept
	// apart from the header in every store.
	Log []Entry `json:"-"`
}

// LoopState is what a loop keeps for itself in a run. The data is JSON of the loop's
// own making, and Version says how the loop that wrote it laid it out.
type LoopState struct {
	Version int             `json:"version,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// IsZero reports whether the loop keeps nothing.
func (l LoopState) IsZero() bool { return l.Version == 0 && len(l.Data) == 0 }

// Facts are what loops publish, for readers who need not know the loop. The log has how
// they came about: each is folded from the entry that published it.
type Facts struct {
	// Confidence as the run was submitted with it, or as the latest reflection left it.
	Confidence *float64 `json:"confidence,omitempty"`
}

// Nudges are the continuations that a token budget gave, with what the last one
// brought.
type Nudges struct {
	Count     int   `json:"count"`
	LastDelta int64 `json:"last_delta"`
	LastTotal int64 `json:"last_total"`
}

// Parent names the run and the call that started a child run.
type Parent struct {
	RunID  RunID  `json:"run_id"`
	CallID string `json:"call_id"`
	Depth  int    `json:"depth"`
}

// Transition is the typed reason of the latest move.
type Transition struct {
	Reason  Reason `json:"reason"`
	Detail  string `json:"detail"`
	Turn    int    `json:"turn"`
	Version int64  `json:"version"`
	At      Time   `json:"at"`
}

// Error is why a run failed, in words that a program can branch on and in words
// for people.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Wait is what a waiting run waits for.
type Wait struct {
	Reason    Reason     `json:"reason"`
	Since     Time       `json:"since"`
	ExpiresAt Time       `json:"expires_at"`
	Calls     []WaitCall `json:"calls"`
	Question  string     `json:"question,omitempty"`
}

// WaitCall is one tool call that somebody outside has to decide or to answer.
type WaitCall struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Message   string          `json:"message,omitempty"`
	Needs     Need            `json:"needs,omitempty"`
	Hash      string          `json:"hash,omitempty"`   // of a call that waits for approval
	Risk      string          `json:"risk,omitempty"`   // of the tool, as its definition says
	RunID     RunID           `json:"run_id,omitempty"` // of the child run that answers

	// Of a call that waits for approval: whether a value of its arguments also stands in
	// something that a stranger may have written, in what, and whether the model has read any
	// such text at all.
	ArgsFromUntrusted bool             `json:"args_from_untrusted,omitempty"`
	UntrustedSeen     bool             `json:"untrusted_seen,omitempty"`
	Sources           []ArgumentSource `json:"sources,omitempty"`

	// Again is set if an approver has edited the call and it waits for approval once more.
	Again *AskedAgain `json:"again,omitempty"`
}

// AskedAgain says why a call that an approver has edited waits for approval once more.
type AskedAgain struct {
	Reason AgainReason `json:"reason"`

	// EditedBy is the principal who gave the arguments that wait, or empty if it is unknown.
	EditedBy string `json:"edited_by,omitempty"`

	// OriginalArguments are those that the model gave.
	OriginalArguments json.RawMessage `json:"original_arguments"`
}

// AgainReason is why an edited call needs another approval.
type AgainReason string

// The reasons for another approval. If several apply, the first of this list counts.
const (
	AgainFourEyes AgainReason = "four_eyes" // the tenant wants a second person to approve every edit
	AgainHook     AgainReason = "hook"      // a hook requires approval for the new arguments
	AgainRule     AgainReason = "rule"      // the approval rule of the tool matches the new arguments
)

// OpenCall is a tool call without a result.
type OpenCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`

	// Arguments as the tool will get them: an approval or a hook may have edited
	// them.
	Arguments string `json:"arguments"`
	Edited    bool   `json:"edited,omitempty"`

	// Needs is what must come from outside before the call can go on; empty
	// means that the worker may run it now.
	Needs Need `json:"needs,omitempty"`

	// Recheck says that whoever approved the call has edited it: schema, hooks and
	// approval rules look at it again before it may run.
	Recheck bool `json:"recheck,omitempty"`

	// SecondApprover says that an approver has edited the call in a tenant with four eyes:
	// another person must approve it as it stands.
	SecondApprover bool `json:"second_approver,omitempty"`

	// Again is why the call waits for approval once more, or empty.
	Again AgainReason `json:"again,omitempty"`

	// Question of a call that asks a person.
	Question string `json:"question,omitempty"`

	// AskState is the data that a tool needs to resume a call during which it asks a person a
	// question. Answer is that person's answer, or nil if there is none yet.
	AskState json.RawMessage `json:"asked,omitempty"`
	Answer   *string         `json:"answer,omitempty"`

	// Child is the run that answers a call which delegates.
	Child RunID `json:"child,omitempty"`

	// Until is when the result of an asynchronous call is no longer waited for,
	// because nobody knows whether its tool ever got the call.
	Until Time `json:"until,omitzero"`
}

// Need is what an open call waits for.
type Need string

// The needs of an open call.
const (
	NeedApproval Need = "approval"
	NeedResult   Need = "result"
	NeedAnswer   Need = "answer"
	NeedChild    Need = "child"
	NeedAsync    Need = "async"
)

// Usage is what a run has spent. CostUSD is nil while nothing has a known price. What model
// calls have cost that broke off, or that a crash threw away, is a part of it.
type Usage struct {
	InputTokens      int64     `json:"input_tokens"`
	OutputTokens     int64     `json:"output_tokens"`
	CacheReadTokens  int64     `json:"cache_read_tokens"`
	CacheWriteTokens int64     `json:"cache_write_tokens"`
	ModelCalls       int64     `json:"model_calls"`
	ToolCalls        int64     `json:"tool_calls"` // that were made: not denied, not reused, not cut short
	CostUSD          *MicroUSD `json:"cost_usd"`

	// Estimated says that a part of it is a guess: nobody was told what that came to.
	Estimated bool `json:"estimated,omitempty"`
}

// Add returns the sum of u and v. A cost that is unknown on one side counts as
// nothing.
func (u Usage) Add(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.ModelCalls += v.ModelCalls
	u.ToolCalls += v.ToolCalls
	u.Estimated = u.Estimated || v.Estimated
	if v.CostUSD != nil {
		sum := *v.CostUSD
		if u.CostUSD != nil {
			sum += *u.CostUSD
		}
		u.CostUSD = &sum
	}
	return u
}

// Limits bound a run. A zero field is no limit, but MaxTurns, which every run
// has (A4).
type Limits struct {
	MaxTurns     int      `json:"max_turns,omitempty"`
	OutputTokens int64    `json:"output_tokens,omitempty"`
	TotalTokens  int64    `json:"total_tokens,omitempty"`
	CostUSD      MicroUSD `json:"cost_usd,omitempty"`

	// DeadlineAt ends the run at an instant, wherever it stands.
	DeadlineAt Time `json:"deadline_at,omitzero"`

	// WaitMS bounds each wait for somebody outside; 0 waits for ever.
	WaitMS int64 `json:"wait_ms,omitempty"`

	// Runs bounds the descendants of the run: child runs and theirs. 0 means
	// DefaultTreeRuns. Of a child run it bounds nothing: its root's counts.
	Runs int `json:"runs,omitempty"`

	// WarnAt is the fraction of a limit at which a warning is given; 0 means 0.8.
	WarnAt float64 `json:"warn_at,omitempty"`
}

// DefaultTreeRuns is how many descendants a run may have that sets no limit.
const DefaultTreeRuns = 1000

// Webhook is an address that hears of a run's events.
type Webhook struct {
	URL    string   `json:"url"`
	Events []string `json:"events,omitempty"`
}

// As returns s as a reader sees it while its scheduler status is status: a run
// that was woken or claimed since its last transition no longer waits, and is not
// finished.
func (s State) As(status Status, startedAt Time) State {
	if status != s.Status {
		s.Waiting, s.FinishedAt, s.Output, s.StructuredOutput, s.Error = nil, Time{}, nil, nil, nil
	}
	s.Status = status
	if s.StartedAt.IsZero() {
		s.StartedAt = startedAt
	}
	return s
}

// Idle returns how long the run has lain at its ends, by now, before something continued it. A run
// that is queued after its end lies there until a worker takes its turn.
func (s State) Idle(now time.Time) time.Duration {
	idle := time.Duration(s.IdleMS) * time.Millisecond
	if !s.Status.Terminal() && s.Transition.Reason.Terminal() {
		idle += max(0, now.Sub(s.Transition.At.Time))
	}
	return idle
}

// CurrentTurn returns the number of the turn that the next attempt makes. It is that of the last
// model response until the loop has processed the response and its calls, and while the next
// response belongs to it; else it is that of the next response.
func (s State) CurrentTurn() int {
	if len(s.Open) > 0 || s.ResponsePending || s.ContinueTurn {
		return s.Turn
	}
	return s.Turn + 1
}

// LogLen is the number of entries in the log that s carries.
func (s State) LogLen() int64 { return int64(len(s.Log)) }

// Append returns s with e as the next entry of its log, and with what e tells
// folded into the header: a journaled model response that a crashed worker left
// behind brings a header up to date exactly as it did for that worker (I3, F4).
//
// States that share a log may be appended to in any order, but only one at a time.
func (s State) Append(e Entry) State {
	e.Seq = s.LogLen() + 1
	switch e.Type {
	case EntryModel:
		s.Turn = e.Turn
		s.ContinueTurn, s.ResponsePending = false, true
		s.Failures, s.Reservation = 0, nil
		s.ModelRequests += 1 + e.FailedCalls
		if e.Usage != nil {
			s.Usage = s.Usage.Add(*e.Usage)
		}
		if e.Message != nil {
			s.Open, s.NeedsDetermined = nil, false
			for i := range e.Message.Parts {
				if c := &e.Message.Parts[i]; c.Type == PartToolCall {
					s.Open = append(s.Open, OpenCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
				}
			}
		}
	case EntryCompacted:
		if e.Usage != nil {
			s.ModelRequests++
			s.Reservation = nil
			s.Usage = s.Usage.Add(*e.Usage)
		}
	case EntryTombstoned, EntryTransition:
		if e.wasted() {
			s.Usage = s.Usage.Add(*e.Usage)
		}
	case EntryTool, EntryReused:
		if e.made() {
			s.Usage.ToolCalls++
		}
		answers := func(o OpenCall) bool { return o.ID == e.CallID }
		if len(s.Open) == 1 && answers(s.Open[0]) {
			s.Open = nil
		} else {
			s.Open = slices.DeleteFunc(slices.Clone(s.Open), answers)
		}
	case EntryWarning:
		s.Warned = append(slices.Clip(s.Warned), e.Limit)
	case EntryReflect:
		s.Facts.Confidence = e.Confidence
	default:
	}
	// Capacity behind the log belongs to the first state that is appended to; any other
	// with the same prefix makes a log of its own.
	if n := len(s.Log); n == cap(s.Log) || s.Log[:n+1][n].Seq != 0 {
		s.Log = slices.Clip(s.Log)
	}
	s.Log = append(s.Log, e)
	return s
}

// Move returns s after the transition r: one version later, with the entry that
// records it in the log. Entry carries what else the transition has to tell; its
// type, reason, version and status are set here.
func (s State) Move(r Reason, e Entry) (State, error) {
	to, err := legal(s.Status, r)
	if err != nil {
		return State{}, err
	}
	if s.Status.Terminal() {
		s.IdleMS += max(0, e.At.Sub(s.FinishedAt.Time).Milliseconds())
	}
	s.Status = to
	s.Version++
	s.UpdatedAt = e.At
	e.Turn, e.Reason, e.Version, e.Status = s.Turn, r, s.Version, to
	switch {
	case r == Submitted || r == Forked:
		e.Type = EntrySubmitted
		s.CreatedAt = e.At
	case to == Waiting:
		e.Type = EntryWaiting
		s.Waiting = e.Waiting
		s = s.leaveLane()
	case to.Terminal():
		e.Type = EntryFinished
		s.Output, s.StructuredOutput, s.Error = e.Output, e.StructuredOutput, e.Error
		s.FinishedAt = e.At
	default:
		e.Type = EntryTransition
	}
	if to != Waiting {
		s.Waiting = nil
		if r != Submitted {
			s = s.Started()
		}
	}
	if !to.Terminal() {
		s.Output, s.StructuredOutput, s.Error, s.FinishedAt = nil, nil, nil, Time{}
	}
	s.Transition = Transition{Reason: r, Detail: e.Detail, Turn: s.Turn, Version: s.Version, At: e.At}
	return s.Append(e), nil
}

// Due returns when a waiting run must be woken if no signal does it earlier: the
// end of its delay, of its wait or of its deadline. Zero means never.
func (s State) Due() time.Time {
	var due time.Time
	earliest := func(t Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t.Time
		}
	}
	if s.Status == Waiting {
		if s.Waiting != nil && s.Waiting.Reason == WaitingSchedule && !s.PendingInBatch() {
			earliest(s.ResumeAt)
		}
		if s.Waiting != nil {
			earliest(s.Waiting.ExpiresAt)
		}
		earliest(s.Limits.DeadlineAt)
	}
	return due
}

// Awaits returns the names of the signals that s is open to: one for each open
// call that needs somebody outside, AwaitAnswer for a question without a call,
// AwaitStart for a run that its batch holds, and AwaitReplay for one that ended
// poisoned. A run that goes on because some of its
// calls were decided stays open to the decisions about the others.
func (s State) Awaits() []string {
	if s.Status == Failed && s.Poison != nil {
		return []string{AwaitReplay(s.Version)}
	}
	if s.Status.Terminal() {
		return nil
	}
	var names []string
	for _, o := range s.Open {
		if o.Needs != "" {
			names = append(names, AwaitCall(o.Needs, o.ID))
		}
	}
	if s.Waiting != nil && s.Waiting.Reason == WaitingHumanInput && !slices.ContainsFunc(s.Open, func(o OpenCall) bool { return o.Needs == NeedAnswer }) {
		names = append(names, AwaitAnswer)
	}
	if s.PendingInBatch() {
		names = append(names, AwaitStart)
	}
	return names
}

// AwaitAnswer is the name of the wait for an answer to a question, AwaitStart that
// of the wait of a run that its batch holds.
const (
	AwaitAnswer = "answer"
	AwaitStart  = "start"
)

// AwaitsRun reports whether a name is that of a wait for another run: a child, or one
// before it in its batch.
func AwaitsRun(name string) bool {
	return name == AwaitStart || strings.HasPrefix(name, string(NeedChild)+":")
}

// AwaitCall is the name of the wait of one open call.
func AwaitCall(need Need, callID string) string {
	if need == NeedAnswer {
		return AwaitAnswer
	}
	if need == NeedAsync {
		need = NeedResult
	}
	return string(need) + ":" + callID
}
