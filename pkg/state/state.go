package state

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// RunID identifies one run for its lifetime: "run_" and a ULID.
type RunID string

// Priority is the lane that carries a run.
type Priority string

// The priorities.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Priorities returns the lanes, most urgent first.
func Priorities() []Priority { return []Priority{High, Normal, Low} }

// State is the header of one run after one transition, and its log. It is a value: methods return a
// changed copy and never modify the receiver, so goroutines may share a State. Only Append and Move
// must not be called concurrently on states that share a log.
//
// A header has two parts, and a store may write the first only once. ADR 31 describes how they are
// stored.
type State struct {
	// Format in which the run is stored; 0 if it is not stored yet.
	Format int `json:"format"`

	// Fixed at submission.
	ID           RunID             `json:"id"`
	Agent        string            `json:"agent"`
	AgentVersion int               `json:"agent_version"`
	Loop         string            `json:"loop"`
	Tenant       string            `json:"tenant"`
	Priority     Priority          `json:"priority"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Parent       *Parent           `json:"parent,omitempty"`
	OutputSchema json.RawMessage   `json:"output_schema,omitempty"`
	Variables    json.RawMessage   `json:"variables,omitempty"` // of the agent's instructions, as submitted
	Limits       Limits            `json:"limits"`
	Stream       string            `json:"stream,omitempty"`
	ReplyTo      string            `json:"reply_to,omitempty"`
	Webhook      *Webhook          `json:"webhook,omitempty"`
	CreatedAt    Time              `json:"created_at"`

	// Changed by turns.
	Status  Status `json:"status"`
	Turn    int    `json:"turn"`
	Version int64  `json:"version"`

	// Batch is the run's position in its batch; nil if it has none.
	Batch *Batch `json:"batch,omitempty"`

	Output           *string         `json:"output,omitempty"`
	StructuredOutput json.RawMessage `json:"structured_output,omitempty"`
	Error            *Error          `json:"error,omitempty"`

	// Active is the agent that a handoff has made responsible for the run; zero as long as that is
	// Agent. Definition returns one of the two.
	Active AgentRef `json:"active,omitzero"`

	// LoopState is the private state of the run's loop, opaque to all other code. A user message that continues an
	// ended run or interrupts a turn clears it, and so does a handoff: the loop starts over.
	LoopState LoopState `json:"loop_state,omitzero"`

	// Facts are the values that the loop has published about the run.
	Facts Facts `json:"facts,omitzero"`

	// Waiting describes the wait of a waiting run; nil otherwise.
	Waiting *Wait `json:"waiting,omitempty"`

	// Open are the tool calls of the last assistant message that have no result yet, in the order in
	// which the model made them.
	Open []OpenCall `json:"open,omitempty"`

	// NeedsDetermined reports whether the loop has determined the needs of the open calls: a
	// call whose Needs is empty may then run.
	NeedsDetermined bool `json:"cleared,omitempty"`

	// ResponsePending reports whether the loop has yet to process the last model response, for
	// example because some of its calls are open.
	ResponsePending bool `json:"undecided,omitempty"`

	// ResumeAt is the time at which a run in waiting_schedule resumes.
	ResumeAt Time `json:"resume_at,omitzero"`

	// Reservation is the time that a rate limit has reserved for the run's next model call. It is
	// nil again once the worker has made that call.
	Reservation *Reservation `json:"reservation,omitempty"`

	// Warned lists the limits that have issued their soft warning.
	Warned []string `json:"warned,omitempty"`

	// TurnBase is the turn count at the time a user message last continued the ended run. max_turns
	// counts from there.
	TurnBase int `json:"turn_base,omitempty"`

	// ContinueTurn reports whether the next model response belongs to the turn that was already
	// counted, because the run recovers within that turn (A6, A8).
	ContinueTurn bool `json:"reenter,omitempty"`

	// Failures is the number of failed model calls that the run has waited to retry with its current model, since the
	// last response, handoff, or user message that continued it after an end. Recoveries is the number of consecutive
	// continuations after the output limit.
	Failures   int `json:"failures,omitempty"`
	Recoveries int `json:"recoveries,omitempty"`

	// Compacted reports whether the run has made the one compaction that follows a prompt that was too long (A10, I11).
	// A user message or a handoff allows another one; so does progress if the agent's compaction.reactive is progress.
	Compacted bool `json:"compacted,omitempty"`

	// StopBlocks is the number of times that stop hooks have continued the run since a user message last
	// continued it after an end (A8).
	StopBlocks int `json:"stop_blocks,omitempty"`

	// Fallback is 0 while the agent's own model is current, and n for the n-th of its fallbacks (A12). FallbackBase
	// is the value of ModelRequests when that fallback became current. A handoff sets both to 0.
	Fallback     int `json:"fallback,omitempty"`
	FallbackBase int `json:"fallback_base,omitempty"`

	// Nudges tracks the continuations towards a token budget (A11).
	Nudges Nudges `json:"nudges,omitzero"`

	// Poison is the data that a replay of the run needs; nil unless the run failed in a way that a replay
	// can continue, and has not continued since.
	Poison *Poison `json:"poison,omitempty"`

	// DeadLettered reports whether a worker has stored, or will store, a dead letter about the run.
	// It stays true when the run continues, so that a deletion also looks for letters.
	DeadLettered bool `json:"dead_lettered,omitempty"`

	// ModelRequests is the number of model calls made for this run, including failed ones
	// and excluding those of child runs.
	ModelRequests int `json:"asked,omitempty"`

	// TraceSpan is the trace context that the first process to trace the run has set.
	TraceSpan string `json:"trace_parent,omitempty"`

	StartedAt  Time `json:"started_at,omitzero"`
	UpdatedAt  Time `json:"updated_at"`
	FinishedAt Time `json:"finished_at,omitzero"`

	// IdleMS is the sum, in milliseconds, of the times between an end of the run and its continuation
	// by a replay or a user message.
	IdleMS int64 `json:"idle_ms,omitempty"`

	// Trouble counts failures in the run, whether or not they ended it.
	Trouble Trouble `json:"trouble,omitzero"`

	Transition Transition `json:"transition"`
	Usage      Usage      `json:"usage"`

	// Checkpoint is the number of the log's latest checkpoint; 0 if it has none.
	Checkpoint int64 `json:"checkpoint,omitempty"`

	// LogBytes estimates the memory of Log, as Entry.Weight does. It is too small for runs of older builds.
	LogBytes int64 `json:"log_bytes,omitempty"`

	// Log is the run's log from its latest checkpoint on, or from its beginning if it has none, as far as its
	// reader has read it. Every store keeps the log separate from the header.
	Log []Entry `json:"-"`
}

// LoopState is the private state of a loop in a run. Data is JSON in the loop's own layout, and
// Version is the version of that layout.
type LoopState struct {
	Version int             `json:"version,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// IsZero reports whether the loop has no state.
func (l LoopState) IsZero() bool { return l.Version == 0 && len(l.Data) == 0 }

// Facts are what loops publish for readers that need not know the loop. Each is folded from the log
// entry that published it.
type Facts struct {
	// Confidence is the value from the submission or from the latest reflection.
	Confidence *float64 `json:"confidence,omitempty"`
}

// Nudges describes the continuations that a token budget caused (A11) since the submission or, if a user message has
// continued the run after an end, since the latest such message. Count is their number. LastTotal is the number of the
// run's output tokens at the last of them, or at that beginning if there are none. LastDelta is the number of output
// tokens between the last two, or from that beginning to the first.
type Nudges struct {
	Count     int   `json:"count"`
	LastDelta int64 `json:"last_delta"`
	LastTotal int64 `json:"last_total"`
}

// Parent identifies the run and the call that started a child run.
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

// Error is the reason why a run failed: a code for programs and a message for people.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Wait describes the wait of a waiting run.
type Wait struct {
	Reason    Reason     `json:"reason"`
	Since     Time       `json:"since"`
	ExpiresAt Time       `json:"expires_at"`
	Calls     []WaitCall `json:"calls"`
	Question  string     `json:"question,omitempty"`
}

// WaitCall is one tool call that a person or another process must decide or answer.
type WaitCall struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Message   string          `json:"message,omitempty"`
	Needs     Need            `json:"needs,omitempty"`
	Hash      string          `json:"hash,omitempty"`   // of the exact call that waits for approval
	Risk      string          `json:"risk,omitempty"`   // of the tool, from its definition
	RunID     RunID           `json:"run_id,omitempty"` // the child run that answers

	// Set for a call that waits for approval: whether a value of its arguments also occurs in
	// untrusted text and in which sources, and whether the model has read any untrusted text.
	ArgsFromUntrusted bool             `json:"args_from_untrusted,omitempty"`
	UntrustedSeen     bool             `json:"untrusted_seen,omitempty"`
	Sources           []ArgumentSource `json:"sources,omitempty"`

	// Again is set if an approver has edited the call and it waits for another approval.
	Again *AskedAgain `json:"again,omitempty"`
}

