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
	Input        json.RawMessage   `json:"input"` // text, or a list of messages
	Limits       *SubmitLimits     `json:"limits,omitempty"`
	Priority     string            `json:"priority,omitempty"`
	StartAt      *state.Time       `json:"start_at,omitempty"`
	OutputSchema json.RawMessage   `json:"output_schema,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Webhook      *state.Webhook    `json:"webhook,omitempty"`
	Stream       string            `json:"stream,omitempty"` // turns (the default) or deltas

	// Variables is a JSON object with the values of the agent's variables, at most 64 KiB.
	Variables json.RawMessage `json:"variables,omitempty"`

	// AgentVersion is the version of the agent that the run uses. Default: the latest.
	AgentVersion int `json:"agent_version,omitempty"`

	// Delay is the time from the submission, by the clock of the store, before which the run does
	// not start. It excludes StartAt.
	Delay model.Duration `json:"delay,omitempty"`

	// Confidence at the start of a reflect loop (L9).
	Confidence *float64 `json:"confidence,omitempty"`
}

// ForkRequest requests a new run that shares the history of another up to the end of a turn. The
// other fields replace those of that run.
type ForkRequest struct {
	Turn *int `json:"turn"`

	// Input, text or messages, follows the history.
	Input json.RawMessage `json:"input,omitempty"`

	// AgentVersion is another version of the run's agent. Default: the one that the run has.
	AgentVersion *int `json:"agent_version,omitempty"`

	// Instructions in the place of those of the definition, for this run alone, which is one of
	// a draft then. They need the role author, and are refused where a tenant wants review.
	Instructions *string `json:"instructions,omitempty"`

	// Variables are the values of the agent's variables, instead of those of the run.
	Variables json.RawMessage `json:"variables,omitempty"`

	// Messages of the history that say something else.
	Messages []ForkMessage `json:"messages,omitempty"`

	// ToolResults in the place of those that calls of the history have. They count as the words
	// of a person, not as those of the tool.
	ToolResults []ForkResult `json:"tool_results,omitempty"`
}

// ForkMessage gives a message of the history other parts. Parts are those of messages that are
// submitted.
type ForkMessage struct {
	ID    string            `json:"id"`
	Parts []json.RawMessage `json:"parts"`
}

// ForkResult replaces the result of a call, like [ToolResult]. Turn selects the call if several
// have the id: models reuse ids.
type ForkResult struct {
	CallID  string          `json:"call_id"`
	Turn    *int            `json:"turn,omitempty"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error,omitempty"`
	Images  []state.Image   `json:"images,omitempty"`
	Files   []state.Part    `json:"files,omitempty"` // of type file
}

// SubmitLimits tighten the limits of the agent for one run.
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

// MarshalJSON encodes d as it was given.
func (d Deadline) MarshalJSON() ([]byte, error) {
	if !d.At.IsZero() {
		return d.At.MarshalJSON()
	}
	return model.Duration(d.In).MarshalJSON()
}

// UnmarshalJSON reads either form.
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

// SignalRequest is a message to a run: exactly one of its kinds.
type SignalRequest struct {
	SignalID    string          `json:"signal_id,omitempty"`
	Approvals   []Approval      `json:"approvals,omitempty"`
	ToolResults []ToolResult    `json:"tool_results,omitempty"`
	Answer      *string         `json:"answer,omitempty"`
	Message     json.RawMessage `json:"message,omitempty"` // text, or a message

	// Mode says what Message does to a run that is busy: ModeEnqueue, ModeInterrupt, ModeRollback or
	// ModeReject. Empty means ModeEnqueue.
	Mode string `json:"mode,omitempty"`
}

// The modes of a message.
const (
	ModeEnqueue   = "enqueue"   // the run reads the message at its next turn
	ModeInterrupt = "interrupt" // the turn in flight is aborted, and the run continues with the message
	ModeRollback  = "rollback"  // as ModeInterrupt, and the turn in flight is withdrawn; effects_started if a call has started
	ModeReject    = "reject"    // while the run is queued or running, the message is refused: run_busy
)

// Approval decides about one call.
type Approval struct {
	CallID    string          `json:"call_id"`
	Decision  string          `json:"decision"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Reason    string          `json:"reason,omitempty"`

	// Hash, if not empty, identifies the call that the approver saw, as the run has it: the gateway
	// refuses the decision if another call now waits under the same id.
	Hash string `json:"hash,omitempty"`
}

// ToolResult is the result of a call that the client made. Content is text, or
// any JSON, which is kept as its text.
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

// PlainText returns the text of a JSON string, and any other JSON as it stands. [Text] is its opposite.
func PlainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
