package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// SubmitRequest is the body of a submission, over HTTP or NATS.
type SubmitRequest struct {
	Agent        string            `json:"agent,omitempty"`
	Input        json.RawMessage   `json:"input"` // a text, a list of messages, or a transcript that Export has returned
	Limits       *SubmitLimits     `json:"limits,omitempty"`
	Priority     string            `json:"priority,omitempty"`
	StartAt      *state.Time       `json:"start_at,omitempty"`
	OutputSchema json.RawMessage   `json:"output_schema,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Webhook      *state.Webhook    `json:"webhook,omitempty"`
	Stream       string            `json:"stream,omitempty"` // turns (default), or deltas: also pieces of responses

	// Variables is a JSON object with the values of the agent's variables, at most 64 KiB.
	Variables json.RawMessage `json:"variables,omitempty"`

	// AgentVersion is the version of the agent that the run uses. Default: the latest.
	AgentVersion int `json:"agent_version,omitempty"`

	// Delay is the time after the submission, by the clock of the store, before which the run does not start. It
	// excludes StartAt.
	Delay model.Duration `json:"delay,omitempty"`

	// Confidence is the initial confidence of a reflect loop, from 0 to 1 (L9).
	Confidence *float64 `json:"confidence,omitempty"`
}

// ForkRequest requests a new run that shares the history of another run through a turn. The other fields replace
// those of that run. The new run has its own limits and usage.
type ForkRequest struct {
	Turn *int `json:"turn"`

	// Input, a text or messages, follows the history.
	Input json.RawMessage `json:"input,omitempty"`

	// AgentVersion is another version of the run's agent. Default: the version that the run uses.
	AgentVersion *int `json:"agent_version,omitempty"`

	// Instructions replace those of the definition, for the new run only. If they differ, it becomes a run of a draft.
	// Even if they do not differ, they need the role author, and a tenant that requires review refuses them.
	Instructions *string `json:"instructions,omitempty"`

	// Variables are values of the agent's variables in place of those of the run.
	Variables json.RawMessage `json:"variables,omitempty"`

	// Messages are messages of the history with other parts, at most 2,000.
	Messages []ForkMessage `json:"messages,omitempty"`

	// ToolResults replace results of calls in the history, at most 2,000. They count as a person's text, not as the
	// tool's.
	ToolResults []ForkResult `json:"tool_results,omitempty"`
}

// ForkMessage gives the message with this id other parts, in the form that submissions use.
type ForkMessage struct {
	ID    string            `json:"id"`
	Parts []json.RawMessage `json:"parts"`
}

// ForkResult replaces the result of a call, like [ToolResult]. Turn is required if several calls have the id: models
// reuse ids.
type ForkResult struct {
	CallID  string          `json:"call_id"`
	Turn    *int            `json:"turn,omitempty"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error,omitempty"`
	Images  []state.Image   `json:"images,omitempty"`
	Files   []state.Part    `json:"files,omitempty"` // of type file
}

// SubmitLimits tighten the limits of the agent for one run. 0 means the limit of the agent.
type SubmitLimits struct {
	MaxTurns     int            `json:"max_turns,omitempty"`
	OutputTokens int64          `json:"output_tokens,omitempty"`
	TotalTokens  int64          `json:"total_tokens,omitempty"`
	CostUSD      state.MicroUSD `json:"cost_usd,omitempty"`
	Deadline     *Deadline      `json:"deadline,omitempty"`
	Wait         model.Duration `json:"wait,omitempty"`
	Runs         int            `json:"runs,omitempty"`
}

// Deadline is a duration from the submission ("10m") or an instant (RFC 3339).
type Deadline struct {
	In time.Duration
	At state.Time
}

// MarshalJSON encodes At if it is set, else In.
func (d Deadline) MarshalJSON() ([]byte, error) {
	if !d.At.IsZero() {
		return d.At.MarshalJSON()
	}
	return model.Duration(d.In).MarshalJSON()
}

// UnmarshalJSON decodes a duration, or a time in RFC 3339.
func (d *Deadline) UnmarshalJSON(b []byte) error {
	var in model.Duration
	if in.UnmarshalJSON(b) == nil {
		d.In = time.Duration(in)
		return nil
	}
	if err := d.At.UnmarshalJSON(b); err != nil {
		return fmt.Errorf("deadline %s is not valid: write a duration such as \"10m\" or a time such as \"2026-11-20T15:04:05Z\"", b)
	}
	return nil
}

// SignalRequest is a signal to a run. It has exactly one of Approvals, ToolResults, Answer and Message.
type SignalRequest struct {
	SignalID    string          `json:"signal_id,omitempty"`
	Approvals   []Approval      `json:"approvals,omitempty"`
	ToolResults []ToolResult    `json:"tool_results,omitempty"`
	Answer      *string         `json:"answer,omitempty"`
	Message     json.RawMessage `json:"message,omitempty"` // a text, or a message of role user

	// Mode is the effect of Message on a run that is busy: ModeEnqueue, ModeInterrupt, ModeRollback or ModeReject.
	// Empty means ModeEnqueue.
	Mode string `json:"mode,omitempty"`
}

// The modes of a message.
const (
	ModeEnqueue   = "enqueue"   // the run reads the message at its next turn
	ModeInterrupt = "interrupt" // the turn in flight is aborted, and the run continues with the message
	ModeRollback  = "rollback"  // as ModeInterrupt, and withdraws that turn; CodeEffectsStarted if a call may have started
	ModeReject    = "reject"    // the gateway refuses the message while the run is queued or running: CodeRunBusy
)

// Approval decides about one call. Decision is approve or deny. Arguments, for approve only, replace those of the call.
type Approval struct {
	CallID    string          `json:"call_id"`
	Decision  string          `json:"decision"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Reason    string          `json:"reason,omitempty"`

	// Hash, if not empty, identifies the call that the approver saw: the gateway refuses the decision with
	// CodeStaleApproval if another call now waits under the same id. It is required if the run has already decided a
	// call with this id.
	Hash string `json:"hash,omitempty"`
}

// ToolResult is the result of a call that a worker does not execute. Content is a text, or other JSON, which the run
// keeps as text.
type ToolResult struct {
	CallID  string          `json:"call_id"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error,omitempty"`
	Images  []state.Image   `json:"images,omitempty"`
	Files   []state.Part    `json:"files,omitempty"` // of type file
}

// CancelRequest is the body of a cancellation.
type CancelRequest struct {
	Reason string `json:"reason,omitempty"`
}

// PlainText returns the text of a JSON string, and any other JSON unchanged. It is the inverse of [Text].
func PlainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
