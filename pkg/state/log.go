package state

import "encoding/json"

// EntryType names what an entry of the log records. The names are those of the
// event stream: an entry is a committed event, and its position in the log is
// the event's number (I9).
type EntryType string

// The entry types.
const (
	EntrySubmitted  EntryType = "run.submitted"
	EntryModel      EntryType = "model.message"
	EntryTombstoned EntryType = "message.tombstoned"
	EntryCompacted  EntryType = "message.compacted"
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
)

// Types of live events: they belong to an attempt and have no number.
const (
	LiveTurnStarted  EntryType = "turn.started"
	LiveToolStarted  EntryType = "tool.started"
	LiveToolProgress EntryType = "tool.progress"
	LiveModelDelta   EntryType = "model.delta"
)

// By says who caused an entry: a person or a service, in which tenant, and how it was
// found out (none, key, oidc, nats).
type By struct {
	Principal string `json:"principal"`
	Tenant    string `json:"tenant"`
	Via       string `json:"via"`
}

// OnBus is whoever speaks for a tenant on the bus, where the server has let them.
func OnBus(tenant string) *By {
	return &By{Principal: "nats:" + tenant, Tenant: tenant, Via: "nats"}
}

// Entry is one record of a run's append-only log. Which fields are set follows
// from Type.
type Entry struct {
	Seq     int64     `json:"seq"`
	Type    EntryType `json:"type"`
	Turn    int       `json:"turn"`
	Attempt int       `json:"attempt,omitempty"`
	At      Time      `json:"at"`

	// Reason, Detail, Version, Status, Worker and DurationMS describe a
	// transition: run.submitted, transition, run.waiting, run.finished.
	Reason     Reason `json:"reason,omitempty"`
	Detail     string `json:"detail,omitempty"`
	Version    int64  `json:"version,omitempty"`
	Status     Status `json:"status,omitempty"`
	Worker     string `json:"worker,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`

	// By is who caused the entry, if somebody did: run.submitted, and what signals and
	// cancellations led to. Of several signals it is that of the first.
	By *By `json:"by,omitempty"`

	// Requesters lists, each once, the principals other than By who requested something: in
	// the run that was forked or its ancestors, in a child run that has ended, or in further
	// signals of the same entry.
	Requesters []string `json:"asked,omitempty"`

	// Messages that a transition added to the history: the submission's input, a
	// user's message, a continuation prompt.
	Messages []Message `json:"messages,omitempty"`

	// Message of model.message, tool.finished and tool.reused, and of
	// message.tombstoned the response that broke off.
	Message *Message `json:"message,omitempty"`

	// StopReason and Usage of model.message, and how many calls failed before the
	// one that it answers. Usage of message.tombstoned is what the response that broke off
	// has cost, and of a transition with the reason Recovered what model calls of earlier
	// attempts have cost that nobody noted.
	StopReason  string `json:"stop_reason,omitempty"`
	Usage       *Usage `json:"usage,omitempty"`
	FailedCalls int    `json:"failed_calls,omitempty"`

	// CallID, Name and IsError of tool.finished and tool.reused; CallID and Name of
	// approval.decided.
	CallID  string `json:"call_id,omitempty"`
	Name    string `json:"name,omitempty"`
	IsError bool   `json:"is_error,omitempty"`

	// Arguments with which the tool was called, if they are not those of the
	// response: a person or a hook has edited them.
	Arguments string `json:"arguments,omitempty"`

	// Approval of approval.decided. By and At are who decided, and when.
	Approval *Decided `json:"approval,omitempty"`

	// MessageIDs that message.tombstoned withdraws, or that message.compacted
	// replaces with Messages: they stand side by side in the view.
	MessageIDs []string `json:"message_ids,omitempty"`

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

	// Limit that budget.warning or budget.exceeded is about, and the fraction
	// of it that is used.
	Limit        string  `json:"limit,omitempty"`
	UsedFraction float64 `json:"used_fraction,omitempty"`

	// Confidence, Assessment and Guidance of reflect. ConfidenceDelta is what the
	// assessment stands for, before it is scaled.
	Confidence      *float64 `json:"confidence,omitempty"`
	ConfidenceDelta float64  `json:"confidence_delta,omitempty"`
	Assessment      string   `json:"assessment,omitempty"`
	Guidance        string   `json:"guidance,omitempty"`
}