// AskedAgain is the reason why a call that an approver has edited needs another approval.
type AskedAgain struct {
	Reason AgainReason `json:"reason"`

	// EditedBy is the principal that supplied the current arguments, or empty if it is unknown.
	EditedBy string `json:"edited_by,omitempty"`

	// OriginalArguments are the arguments from the model.
	OriginalArguments json.RawMessage `json:"original_arguments"`
}

// AgainReason is the reason why an edited call needs another approval.
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

	// Arguments that the tool will receive: an approval or a hook may have edited them.
	Arguments string `json:"arguments"`
	Edited    bool   `json:"edited,omitempty"`

	// Needs is the external input that the call requires. If it is empty, the worker may run the call once
	// State.NeedsDetermined is true.
	Needs Need `json:"needs,omitempty"`

	// Recheck reports whether the approver has edited the call: the loop then checks schema, hooks
	// and approval rules again before the call may run.
	Recheck bool `json:"recheck,omitempty"`

	// SecondApprover reports whether an approver has edited the call in a tenant with four eyes:
	// another person must approve the edited call.
	SecondApprover bool `json:"second_approver,omitempty"`

	// Again is the reason why the call needs another approval, or empty.
	Again AgainReason `json:"again,omitempty"`

	// Question for a person, if the call asks one.
	Question string `json:"question,omitempty"`

	// AskState is the data that a tool needs to resume a call that asked a person a question.
	// Answer is that person's answer, or nil before it arrives.
	AskState json.RawMessage `json:"asked,omitempty"`
	Answer   *string         `json:"answer,omitempty"`

	// Child is the run that answers a delegating call.
	Child RunID `json:"child,omitempty"`

	// Until is the time at which the run stops waiting for the result of an asynchronous call that
	// may never have reached its tool.
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

