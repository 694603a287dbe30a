package state

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
)

// EntryType names what an entry of the log records. The names are those of the event stream: an
// entry is a committed event, and its position in the log is the event's number (I9).
type EntryType string

// The entry types.
const (
	EntrySubmitted  EntryType = "run.submitted"
	EntryModel      EntryType = "model.message"
	EntryTombstoned EntryType = "message.tombstoned"
	EntryCompacted  EntryType = "message.compacted"
	EntryChecked    EntryType = "message.checked"
	EntryHandoff    EntryType = "agent.handoff"
	EntryTool       EntryType = "tool.finished"
	EntryReused     EntryType = "tool.reused"
	EntryProgress   EntryType = "progress"
	EntryReflect    EntryType = "reflect"
	EntryDecided    EntryType = "approval.decided"
	EntryWarning    EntryType = "budget.warning"
	EntryExceeded   EntryType = "budget.exceeded"
	EntryTransition EntryType = "transition"
	EntryWaiting    EntryType = "run.waiting"
	EntryFinished   EntryType = "run.finished"

	// EntryCheckpoint stands for the entries before it, for readers that need only the state of the run.
	EntryCheckpoint EntryType = "history.checkpoint"
)

// Types of live events, which belong to an attempt and have no number.
const (
	LiveTurnStarted  EntryType = "turn.started"
	LiveToolStarted  EntryType = "tool.started"
	LiveToolProgress EntryType = "tool.progress"
	LiveModelDelta   EntryType = "model.delta"
)

// By identifies who caused an entry: the name of a person or a service, the tenant, and the means of
// authentication: none, key, oidc, token, go, hook, schedule, trigger or nats.
type By struct {
	Principal string `json:"principal"`
	Tenant    string `json:"tenant"`
	Via       string `json:"via"`
}

// OnBus returns the By of a bus client that the server has authenticated for a tenant.
func OnBus(tenant string) *By {
	return &By{Principal: "nats:" + tenant, Tenant: tenant, Via: "nats"}
}

// Entry is one record of a run's append-only log. Type determines which fields are set.
type Entry struct {
	Seq     int64     `json:"seq"`
	Type    EntryType `json:"type"`
	Turn    int       `json:"turn"`
	Attempt int       `json:"attempt,omitempty"`
	At      Time      `json:"at"`

	// Reason, Detail, Version, Status, Worker and DurationMS describe a transition: run.submitted,
	// transition, run.waiting, run.finished. Detail of message.checked is the decision of the
	// input hooks; that of message.compacted and message.tombstoned is the cause, or empty.
	// DurationMS of model.message, tool.finished and tool.reused is the time that the call took.
	Reason     Reason `json:"reason,omitempty"`
	Detail     string `json:"detail,omitempty"`
	Version    int64  `json:"version,omitempty"`
	Status     Status `json:"status,omitempty"`
	Worker     string `json:"worker,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`

	// By is the principal that caused the entry, if one did: on run.submitted, and on entries caused by signals
	// or cancellations. If several signals caused it, By is that of the first.
	By *By `json:"by,omitempty"`

	// Requesters lists, each once, principals who requested something: in the run that was forked or
	// its ancestors, in a child run that has ended, in signals of the entry, or by storing the
	// schedule, the hook or the trigger that is By. By itself may be among them.
	Requesters []string `json:"asked,omitempty"`

	// Messages that a transition added to the history: the submission's input, a
	// user's message, a continuation prompt.
	Messages []Message `json:"messages,omitempty"`

	// Message of model.message, tool.finished and tool.reused; on message.tombstoned, the response
	// that broke off.
	Message *Message `json:"message,omitempty"`

	// StopReason and Usage of model.message, and FailedCalls, the number of calls that failed before the one that
	// succeeded. Usage of message.compacted is the cost of asking a model for a summary, nil if no model was called, and
	// Usage of message.tombstoned that of the response that broke off. Usage of a transition with the reason Recovered
	// is an estimate of earlier attempts' model calls that no entry records.
	StopReason  string `json:"stop_reason,omitempty"`
	Usage       *Usage `json:"usage,omitempty"`
	FailedCalls int    `json:"failed_calls,omitempty"`

	// Cache of model.message is the lifetime that the call asked the provider's prompt cache for, 5m or
	// 1h. It is empty if it asked for none.
	Cache string `json:"cache,omitempty"`

	// CallID, Name and IsError of tool.finished and tool.reused; CallID and Name of
	// approval.decided.
	CallID  string `json:"call_id,omitempty"`
	Name    string `json:"name,omitempty"`
	IsError bool   `json:"is_error,omitempty"`

	// Arguments of the call, if a person or a hook has edited those of the response.
	Arguments string `json:"arguments,omitempty"`

	// Approval of approval.decided. By and At identify who decided, and the time.
	Approval *Decided `json:"approval,omitempty"`

	// MessageIDs that message.tombstoned withdraws, or message.checked because an
	// input hook refused them. With Messages, on message.compacted, message.checked
	// and agent.handoff, those that Messages replaces; they are adjacent in the view.
	MessageIDs []string `json:"message_ids,omitempty"`

	// Handoff of agent.handoff.
	Handoff *Handoff `json:"handoff,omitempty"`

	// ForkedFrom of run.submitted with the reason Forked.
	ForkedFrom *ForkSource `json:"forked_from,omitempty"`

	// Waiting of run.waiting.
	Waiting *Wait `json:"waiting,omitempty"`

	// Output, StructuredOutput and Error of run.finished.
	Output           *string         `json:"output,omitempty"`
	StructuredOutput json.RawMessage `json:"structured_output,omitempty"`
	Error            *Error          `json:"error,omitempty"`

	// Step, Action and Target of progress.
	Step   int    `json:"step,omitempty"`
	Action string `json:"action,omitempty"`
	Target string `json:"target,omitempty"`

	// Limit that budget.warning or budget.exceeded reports, and the fraction of it in use.
	Limit        string  `json:"limit,omitempty"`
	UsedFraction float64 `json:"used_fraction,omitempty"`

	// Confidence, Assessment and Guidance of reflect. ConfidenceDelta is the delta of the
	// assessment before scaling.
	Confidence      *float64 `json:"confidence,omitempty"`
	ConfidenceDelta float64  `json:"confidence_delta,omitempty"`
	Assessment      string   `json:"assessment,omitempty"`
	Guidance        string   `json:"guidance,omitempty"`

	// Checkpoint of history.checkpoint. Events do not have it.
	Checkpoint *Checkpoint `json:"-"`
}