// transition reports whether e is one of the entries that record a checkpoint.
func (e Entry) transition() bool {
	switch e.Type {
	case EntrySubmitted, EntryTransition, EntryWaiting, EntryFinished:
		return e.Reason != Recovered
	default:
		return false
	}
}

// wasted reports whether e tells what model calls have cost that came to nothing.
func (e Entry) wasted() bool {
	return e.Usage != nil && (e.Type == EntryTombstoned || e.Reason == Recovered)
}

// made reports whether e is the result of a call that was made.
func (e Entry) made() bool {
	return e.Type == EntryTool && (e.Message == nil || !e.Message.Synthetic)
}

// View returns what the model sees of a log: no tombstoned message, the
// replacement of those that were compacted, and every tool result directly behind
// the message that asked for it, in the order of the calls, wherever in the log it
// stands (A14, I5).
func View(log []Entry) []Message {
	return view(log, false)
}

// FullView returns everything that was ever said, with tombstoned and compacted
// messages marked.
func FullView(log []Entry) []Message {
	return view(log, true)
}

// hidden says which entry of the log took a message out of the view.
type hidden map[string]*Entry

func view(log []Entry, full bool) []Message {
	gone := hidden{}
	n := 0
	for i := range log {
		e := &log[i]
		for _, id := range e.MessageIDs {
			gone[id] = e
		}
		if e.Message != nil {
			n++
		}
		n += len(e.Messages)
	}
	out := make([]Message, 0, n)
	shown := map[int64]bool{} // compactions whose replacement is in out
	var add func(m Message)
	add = func(m Message) {
		by := gone[m.ID]
		if by == nil {
			out = append(out, m)
			return
		}
		if full {
			m.Tombstoned, m.Compacted = by.Type == EntryTombstoned, by.Type == EntryCompacted
			out = append(out, m)
		}
		if by.Type == EntryCompacted && !shown[by.Seq] && !full {
			shown[by.Seq] = true
			for _, r := range by.Messages {
				add(r)
			}
		}
	}
	for i := range log {
		e := &log[i]
		if e.Type != EntryCompacted || full {
			for _, m := range e.Messages {
				add(m)
			}
		}
		if e.Type == EntryTombstoned && e.Message != nil && full {
			add(*e.Message)
		}
		if e.Type != EntryModel || e.Message == nil {
			continue
		}
		add(*e.Message)
		if by := gone[e.Message.ID]; by != nil && by.Type == EntryTombstoned && !full {
			continue
		}
		// Providers repeat call ids over the turns of a run, so a result belongs to
		// the last response before it.
		for p := range e.Message.Parts {
			if c := &e.Message.Parts[p]; c.Type == PartToolCall {
				addResults(log[i+1:], c.ID, add)
			}
		}
	}
	return out
}

// addResults adds the results of a call before the next model response: of several,
// all but the last were withdrawn.
func addResults(log []Entry, call string, add func(Message)) {
	for i := range log {
		e := &log[i]
		switch {
		case e.Type == EntryModel:
			return
		case e.CallID == call && e.Message != nil && e.Message.Role == RoleTool:
			add(*e.Message)
		}
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

// Audit folds a log into its audit trail, one row a transition.
func Audit(log []Entry) []AuditRow {
	var rows []AuditRow
	row := AuditRow{ToolCalls: []AuditCall{}}
	for _, e := range log {
		switch {
		case e.Usage != nil && (e.Type == EntryModel || e.Type == EntryCompacted || e.wasted()):
			row.Usage = row.Usage.Add(*e.Usage)
		case e.Type == EntryTool || e.Type == EntryReused:
			if e.made() {
				row.Usage.ToolCalls++
			}
			row.ToolCalls = append(row.ToolCalls, AuditCall{
				ID: e.CallID, Name: e.Name, IsError: e.IsError, Reused: e.Type == EntryReused, DurationMS: e.DurationMS,
			})
		case e.transition():
			row.Version, row.Turn, row.Reason, row.Detail, row.Status = e.Version, e.Turn, e.Reason, e.Detail, e.Status
			row.At, row.DurationMS, row.Attempt, row.Worker = e.At, e.DurationMS, e.Attempt, e.Worker
			if e.Usage != nil {
				row.Usage = row.Usage.Add(*e.Usage)
			}
			rows = append(rows, row)
			row = AuditRow{ToolCalls: []AuditCall{}}
		}
	}
	return rows
}
