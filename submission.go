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

// Submission describes a run. Agent and either Input or Messages are required.
type Submission struct {
	Agent   string
	Version int // of the agent; 0: the latest

	Input    string // the user's message
	Messages []Message

	// Key makes Submit idempotent: the same key and content return the same run for at least a
	// week, and other content under the key is ErrConflict.
	Key string

	Priority Priority // default state.Normal
	Metadata map[string]string
	Limits   *Limits // may only tighten the agent's

	// Delay postpones the start of the run, by the clock of the store.
	Delay time.Duration

	// OutputSchema is the JSON Schema that the output of this run matches. Default: the agent's.
	OutputSchema json.RawMessage

	// Variables are the values of the agent's variables: anything that encodes as a JSON object.
	Variables any

	// Deltas makes pieces of the model's responses live events of the run.
	Deltas bool
}

// request returns s as the API takes it.
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
			return r, invalid("Submission.Variables cannot be encoded as JSON: %v", err)
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
		return r, invalid("Submission.Messages cannot be encoded as JSON: %v", err)
	}
	r.Input = b
	return r, nil
}

// Do submits a run, waits until it ends, and decodes its output into T. With T = string it returns
// the text. Otherwise the run has the JSON Schema of T as its output schema unless s has one, so
// that the model receives the schema, and answers that do not match go back to the model, whatever
// tools and loop the agent has. A T that has no schema, that every JSON value fits, or that
// implements [json.Unmarshaler] leaves the schema to the agent. ctx bounds the wait and not the
// run. Errors are those of Submit and [Result].
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

// outputSchema returns the schema of T; nil if it says nothing of what T decodes.
func outputSchema[T any]() json.RawMessage {
	if reflect.TypeFor[T]().Kind() == reflect.String || reflect.PointerTo(reflect.TypeFor[T]()).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	s, err := schemaOf[T]()
	if err != nil || string(s) == "true" || string(s) == "{}" {
		return nil
	}
	return s
}

// Result waits until a run ends and decodes its output into T. It returns a [*RunError] if the run
// ended without completing, and an [*OutputError] if the output does not decode into T. An agent
// with an OutputSchema has output that does: see [MustSchema].
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
	MaxParallel int          // runs in flight at once; 0: all

	// CountWaiting counts runs that wait for a person as in flight.
	CountWaiting bool

	Key string // as Submission.Key, for the whole batch
}

// BatchRun is a handle of a batch, as a Run is one of a run.
type BatchRun struct {
	c    *Client
	id   string
	runs []*Run
}

// ID returns the id of the batch.
func (b *BatchRun) ID() string { return b.id }

// Runs returns the runs of the batch, in the order of the request.
func (b *BatchRun) Runs() []*Run { return append([]*Run(nil), b.runs...) }

// Info returns the batch as it stands now.
func (b *BatchRun) Info(ctx context.Context) (BatchInfo, error) {
	i, err := b.c.api.Batch(ctx, b.id)
	return i, cause(ctx, err)
}

// Wait returns the batch when all of its runs have ended.
func (b *BatchRun) Wait(ctx context.Context) (BatchInfo, error) {
	ctx, end := b.c.bound(ctx)
	defer end()
	i, err := b.c.api.WaitBatch(ctx, b.id, nil)
	return i, cause(ctx, err)
}