// Limits bound a run. A zero field means no limit, except that every run has a MaxTurns (A4).
type Limits struct {
	MaxTurns     int      `json:"max_turns,omitempty"`
	OutputTokens int64    `json:"output_tokens,omitempty"`
	TotalTokens  int64    `json:"total_tokens,omitempty"`
	CostUSD      MicroUSD `json:"cost_usd,omitempty"`

	// DeadlineAt is the time at which the run ends, whatever its state.
	DeadlineAt Time `json:"deadline_at,omitzero"`

	// WaitMS bounds each wait for a person or a result, in milliseconds; 0 means no limit. It does not bound waits for
	// child runs and for times.
	WaitMS int64 `json:"wait_ms,omitempty"`

	// Runs bounds the descendants of the run, at all depths. 0 means DefaultTreeRuns. It has no
	// effect on a child run: the limit of its root applies.
	Runs int `json:"runs,omitempty"`

	// WarnAt is the fraction of a limit at which the run gets a warning; 0 means 0.8.
	WarnAt float64 `json:"warn_at,omitempty"`
}

// DefaultTreeRuns is the maximum number of descendants of a run that sets no limit.
const DefaultTreeRuns = 1000

// As returns s as readers see it while its scheduler status is status: a run that was woken or
// claimed since its last transition is neither waiting nor finished.
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

// Idle returns the total time, up to now, that the run has spent ended before it was continued. A
// run that was woken after its end counts as idle until its next transition.
func (s *State) Idle(now time.Time) time.Duration {
	idle := time.Duration(s.IdleMS) * time.Millisecond
	if !s.Status.Terminal() && s.Transition.Reason.Terminal() {
		idle += max(0, now.Sub(s.Transition.At.Time))
	}
	return idle
}

// CurrentTurn returns the number of the turn that the next attempt executes: that of the last response
// until the loop has processed the response and its calls, or while the next response belongs to the
// same turn (ContinueTurn); otherwise one more.
func (s *State) CurrentTurn() int {
	if len(s.Open) > 0 || s.ResponsePending || s.ContinueTurn {
		return s.Turn
	}
	return s.Turn + 1
}

// LogLen returns the number of entries in the log that s carries, those before its checkpoint included.
func (s *State) LogLen() int64 { return LogLen(s.Log) }

// LogLen returns the number of entries in a log, those before its checkpoint included.
func LogLen(log []Entry) int64 {
	if len(log) == 0 {
		return 0
	}
	return max(log[len(log)-1].Seq, int64(len(log)))
}

