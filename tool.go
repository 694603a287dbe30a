package turnpike

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Tool is a function that agents can call, with its schema and its rules. Make one with [NewTool],
// give it to [Open], and name it in an agent with [Use]. A Tool is a value; it does not change.
type Tool struct {
	def    tool.Definition
	in     reflect.Type
	out    reflect.Type
	schema *jsonschema.Resolved // of def.Schema; nil if that has a fault
	call   tool.Func            // expects arguments that schema admits; nil: f was nil
	probe  *probe
	retry  int
	faults []error
}

// probe is the probe of a tool.
type probe struct {
	in, out reflect.Type
	call    tool.Func // nil: f was nil
}

// NewTool returns a tool that calls f. Its schema is that of In, a struct or a map, or the one of the option [Schema].
// The names of fields are those of encoding/json, fields without omitempty or omitzero are required, unknown fields of
// a struct are refused, and a tag `jsonschema:"…"` describes a field. f never receives arguments that the schema
// refuses; the model reads the reason. Out is a string, a [tool.Result], or any type that encodes as JSON.
//
// f must be safe for concurrent use. Its context ends at the timeout, when the run is cancelled or interrupted or
// reaches its deadline, and when the worker stops or loses the turn. The model reads the text of an error. A function
// that has an effect must pass [IdempotencyKey] to the system that it changes.
//
// NewTool does not fail: [Open] reports mistakes of name, types, schema and options.
func NewTool[In, Out any](name, description string, f func(context.Context, In) (Out, error), opts ...ToolOption) Tool {
	t := Tool{def: tool.Definition{Name: name, Description: description}, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out]()}
	for _, set := range opts {
		set(&t)
	}
	t.schema = t.checkedSchema(func() (*jsonschema.Schema, error) { return jsonschema.For[In](nil) })
	retries := t.retry
	if f != nil {
		t.call = func(ctx context.Context, c tool.Call) (tool.Result, error) {
			in, err := decode[In](c)
			if err != nil {
				return tool.Error(err.Error()), nil
			}
			out, err := attempt(tool.WithCall(ctx, c), c.Deadline, retries, func(ctx context.Context) (Out, error) { return f(ctx, in) })
			if err != nil {
				return failed(err)
			}
			return result(out)
		}
	}
	return t
}

// checkedSchema gives the tool its schema: that of the option Schema, or else the one that infer returns. It notes a
// fault if the schema is invalid.
func (t *Tool) checkedSchema(infer func() (*jsonschema.Schema, error)) *jsonschema.Resolved {
	var s *jsonschema.Schema
	var err error
	if len(t.def.Schema) > 0 {
		if err = json.Unmarshal(t.def.Schema, &s); err != nil {
			err = fmt.Errorf("the option Schema is not a valid JSON Schema (%w): correct it", err)
		}
	} else if s, err = infer(); err != nil {
		err = fmt.Errorf("the type %s has no JSON Schema (%w): use other types, or the option Schema", t.in, err)
	} else if s.Type != "object" {
		err = fmt.Errorf("arguments must be a JSON object, but those of the tool's function have the type %s: use a struct or a map", t.in)
	}
	var resolved *jsonschema.Resolved
	if err == nil {
		resolved, err = s.Resolve(nil)
	}
	if err == nil && len(t.def.Schema) == 0 {
		t.def.Schema, err = json.Marshal(s)
	}
	if err != nil {
		t.fault("schema: %w", err)
	}
	return resolved
}

func (t *Tool) fault(format string, args ...any) {
	t.faults = append(t.faults, fmt.Errorf(format, args...))
}

// validate returns nil if the tool's schema admits the arguments of a call, and otherwise an error for the model to read.
func (t Tool) validate(c tool.Call) error {
	var args map[string]any
	err := json.Unmarshal(c.Arguments, &args)
	if err == nil {
		err = t.schema.Validate(args)
	}
	if err != nil {
		return invalidArguments(c, err)
	}
	return nil
}

// decode returns the arguments of a call, or an error for the model to read.
func decode[In any](c tool.Call) (in In, err error) {
	if err = json.Unmarshal(c.Arguments, &in); err != nil {
		err = invalidArguments(c, err)
	}
	return in, err
}

func invalidArguments(c tool.Call, err error) error {
	return fmt.Errorf("Invalid arguments for tool %q: %w", c.Name, err) //nolint:staticcheck // a sentence for the model
}

// attempt calls f. It calls f again after the delay while f returns an error made by Again, retries are left, and the
// delay ends before the deadline.
func attempt[Out any](ctx context.Context, deadline time.Time, retries int, f func(context.Context) (Out, error)) (Out, error) {
	for ; ; retries-- {
		out, err := f(ctx)
		again, ok := errors.AsType[*againError](err)
		if !ok || retries <= 0 || !deadline.IsZero() && time.Until(deadline) <= again.after {
			return out, err
		}
		timer := time.NewTimer(again.after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return out, ctx.Err()
		}
	}
}

// failed returns the result of a call whose function returned err: a pending result, a question, or err.
func failed(err error) (tool.Result, error) {
	if errors.Is(err, ErrPending) {
		return tool.Result{Pending: true}, nil
	}
	if ask, ok := errors.AsType[*askError](err); ok {
		kept, err := json.Marshal(ask.keep)
		if err != nil {
			return tool.Result{}, fmt.Errorf("The tool has a question, but its state cannot be encoded as JSON (%w), so no person was asked. Continue without the result; the tool's code must pass to Ask what encoding/json accepts", err) //nolint:staticcheck // a sentence for the model
		}
		return tool.Result{Ask: &tool.Ask{Question: ask.question, State: kept}}, nil
	}
	return tool.Result{}, err
}

