package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// DefaultKind is the kind of a tool whose definition names none.
const DefaultKind = "go"

// AskUser is a reserved name: a call of it asks the person, whether an agent declares
// the tool or not.
const AskUser = "ask_user"

// Definition is one tool of an agent as its author writes it, in YAML or JSON: what
// tools of all kinds have, and in Own what only those of its kind have. In YAML and
// JSON both stand side by side.
type Definition struct {
	Name        string          `json:"name"`
	Kind        string          `json:"kind,omitempty"` // "" is DefaultKind
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`

	// Approval is "always", "never", or a CEL expression over args that says
	// whether a person must approve a call.
	Approval Approval `json:"approval,omitempty"`

	// Risk is what a call does in the world. It is shown to whoever decides about one.
	Risk Risk `json:"risk,omitempty"`

	// Idempotent says that a second call with the same idempotency key does no
	// harm. A call of any other tool is started at most once, or once more if its
	// Probe says that the first start came to nothing (I4).
	Idempotent bool `json:"idempotent,omitempty"`

	// Probe is asked what became of a call whose worker was lost; nil if there is none.
	Probe *Probe `json:"probe,omitempty"`

	// Reuse says that a call with the same arguments as an earlier one of the run
	// gets the earlier result (L7). Idempotent tools do so unless it is false, as
	// it should be where the answer may change: a reading of the clock, a look at
	// what another tool writes.
	Reuse *bool `json:"reuse,omitempty"`

	// Async says that the tool may answer later: it takes the call (pending), and
	// the run waits (waiting_tool) until the result comes as a signal.
	Async bool `json:"async,omitempty"`

	// MaxCalls bounds the calls of the tool in one run; 0 is no limit.
	MaxCalls int `json:"max_calls,omitempty"`

	// MaxResult bounds the bytes of a result that the model gets to see; 0 means
	// the worker's limit.
	MaxResult int `json:"max_result,omitempty"`

	// Timeout of one call; 0 means 2 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Concurrency is "parallel" (the default: runs beside its neighbours) or
	// "serial" (runs alone, in the order of the calls).
	Concurrency string `json:"concurrency,omitempty"`

	// Own is a JSON object of the keys that only tools of this kind have; nil if
	// there are none. EncodeSettings encodes the settings of a kind.
	Own json.RawMessage `json:"-"`

	// Listed, if not nil, says that the tool is one of those for which another
	// definition stands (Kind.Expand), and is the kind's own note on it. It is never
	// stored.
	Listed any `json:"-"`
}

// fields are a Definition without its methods.
type fields Definition

var common = keys.Of(reflect.TypeFor[Definition]())

// MarshalJSON writes the keys of the kind behind those of all kinds.
func (d Definition) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(fields(d))
	if err != nil {
		return nil, err
	}
	return keys.Join(b, d.Own)
}

// UnmarshalJSON keeps the keys that it does not know in Own, for the kind to read.
func (d *Definition) UnmarshalJSON(b []byte) error {
	var f fields
	err := json.Unmarshal(b, &f)
	if err != nil {
		return err
	}
	if f.Own, err = keys.Rest(b, common); err != nil {
		return err
	}
	*d = Definition(f)
	return nil
}

// EncodeSettings encodes the settings of a kind, for the Own field of a Definition that is
// written in Go. It panics if it cannot encode them.
func EncodeSettings(settings any) json.RawMessage {
	b, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("tool: encode settings: %v", err))
	}
	return Canonical(b)
}

// Risk is what calls of a tool do in the world.
type Risk string

// The risks.
const (
	Reads  Risk = "reads"
	Writes Risk = "writes"
	Pays   Risk = "pays"
	Sends  Risk = "sends" // something to somebody outside
)

// Approval is an approval rule. In YAML and JSON it may also be a boolean.
type Approval string

// The rules that are no expression.
const (
	ApprovalAlways Approval = "always"
	ApprovalNever  Approval = "never"
)

// UnmarshalJSON accepts a rule as text, or a boolean for always or never.
func (a *Approval) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		*a = ApprovalAlways
	case "false":
		*a = ApprovalNever
	default:
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return errors.New(`write "always", "never" or a rule such as "args.amount > 100"`)
		}
		*a = Approval(text)
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// CheckName returns an error if models cannot call a tool by that name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q must match %s", name, namePattern)
	}
	return nil
}
