package toolkit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/google/jsonschema-go/jsonschema"
)

// Tool is a tool to serve. Func makes one from a typed function; use a literal for arguments without a Go type.
type Tool struct {
	Name        string // letters, digits, - and _, at most 64
	Description string // effect and use of the tool, for the model
	Version     string // a semantic version; empty means 1.0.0

	// Schema is the JSON Schema of the arguments, an object. The service's metadata contains it for
	// people and programs.
	Schema json.RawMessage

	// Concurrency is the maximum number of concurrent calls in this process; 0 means 64. Further
	// calls wait.
	Concurrency int

	// Handler makes one call. The text of its error is shown to the model, up to 64 KiB. Its context ends at the call's
	// deadline, or when the caller cancels the call; an answer after that has no reader. Handler must be safe for
	// concurrent use, and should take effect only once for each Call.IdempotencyKey.
	Handler func(ctx context.Context, c Call) (Result, error)

	fault error // error of Func; Serve and Run return it
}

// Result is the result of a call.
type Result struct {
	// Content is for the model: a string is sent as text, any other value as JSON.
	Content any

	// Images are for models that accept them, in addition to Content.
	Images []Image

	// Files are for models that accept them, in addition to Content. The whole reply must fit into a message of the
	// NATS server: upload a larger file, and set its FileID.
	Files []File

	// Pending means that the tool has accepted the call and that its result arrives later, as the signal tool_results
	// to the run; the other fields are ignored. Only tools that the agent declares async may set it.
	Pending bool
}

// Func makes a tool from a function. The JSON Schema of its arguments is that of In, a struct or a map: names are those
// of encoding/json, fields without omitempty or omitzero are required, and a tag `jsonschema:"…"` describes a field. f
// never receives arguments that do not match the schema; the model reads the reason. Out is a Result, a string, or any
// type that encodes as JSON.
//
// If In has no such schema, Serve and Run return the error.
func Func[In, Out any](name, description string, f func(ctx context.Context, c Call, in In) (Out, error)) Tool {
	t := Tool{Name: name, Description: description}
	check, schema, err := inspect[In]()
	if err != nil {
		t.fault = fmt.Errorf("make tool %s: %w", name, err)
		return t
	}
	t.Schema = schema
	t.Handler = func(ctx context.Context, c Call) (Result, error) {
		var in In
		if err := check(c.Arguments, &in); err != nil {
			return Result{}, &ArgumentsError{Tool: name, Err: err}
		}
		out, err := f(ctx, c, in)
		if r, ok := any(out).(Result); ok {
			return r, err
		}
		return Result{Content: out}, err
	}
	return t
}

// ArgumentsError reports arguments that do not match the schema of the tool. The handler was not called. The caller
// receives the error code 400.
type ArgumentsError struct {
	Tool string
	Err  error
}

func (e *ArgumentsError) Error() string {
	return fmt.Sprintf("Invalid arguments for tool %q: %v", e.Tool, e.Err)
}

func (e *ArgumentsError) Unwrap() error { return e.Err }

// inspect returns the JSON Schema of a type, and a function that validates and decodes arguments.
func inspect[In any]() (check func(raw json.RawMessage, into *In) error, schema json.RawMessage, err error) {
	s, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, nil, err
	}
	if s.Type != "object" {
		return nil, nil, fmt.Errorf("arguments must be a JSON object, but those of the tool's function have the type %v: use a struct or a map", reflect.TypeFor[In]())
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, nil, err
	}
	if schema, err = json.Marshal(s); err != nil {
		return nil, nil, err
	}
	return func(raw json.RawMessage, into *In) error {
		var args map[string]any
		if err := json.Unmarshal(raw, &args); err != nil || args == nil {
			return errors.New("they are not a JSON object: send one")
		}
		if err := resolved.Validate(args); err != nil {
			return err
		}
		return json.Unmarshal(raw, into)
	}, schema, nil
}

var (
	tenantPattern  = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	namePattern    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+([-+].+)?$`)
)

// checked returns the tool with its defaults, or an error if it is invalid.
func (t Tool) checked() (Tool, error) {
	if t.Version == "" {
		t.Version = "1.0.0"
	}
	if t.Concurrency <= 0 {
		t.Concurrency = 64
	}
	if len(t.Schema) == 0 {
		t.Schema = json.RawMessage(`{"type":"object"}`)
	}
	switch {
	case t.fault != nil:
		return t, t.fault
	case !namePattern.MatchString(t.Name):
		return t, fmt.Errorf("serve tool %q: the name is not valid: use 1 to 64 letters, digits, _ and -", t.Name)
	case t.Handler == nil:
		return t, fmt.Errorf("serve tool %s: it has no handler: set Handler", t.Name)
	case !versionPattern.MatchString(t.Version):
		return t, fmt.Errorf("serve tool %s: its version %q is not a semantic version: write one such as 1.0.0", t.Name, t.Version)
	case !json.Valid(t.Schema) || !bytes.HasPrefix(bytes.TrimSpace(t.Schema), []byte("{")):
		return t, fmt.Errorf("serve tool %s: its schema is not a JSON object: write a JSON Schema", t.Name)
	}
	return t, nil
}