// transition reports whether e records the move that a submission or a commit made. A Recovered entry is not a move.
func (e Entry) transition() bool {
	switch e.Type {
	case EntrySubmitted, EntryTransition, EntryWaiting, EntryFinished:
		return e.Reason != Recovered
	default:
		return false
	}
}

// wasted reports whether e records the cost of failed model calls.
func (e Entry) wasted() bool {
	return e.Usage != nil && (e.Type == EntryTombstoned || e.Reason == Recovered)
}

// made reports whether e is the result of a call that was made.
func (e Entry) made() bool {
	return e.Type == EntryTool && (e.Message == nil || !e.Message.Synthetic)
}

// replaces reports whether the messages of e stand for others.
func (e *Entry) replaces() bool {
	switch e.Type {
	case EntryCompacted, EntryChecked:
		return true
	case EntryHandoff: // of an agent without instructions to one with instructions, which stand alone
		return len(e.MessageIDs) > 0
	default:
		return false
	}
}

// AuditRow is one row of the audit trail: one transition and what led to it.
type AuditRow struct {
	Version    int64       `json:"version"`
	Turn       int         `json:"turn"`
	Reason     Reason      `json:"reason"`
	Detail     string      `json:"detail"`
	Status     Status      `json:"status"`
	At         Time        `json:"at"`
	DurationMS int64       `json:"duration_ms"`
	Attempt    int         `json:"attempt"`
	Worker     string      `json:"worker"`
	Usage      Usage       `json:"usage"`
	ToolCalls  []AuditCall `json:"tool_calls"`
}

// AuditCall is one tool call of a turn.
type AuditCall struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	IsError    bool   `json:"is_error"`
	Reused     bool   `json:"reused"`
	DurationMS int64  `json:"duration_ms"`
}

// Audit folds a log into its audit trail, one row per transition. Entries after the last transition, those
// of the turn in flight, are not in it.
func Audit(log []Entry) []AuditRow { return slices.Collect(AuditRows(slices.Values(log))) }

// AuditRows is Audit for a log that a caller reads piece by piece: it keeps no entry in memory.
func AuditRows(log iter.Seq[Entry]) iter.Seq[AuditRow] {
	return func(yield func(AuditRow) bool) {
		row := AuditRow{ToolCalls: []AuditCall{}}
		for e := range log {
			switch {
			case e.Usage != nil && (e.Type == EntryModel || e.Type == EntryCompacted || e.wasted()):
				row.Usage = row.Usage.Add(*e.Usage)
			case e.Type == EntryTool || e.Type == EntryReused:
				if e.made() {
					row.Usage.ToolCalls++
				}
				row.ToolCalls = append(row.ToolCalls, AuditCall{
					ID: strings.Clone(e.CallID), Name: strings.Clone(e.Name), IsError: e.IsError, Reused: e.Type == EntryReused, DurationMS: e.DurationMS,
				})
			case e.transition():
				row.Version, row.Turn, row.Reason, row.Detail, row.Status = e.Version, e.Turn, e.Reason, e.Detail, e.Status
				row.At, row.DurationMS, row.Attempt, row.Worker = e.At, e.DurationMS, e.Attempt, e.Worker
				if e.Usage != nil {
					row.Usage = row.Usage.Add(*e.Usage)
				}
				if !yield(row) {
					return
				}
				row = AuditRow{ToolCalls: []AuditCall{}}
			}
		}
	}
}
