package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/provenance"
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

	// What Request.Traced has found out, of pre_tool.
	ArgsFromUntrusted bool `json:"args_from_untrusted,omitempty"`
	UntrustedSeen     bool `json:"untrusted_seen,omitempty"`
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

	// Log is the history of the run, of pre_tool. It is not sent to anybody.
	Log []state.Entry `json:"-"`
}

// ArgsFromUntrusted reports whether a value of the arguments of the call also stands in what
// tools, the web or other agents have said in the run (package provenance).
func (r Request) ArgsFromUntrusted() bool {
	return r.Call != nil && provenance.FromUntrusted(r.Log, string(r.Call.Arguments))
}

// UntrustedSeen reports whether tools, the web or other agents have said anything in the
// run.
func (r Request) UntrustedSeen() bool { return provenance.Seen(r.Log) }

// Traced returns r with the answers of both in its call, for hooks that get it encoded.
func (r Request) Traced() Request {
	if r.Call != nil {
		call := *r.Call
		call.ArgsFromUntrusted, call.UntrustedSeen = r.ArgsFromUntrusted(), r.UntrustedSeen()
		r.Call = &call
	}
	return r
}

// Answer is what a hook says. The zero value is no objection.
type Answer struct {
	// Of pre_tool: the call is not made, and Deny tells the model why; a person
	// must approve it; or it is made with other arguments, a JSON object.
	Deny      *string         `json:"deny,omitempty"`
	Approval  bool            `json:"approval,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`

	// Of stop: the run goes on, and Block tells the model why; or it ends
	// (stop_hook_prevented), and Prevent says why. Block counts first.
	Block   *string `json:"block,omitempty"`
	Prevent *string `json:"prevent,omitempty"`

	// Failed is set by Ask, never by a hook: at a stop, a hook whose failure counts as an
	// objection could not answer. The run ends stop_hook_failed for this reason.
	Failed *string `json:"-"`

	// Notes of post_sampling are system messages for the next model call.
	Notes []string `json:"notes,omitempty"`
}

// Check returns an error that names what of a does not belong to a point.
func (a Answer) Check(p Point) error {
	given := []struct {
		name  string
		set   bool
		point Point
	}{
		{"deny", a.Deny != nil, PreTool},
		{"approval", a.Approval, PreTool},
		{"arguments", len(a.Arguments) > 0, PreTool},
		{"block", a.Block != nil, Stop},
		{"prevent", a.Prevent != nil, Stop},
		{"notes", len(a.Notes) > 0, PostSampling},
	}
	for _, g := range given {
		if g.set && g.point != p {
			return fmt.Errorf("a hook of %s cannot answer with %s, which is for %s", p, g.name, g.point)
		}
	}
	if _, ok := state.CompactObject(string(a.Arguments)); len(a.Arguments) > 0 && !ok {
		return errors.New("arguments must be a JSON object")
	}
	return nil
}

// Decode reads an answer as services give it. Unknown fields are errors.
func Decode(data []byte, p Point) (Answer, error) {
	var a Answer
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return Answer{}, fmt.Errorf("decode answer: %w", err)
	}
	if dec.More() {
		return Answer{}, errors.New("decode answer: there is more than one JSON document")
	}
	if string(a.Arguments) == "null" {
		a.Arguments = nil
	}
	return a, a.Check(p)
}

// Hook is asked. It may be called from any goroutine and honours ctx.
type Hook interface {
	Call(ctx context.Context, r Request) (Answer, error)
}

// Func is a hook in Go.
type Func func(ctx context.Context, r Request) (Answer, error)

// Call calls f.
func (f Func) Call(ctx context.Context, r Request) (Answer, error) { return f(ctx, r) }
