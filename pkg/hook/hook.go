package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Point is a place in a turn at which the worker calls hooks.
type Point string

// The points.
const (
	Input        Point = "input"         // before the first model call after a user message
	PreTool      Point = "pre_tool"      // before a tool call
	PostSampling Point = "post_sampling" // after a response, concurrently with the turn
	Stop         Point = "stop"          // before an answer ends the run
	StopFailure  Point = "stop_failure"  // after a failed model call has ended the run
)

// Call is the tool call that a hook decides about.
type Call struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`

	// ArgsFromUntrusted and UntrustedSeen are set by Request.Traced, for pre_tool.
	ArgsFromUntrusted bool `json:"args_from_untrusted,omitempty"`
	UntrustedSeen     bool `json:"untrusted_seen,omitempty"`
}

// Request is the input of a hook.
type Request struct {
	Point    Point             `json:"point"`
	Run      state.RunID       `json:"run_id"`
	Agent    string            `json:"agent"`
	Turn     int               `json:"turn"`
	Tenant   string            `json:"tenant"`
	Metadata map[string]string `json:"metadata"`

	// Input is the text of the user message, for input.
	Input string `json:"input,omitempty"`

	// Call is set for pre_tool. Calls are those of the response, for post_sampling.
	Call  *Call  `json:"call,omitempty"`
	Calls []Call `json:"calls,omitempty"`

	// Output is the text of the response, for post_sampling and stop. Error is the reason why the
	// run failed, for stop_failure.
	Output string       `json:"output,omitempty"`
	Error  *state.Error `json:"error,omitempty"`

	// Log is the history of the run, from its last checkpoint on, for pre_tool. The worker never sends it to another
	// process.
	Log []state.Entry `json:"-"`
}

// ArgsFromUntrusted reports whether a value of the call's arguments also occurs in the output of
// tools, the web or other agents in the run (package provenance).
func (r Request) ArgsFromUntrusted() bool {
	return r.Call != nil && provenance.FromUntrusted(r.Log, string(r.Call.Arguments))
}

// UntrustedSeen reports whether the run contains output of tools, the web or other agents.
func (r Request) UntrustedSeen() bool { return provenance.Seen(r.Log) }

// Traced returns a copy of r whose call has the results of ArgsFromUntrusted and UntrustedSeen, for hooks that receive
// r encoded.
func (r Request) Traced() Request {
	if r.Call != nil {
		call := *r.Call
		call.ArgsFromUntrusted, call.UntrustedSeen = r.ArgsFromUntrusted(), r.UntrustedSeen()
		r.Call = &call
	}
	return r
}

// Answer is the output of a hook. The zero value means no objection.
type Answer struct {
	// For input. Refuse ends the run (refused) with this output, and the model never reads the message. Replace is the
	// text that the model reads instead of the message. Refuse takes precedence.
	Refuse  *string `json:"refuse,omitempty"`
	Replace *string `json:"replace,omitempty"`

	// For pre_tool. Deny is the reason, for the model, why the call is not made. Approval makes a person approve the
	// call. Arguments, a JSON object, replace those of the call.
	Deny      *string         `json:"deny,omitempty"`
	Approval  bool            `json:"approval,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`

	// For stop. Block makes the run continue, and is the reason that the model reads. Prevent ends the run
	// (stop_hook_prevented) with this reason. Block takes precedence.
	Block   *string `json:"block,omitempty"`
	Prevent *string `json:"prevent,omitempty"`

	// Failed is set by the worker, never by a hook: the failure of an input or stop hook that counts as an objection.
	// The run ends input_hook_failed or stop_hook_failed with this reason.
	Failed *string `json:"-"`

	// Failures is set by the worker, never by a hook: the number of hooks that failed, whatever the effect on the run.
	Failures int `json:"-"`

	// Notes are system messages for the next model call, for post_sampling.
	Notes []string `json:"notes,omitempty"`
}

// Check returns an error if a has a field that hooks of point p may not use, or Arguments that are not a JSON object.
func (a Answer) Check(p Point) error {
	given := []struct {
		name  string
		set   bool
		point Point
	}{
		{"refuse", a.Refuse != nil, Input},
		{"replace", a.Replace != nil, Input},
		{"deny", a.Deny != nil, PreTool},
		{"approval", a.Approval, PreTool},
		{"arguments", len(a.Arguments) > 0, PreTool},
		{"block", a.Block != nil, Stop},
		{"prevent", a.Prevent != nil, Stop},
		{"notes", len(a.Notes) > 0, PostSampling},
	}
	for _, g := range given {
		if g.set && g.point != p {
			return fmt.Errorf("the answer of a hook at the point %s has the field %s, which is only for the point %s: correct the program of the hook", p, g.name, g.point)
		}
	}
	if _, ok := state.CompactObject(string(a.Arguments)); len(a.Arguments) > 0 && !ok {
		return errors.New("arguments in the hook's answer are not a JSON object: correct the program of the hook")
	}
	return nil
}

// Decode decodes the answer of a service at point p. It refuses unknown fields, a second document, and answers that
// Answer.Check refuses.
func Decode(data []byte, p Point) (Answer, error) {
	var a Answer
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return Answer{}, fmt.Errorf("the hook's answer cannot be read (%w): correct the program of the hook", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) { // More ignores a closing brace
		return Answer{}, errors.New("the hook's answer has more text after its JSON document: correct the program of the hook, so that it answers with a single document")
	}
	if string(a.Arguments) == "null" {
		a.Arguments = nil
	}
	return a, a.Check(p)
}

// Hook is a callback that a worker calls at points of a run. Call must be safe for concurrent use, and return when ctx
// ends.
type Hook interface {
	Call(ctx context.Context, r Request) (Answer, error)
}

// Func is a hook in Go.
type Func func(ctx context.Context, r Request) (Answer, error)

// Call calls f.
func (f Func) Call(ctx context.Context, r Request) (Answer, error) { return f(ctx, r) }