// result returns the value that a function returned as a result for the model.
func result(out any) (tool.Result, error) {
	switch out := out.(type) {
	case tool.Result:
		return out, nil
	case string:
		return tool.Result{Content: out}, nil
	}
	b, err := json.Marshal(out)
	if err != nil {
		return tool.Result{}, fmt.Errorf("The call was made, but its result cannot be encoded as JSON (%w). Continue without the result; the tool's code must return what encoding/json accepts", err) //nolint:staticcheck // a sentence for the model
	}
	return tool.Result{Content: string(b)}, nil
}

// Use returns tools as the definition of an agent names them, with schema and rules. They are part of the stored
// version: runs of that version keep them while the code of the tools changes. So add only optional fields, or give the
// tool another name. A definition may be stricter than the tool in Go; a Deployment's Client and Gateway refuse to
// store a definition that is less strict, or to start a run of it.
func Use(tools ...Tool) []tool.Definition {
	all := make([]tool.Definition, len(tools))
	for i, t := range tools {
		all[i] = t.def
	}
	return all
}

// MustSchema returns the JSON Schema of T, for [Agent].OutputSchema. It panics if T has none.
func MustSchema[T any]() json.RawMessage {
	s, err := schemaOf[T]()
	if err != nil {
		panic(fmt.Sprintf("turnpike: schema of %s: use types that encoding/json accepts: %v", reflect.TypeFor[T](), err))
	}
	return s
}

func schemaOf[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// ToolOption changes a tool that [NewTool] makes.
type ToolOption func(*Tool)

// Idempotent declares that a second call with the same [IdempotencyKey] has no further effect. After a worker died or
// was stopped during a call, a worker calls the tool again only if it is Idempotent, or if its [Probe] reports
// tool.NotDone.
func Idempotent() ToolOption { return func(t *Tool) { t.def.Idempotent = true } }

// Approval makes a person approve calls: every call with "always", or those that satisfy rule, a CEL expression over
// args such as "args.Cents > 900".
func Approval(rule string) ToolOption {
	return func(t *Tool) { t.def.Approval = tool.Approval(rule) }
}

// Risk declares the effect of calls outside Turnpike: tool.Reads, Writes, Pays or Sends. Approvers see it.
func Risk(r tool.Risk) ToolOption { return func(t *Tool) { t.def.Risk = r } }

// Timeout bounds one call, retries included. Default 2 minutes.
func Timeout(d time.Duration) ToolOption {
	return func(t *Tool) {
		if d <= 0 {
			t.fault("timeout is %s: set more than 0", d)
		}
		t.def.Timeout = model.Duration(d)
	}
}

// Retries makes the worker call the function up to n times more within the same call, under the same key, when the
// function returns an error made by [Again] whose delay ends before the timeout of the call. It requires Idempotent.
func Retries(n int) ToolOption {
	return func(t *Tool) {
		if n < 0 {
			t.fault("retries is %d: set 0 or more", n)
		}
		t.retry = n
	}
}

// Probe makes the worker call f to look up the outcome of a call whose worker died or was stopped. f gets the arguments
// and the [IdempotencyKey] of the call, and returns tool.Done with the result, tool.NotDone, or tool.Unknown; an error
// counts as Unknown. If f still returns NotDone some seconds after the deadline of the call, the worker calls the tool
// once more, with the same key. f must not change anything, and may be called several times. In and Out must be those
// of the tool. A tool cannot have both Probe and Idempotent.
func Probe[In, Out any](f func(context.Context, In) (Out, Outcome, error)) ToolOption {
	p := &probe{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out]()}
	if f != nil {
		p.call = func(ctx context.Context, c tool.Call) (tool.Result, error) {
			in, err := decode[In](c)
			if err != nil {
				return tool.Result{}, err
			}
			out, outcome, err := f(tool.WithCall(ctx, c), in)
			switch {
			case err != nil:
				return tool.Result{}, err
			case outcome == tool.NotDone:
				return tool.ProbeNotDone(false), nil
			case outcome != tool.Done:
				return tool.ProbeUnknown(), nil
			}
			r, err := result(out)
			if err != nil {
				return tool.Result{}, err
			}
			return tool.ProbeDone(r), nil
		}
	}
	return func(t *Tool) {
		t.probe = p
		t.def.Probe = &tool.Probe{Name: t.def.Name + "_probe"}
	}
}

// MaxCalls bounds the calls of the tool in one run. By default, they are unlimited.
func MaxCalls(n int) ToolOption {
	return func(t *Tool) {
		if n < 1 {
			t.fault("max calls is %d: set 1 or more", n)
		}
		t.def.MaxCalls = n
	}
}

// Serial makes a worker execute each call of this tool alone: after the calls that precede it in the model's response
// have ended, and before those that follow it begin.
func Serial() ToolOption { return func(t *Tool) { t.def.Concurrency = "serial" } }

// Async allows the function to return [ErrPending].
func Async() ToolOption { return func(t *Tool) { t.def.Async = true } }

// Schema replaces the JSON Schema of In. Arguments that match s must decode into In.
func Schema(s json.RawMessage) ToolOption { return func(t *Tool) { t.def.Schema = s } }
