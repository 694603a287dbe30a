package turnpike

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Submission describes a run. Agent and exactly one of Input and Messages are required.
type Submission struct {
	Agent   string
	Version int // of the agent; 0 means the latest

	Input    string // the user's message
	Messages []Message

	// Key, of at most 255 bytes, makes Submit idempotent: the same key and content return the same run, and other
	// content under the key is ErrConflict. A key is remembered for at least a week, but not longer than its run
	// exists.
	Key string

	Priority Priority // default state.Normal
	Metadata map[string]string
	Limits   *Limits // may only tighten the agent's

	// Delay postpones the start of the run, by the clock of the store.
	Delay time.Duration

	// OutputSchema is the JSON Schema that the output of this run must match. Default: that of the agent.
	OutputSchema json.RawMessage

	// Variables has the values of the agent's variables. It must encode as a JSON object.
	Variables any

	// Deltas publishes pieces of the model's responses as live events of the run.
	Deltas bool
}

// request returns s as a request of the API.
func (s Submission) request() (api.SubmitRequest, error) {
	r := api.SubmitRequest{
		Agent: s.Agent, AgentVersion: s.Version, Input: api.Text(s.Input), Limits: s.Limits, Priority: string(s.Priority), Metadata: s.Metadata,
		Delay: model.Duration(s.Delay), OutputSchema: s.OutputSchema,
	}
	if s.Deltas {
		r.Stream = "deltas"
	}
	if s.Variables != nil {
		b, err := json.Marshal(s.Variables)
		if err != nil {
			return r, invalid("Submission.Variables cannot be encoded as JSON: use values that encoding/json accepts: %v", err)
		}
		r.Variables = b
	}
	if len(s.Messages) == 0 {
		return r, nil
	}
	if s.Input != "" {
		return r, invalid("Submission has both Input and Messages: set one of them")
	}
	b, err := json.Marshal(s.Messages)
	if err != nil {
		return r, invalid("Submission.Messages cannot be encoded as JSON: use values that encoding/json accepts: %v", err)
	}
	r.Input = b
	return r, nil
}

// Do submits a run, waits until it ends, and decodes its output into T. With T = string it returns the text. Otherwise
// the run gets the JSON Schema of T as its output schema unless s has one: the model receives the schema and must
// answer again if its answer does not match. A run of an agent with loop.converse may not have an output schema; Do then
// returns ErrInvalid. If T has no schema or has one that every JSON value matches, the schema of the agent applies. So
// it does if T or *T implements [json.Unmarshaler], and if T is a named string type or a pointer to one. ctx bounds the
// wait and not the run. Errors are those of Submit and [Result].
func Do[T any](ctx context.Context, c *Client, s Submission) (T, error) {
	if len(s.OutputSchema) == 0 {
		s.OutputSchema = outputSchema[T]()
	}
	r, err := c.Submit(ctx, s)
	if err != nil {
		var zero T
		return zero, err
	}
	return Result[T](ctx, r)
}

// outputSchema returns the schema of T, or nil if T has none or its schema says nothing about what T decodes.
func outputSchema[T any]() json.RawMessage {
	t := reflect.TypeFor[T]()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text := t.Kind() == reflect.String && reflect.TypeFor[T]() != reflect.TypeFor[*string]()
	if text || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	s, err := schemaOf[T]()
	if err != nil || string(s) == "true" || string(s) == "{}" {
		return nil
	}
	return s
}

// Result waits until a run ends and decodes its output, which is JSON, into T; a string gets the output as it is. It
// returns a [*RunError] if the run ended with a status other than completed, an [*OutputError] if the output does not
// decode into T, and else the errors of [Run.Wait]. A structured output is decoded in place of the output. An output
// that matches the schema of T, see [MustSchema], decodes except for what the schema cannot express, such as the range
// of an int64.
func Result[T any](ctx context.Context, r *Run) (T, error) {
	var out T
	i, err := r.Wait(ctx)
	if err != nil {
		return out, err
	}
	if i.Status != string(state.Completed) {
		e := &RunError{Run: r.id, Status: i.Status}
		if i.Reason != nil {
			e.Reason = *i.Reason
		}
		if i.Error != nil {
			e.Detail = i.Error.Message
		}
		return out, e
	}
	text := ""
	if i.Output != nil {
		text = *i.Output
	}
	if s, ok := any(&out).(*string); ok {
		*s = text
		return out, nil
	}
	data := []byte(text)
	if len(i.StructuredOutput) > 0 && string(i.StructuredOutput) != "null" {
		data = i.StructuredOutput
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, &OutputError{Run: r.id, Text: text, Err: err}
	}
	return out, nil
}

// Batch describes 1 to 1,000 runs that are submitted together.
type Batch struct {
	Runs        []Submission // without keys
	MaxParallel int          // maximum number of runs in flight at once; 0 means all

	// CountWaiting counts runs that wait for a person as in flight. By default a run that waits makes room for the
	// next.
	CountWaiting bool

	Key string // as Submission.Key, for the whole batch
}

// BatchRun is a handle to a batch, as a Run is a handle to a run. It is safe for concurrent use.
type BatchRun struct {
	c    *Client
	id   string
	runs []*Run
}

// ID returns the id of the batch.
func (b *BatchRun) ID() string { return b.id }

// Runs returns handles to the runs of the batch, in the order of Batch.Runs.
func (b *BatchRun) Runs() []*Run { return append([]*Run(nil), b.runs...) }

// Info returns the current state of the batch, with all runs that were not deleted.
func (b *BatchRun) Info(ctx context.Context) (BatchInfo, error) {
	i, err := b.c.api.Batch(ctx, b.id)
	return i, cause(ctx, err)
}

// Wait returns the batch when all of its runs have ended. While the servers are unavailable it continues to wait; ctx
// bounds it.
func (b *BatchRun) Wait(ctx context.Context) (BatchInfo, error) {
	ctx, end := b.c.bound(ctx)
	defer end()
	i, err := b.c.api.WaitBatch(ctx, b.id, nil)
	return i, cause(ctx, err)
}
