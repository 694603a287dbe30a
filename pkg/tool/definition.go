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

// DefaultKind is the kind of a tool whose definition has none.
const DefaultKind = "go"

// AskUser is a reserved name: a call of it asks the person, even if an agent declares no such tool.
const AskUser = "ask_user"

// Definition is an entry of an agent's tools as its author writes it, in YAML or JSON: one tool or, if Needs.Source is
// set for it, a source such as an MCP server, which stands for any number of tools. Kind.Expand returns these as
// Definitions too. Own holds the keys that only this kind has; the other fields but Listed are keys that all kinds
// have. In YAML and JSON, all keys are at the same level.
type Definition struct {
	Name        string          `json:"name"`
	Kind        string          `json:"kind,omitempty"` // "" means DefaultKind
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`

	// Approval is "always", "never", or a CEL expression over args, args_from_untrusted and untrusted_seen that decides
	// whether a person must approve a call. Empty means never.
	Approval Approval `json:"approval,omitempty"`

	// Risk is the effect of calls outside Turnpike. Approvers see it.
	Risk Risk `json:"risk,omitempty"`

	// Idempotent means that a second call with the same idempotency key has no further effect. A call of any other tool
	// is started at most once, or once more if its Probe finds that the first start had no effect (I4), unless the
	// store has lost writes. A call that only asked a person a question is made again with the answer.
	Idempotent bool `json:"idempotent,omitempty"`

	// Probe looks up the outcome of a call whose worker was lost or stopped; nil without a probe. Idempotent tools have
	// none.
	Probe *Probe `json:"probe,omitempty"`

	// Reuse means that a call with the same arguments as an earlier one of the run gets the earlier result (L7). nil
	// means true for idempotent tools, and false for others. Set it to false if the result may change, such as that of
	// a clock or of data that another tool writes.
	Reuse *bool `json:"reuse,omitempty"`

	// Async means that the tool may accept a call (pending) and return its result later: the run waits (waiting_tool)
	// until the result arrives as a signal.
	Async bool `json:"async,omitempty"`

	// MaxCalls bounds the calls of the tool in one run; 0 means no limit.
	MaxCalls int `json:"max_calls,omitempty"`

	// MaxResult is the maximum size of a result, in bytes; the worker cuts a longer one. 0 means the worker's limit.
	MaxResult int `json:"max_result,omitempty"`

	// Timeout bounds one call; 0 means 2 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Concurrency is "parallel" (the default: concurrently with adjacent calls) or "serial" (alone, in the order of the
	// calls).
	Concurrency string `json:"concurrency,omitempty"`

	// Own is a JSON object of the keys that only tools of this kind have, or nil.
	// EncodeSettings encodes the settings of a kind.
	Own json.RawMessage `json:"-"`

	// Listed, if not nil, marks a tool that another definition expands to (Kind.Expand), and has the kind's own data
	// about it. It is never stored.
	Listed any `json:"-"`
}

// fields is a Definition without its methods.
type fields Definition

var common = keys.Of(reflect.TypeFor[Definition]())

// MarshalJSON writes the keys of the kind after those of all kinds.
func (d Definition) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(fields(d))
	if err != nil {
		return nil, err
	}
	return keys.Join(b, d.Own)
}

// UnmarshalJSON keeps unknown keys in Own, for the kind to read.
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

// EncodeSettings encodes the settings of a kind, for the Own field of a Definition in Go. It panics
// if it cannot encode them.
func EncodeSettings(settings any) json.RawMessage {
	b, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("tool: encode settings: %v", err))
	}
	return Canonical(b)
}

// Risk is the effect of a tool's calls outside Turnpike.
type Risk string

// The risks.
const (
	Reads  Risk = "reads"
	Writes Risk = "writes"
	Pays   Risk = "pays"
	Sends  Risk = "sends" // messages to people or to other systems
)

// Approval is an approval rule. In YAML and JSON it may also be a boolean.
type Approval string

// The rules that are not expressions.
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
			return errors.New(`the approval rule is not a string: write "always", "never" or a rule such as "args.amount > 100"`)
		}
		*a = Approval(text)
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// CheckName returns an error if models cannot call a tool by that name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is not a valid name: use 1 to 64 letters, digits, _ and -", name)
	}
	return nil
}
