// Package hook is the contract with those who watch over runs: a hook is asked at
// fixed points of a turn, and may object.
package hook

import (
	"context"
	"encoding/json"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Point is a place in a turn at which hooks are asked.
type Point string

// The points.
const (
	PreTool      Point = "pre_tool"      // before a tool call
	PostSampling Point = "post_sampling" // after a response, beside the turn
	Stop         Point = "stop"          // when an answer would end the run
	StopFailure  Point = "stop_failure"  // when a failed model call has ended it
)

// Call is a tool call in question.
type Call struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
}

// Request is what a hook is asked.
type Request struct {
	Point    Point             `json:"point"`
	Run      state.RunID       `json:"run_id"`
	Agent    string            `json:"agent"`
	Turn     int               `json:"turn"`
	Tenant   string            `json:"tenant"`
	Metadata map[string]string `json:"metadata"`

	// Call of pre_tool; Calls of the response of post_sampling.
	Call  *Call  `json:"call,omitempty"`
	Calls []Call `json:"calls,omitempty"`

	// Output is the text of the response, of post_sampling and stop; Error is why
	// the run failed, of stop_failure.
	Output string       `json:"output,omitempty"`
	Error  *state.Error `json:"error,omitempty"`
}

// Answer is what a hook says. The zero value is no objection.
type Answer struct {
	// Of pre_tool: the call is not made, and Deny tells the model why; a person
	// must approve it; or it is made with other arguments, a JSON object.
	Deny      *string
	Approval  bool
	Arguments json.RawMessage

	// Of stop: the run goes on, and Block tells the model why; or it ends
	// (stop_hook_prevented), and Prevent says why. Block counts first.
	Block   *string
	Prevent *string

	// Notes of post_sampling are system messages for the next model call.
	Notes []string
}

// Hook is asked. It may be called from any goroutine and honours ctx.
type Hook interface {
	Call(ctx context.Context, r Request) (Answer, error)
}