// Append returns s with e as the next entry of its log, under the next number (Entry.Seq), and with e
// folded into the header. The header is the same whether a worker folds a model response when it
// arrives, or from the journal after a crash (I3, F4). After an EntryCheckpoint the log that s carries
// begins with e.
//
// States that share a log may be appended to in any order, but not concurrently.
func (s State) Append(e Entry) State {
	s.Extend(&e)
	return s
}

// Extend is Append in place, without a copy of the state and the entry. The caller must be the only reader of s.
// It sets e.Seq.
func (s *State) Extend(e *Entry) {
	e.Seq = s.LogLen() + 1
	s.LogBytes += e.Weight()
	s.Trouble.add(e)
	s.Trouble.Recovered += lostAttempts(s.Log, e)
	switch e.Type {
	case EntryModel:
		s.Turn = e.Turn
		s.ContinueTurn, s.ResponsePending = false, true
		s.Failures, s.Reservation = 0, nil
		s.ModelRequests += 1 + e.FailedCalls
		if e.Usage != nil {
			s.Usage.add(e.Usage)
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
			s.Usage.add(e.Usage)
		}
	case EntryTombstoned, EntryTransition:
		if e.wasted() {
			s.Usage.add(e.Usage)
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
	case EntryHandoff:
		if e.Handoff != nil {
			s.Active = e.Handoff.To
		}
	case EntryCheckpoint:
		s.Checkpoint, s.LogBytes = e.Seq, e.Weight()
		s.Log = make([]Entry, 1, spareEntries) // the entries before are not needed any more
		s.Log[0] = *e
		return
	default:
	}
	// The first state that is appended to uses the capacity behind the log; any other state with
	// the same prefix copies the log.
	if n := len(s.Log); n == cap(s.Log) || s.Log[:n+1][n].Seq != 0 {
		s.Log = slices.Clip(s.Log)
	}
	s.Log = append(s.Log, Entry{})
	s.Log[len(s.Log)-1] = *e
}

// spareEntries is the capacity of a log that begins with a checkpoint, so that a turn rarely copies it.
const spareEntries = 8

// Move returns s after the transition r: one version later, with the entry that records the transition
// in the log. e carries its details, and the time At; Move sets the type, reason, version, status and
// turn of e. The error is a *TransitionError if r is not possible from the status of s.
func (s State) Move(r Reason, e Entry) (State, error) {
	if err := s.Advance(r, &e); err != nil {
		return State{}, err
	}
	return s, nil
}

// Advance is Move in place, without a copy of the state and the entry. The caller must be the only reader of s.
// An error leaves s unchanged.
func (s *State) Advance(r Reason, e *Entry) error {
	to, err := legal(s.Status, r)
	if err != nil {
		return err
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
		leaveLane(s)
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
			start(s)
		}
	}
	if !to.Terminal() {
		s.Output, s.StructuredOutput, s.Error, s.FinishedAt = nil, nil, nil, Time{}
	}
	s.Transition = Transition{Reason: r, Detail: e.Detail, Turn: s.Turn, Version: s.Version, At: e.At}
	s.Extend(e)
	return nil
}

// Due returns the time at which a waiting run must be woken unless a signal wakes it earlier: the
// end of its delay, its wait or its deadline, whichever is first. The delay of a run that is pending
// in its batch does not count. Zero means never; it is zero for a run that does not wait.
func (s *State) Due() time.Time {
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

// Awaits returns the names of the waits of s: one for each open call that needs external input,
// AwaitAnswer for a question without a call, AwaitStart for a run that is pending in its batch, and
// AwaitReplay for a run that failed with a Poison. Other ended runs have none. A run that continues
// because some of its calls were decided still has the waits of the others.
func (s *State) Awaits() []string {
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

// AwaitAnswer is the name of the wait for an answer to a question, AwaitStart that of a run that is
// pending in its batch.
const (
	AwaitAnswer = "answer"
	AwaitStart  = "start"
)

// AwaitsRun reports whether name is that of a wait for another run: a child, or an earlier run of
// its batch.
func AwaitsRun(name string) bool {
	return name == AwaitStart || strings.HasPrefix(name, string(NeedChild)+":")
}

// AwaitCall returns the name of the wait of one open call. All calls that need an answer share AwaitAnswer,
// and NeedAsync has the name of NeedResult.
func AwaitCall(need Need, callID string) string {
	if need == NeedAnswer {
		return AwaitAnswer
	}
	if need == NeedAsync {
		need = NeedResult
	}
	return string(need) + ":" + callID
}
