package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Spec is the part of a kind of tool that gateways and workers need to read definitions. It makes no calls. A package
// with a Spec should import little, because every gateway links it. Its methods must be safe for concurrent use.
type Spec interface {
	// Settings returns a pointer to a new struct with the keys that only definitions of this kind
	// have, by its json tags. Other keys are refused. The caller fills the struct before it calls
	// Check.
	Settings() any

	// Check validates a definition and its settings, and returns the needs of the tool's calls. The error may join
	// several mistakes; Invalid returns the mistake of one key.
	Check(d Definition, settings any) (Needs, error)
}

// Specs maps the name of a kind in definitions to its Spec.
type Specs map[string]Spec

// Names returns the names of the kinds, sorted.
func (s Specs) Names() []string { return slices.Sorted(maps.Keys(s)) }

// By is the party that makes the calls of a tool.
type By string

// The parties that make calls.
const (
	ByWorker By = ""       // the worker, through its Kind
	ByClient By = "client" // the client that submitted the run, which sends the result as a signal
	ByPerson By = "person" // a person, whose answer is the result
	ByChild  By = "child"  // another agent of the deployment, in its own run

	ByHandoff By = "handoff" // no party: another agent continues the run
	ByHistory By = "history" // no party: the history of the run has the result

	// ByProvider means that the model's provider runs the tool during the model call. The tool has no
	// calls that a worker, a hook or an approval could see.
	ByProvider By = "provider"
)

// Needs describes what the calls of one tool need.
type Needs struct {
	By By

	// DefaultName is the name of a tool whose definition has none. If it is empty, the definition must have a name,
	// unless it is a Source.
	DefaultName string

	// Arguments is the JSON Schema of the arguments if the definition has none; nil means any
	// object.
	Arguments json.RawMessage

	// Purpose is the description of the tool, for the model, if the definition has none.
	Purpose string

	// Stateful reports whether calls read and change data that Turnpike keeps, once per idempotency key.
	// The tool is then idempotent, its results are not reused, and its calls are serial, whatever the
	// definition says.
	Stateful bool

	// Metadata is a key that the metadata of a run must have, or "".
	Metadata string

	// Agent is the agent that ByChild starts or that ByHandoff continues the run with. MaxDepth is the maximum depth of
	// a chain of delegations that uses the tool (D11); 0 means 10.
	Agent    string
	MaxDepth int

	// Variables is a JSON object with the values of the variables of Agent, or nil.
	Variables json.RawMessage

	// Remote reports whether the tool calls an agent of another system: loops that mention delegation count it among
	// their targets.
	Remote bool

	// Hosts are the "host:port" addresses of the worker's calls, and Command is the program that the worker starts for
	// them. The lists of a tenant may forbid them.
	Hosts   []string
	Command string

	// Later reports whether a definition may be async: the party that accepts a call can send the
	// result itself.
	Later bool

	// Described reports whether the tool's server may supply description and schema if the
	// definition has none, through Kind.Describe.
	Described bool

	// MaxUses bounds the uses in one model call, and Options are the settings, a JSON object, of a ByProvider tool; 0
	// and nil if the definition has none.
	MaxUses int64
	Options json.RawMessage

	// Source reports whether the definition stands for any number of tools, which the worker gets
	// from Kind.Pin and Kind.Expand. It may have no name.
	Source bool
}

// SpecOf returns the Spec of a kind whose settings have type S; struct{} means none.
func SpecOf[S any](check func(d Definition, settings *S) (Needs, error)) Spec { return spec[S]{check} }

type spec[S any] struct {
	check func(d Definition, settings *S) (Needs, error)
}

func (spec[S]) Settings() any { return new(S) }

func (s spec[S]) Check(d Definition, settings any) (Needs, error) {
	own, ok := settings.(*S)
	if !ok {
		return Needs{}, fmt.Errorf("settings of the tool's kind are %T, want %T: return that type from the method Settings of its Spec", settings, own)
	}
	return s.check(d, own)
}

// Mistake is an error in one key of a definition.
type Mistake struct{ Key, Text string }

func (m *Mistake) Error() string { return m.Key + ": " + m.Text }

// Invalid returns a Mistake about key.
func Invalid(key, format string, args ...any) error {
	return &Mistake{Key: key, Text: fmt.Sprintf(format, args...)}
}
