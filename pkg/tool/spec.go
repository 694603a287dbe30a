package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Spec is what gateways and workers must know of a kind of tool to read the
// definitions of its tools. It makes no calls, so a package with a Spec should import
// little: every gateway links it. Its methods may be called from any goroutine.
type Spec interface {
	// Settings returns a pointer to a new struct of the keys that only definitions of
	// this kind have, by its json tags. Keys that it lacks are refused. The struct is
	// filled before Check sees it.
	Settings() any

	// Check validates a definition and its settings, and returns what calls of the tool
	// need. The error joins all mistakes; Invalid returns the mistake of one key.
	Check(d Definition, settings any) (Needs, error)
}

// Specs finds the Spec of a kind by the name that definitions give it.
type Specs map[string]Spec

// Names returns the names of the kinds, sorted.
func (s Specs) Names() []string { return slices.Sorted(maps.Keys(s)) }

// By says who makes the calls of a tool.
type By string

// Who makes calls.
const (
	ByWorker By = ""       // the worker, by its Kind
	ByClient By = "client" // the caller of the run, who sends the result as a signal
	ByPerson By = "person" // a person, whose answer is the result
	ByChild  By = "child"  // another agent of the deployment, in a run of its own
)

// Needs is what calls of one tool need.
type Needs struct {
	By By

	// Arguments is the JSON Schema of the arguments where the definition has none;
	// nil means any object.
	Arguments json.RawMessage

	// Agent is whom ByChild starts, and MaxDepth how many runs deep a chain of
	// delegations may be that uses the tool (D11); 0 means 10.
	Agent    string
	MaxDepth int

	// Remote says that the worker's calls go to an agent elsewhere: loops that speak
	// of delegation count the tool among its targets.
	Remote bool

	// Hosts are the "host:port" that the worker's calls go to, and Command is the program that
	// the worker starts for them. A tenant may be allowed some only.
	Hosts   []string
	Command string

	// Later says that a definition may be async: whoever takes a call can send the
	// result by itself.
	Later bool

	// Described says that description and schema may come from whoever serves the
	// tool, where the definition has none: Kind.Describe is asked.
	Described bool

	// Source says that the definition stands for any number of tools, which the
	// worker finds out by Kind.Pin and Kind.Expand. It may be without a name.
	Source bool
}

// SpecOf returns the Spec of a kind whose settings are an S; struct{} if it has none.
func SpecOf[S any](check func(d Definition, settings *S) (Needs, error)) Spec { return spec[S]{check} }

type spec[S any] struct {
	check func(d Definition, settings *S) (Needs, error)
}

func (spec[S]) Settings() any { return new(S) }

func (s spec[S]) Check(d Definition, settings any) (Needs, error) {
	own, ok := settings.(*S)
	if !ok {
		return Needs{}, fmt.Errorf("settings are %T, want %T", settings, own)
	}
	return s.check(d, own)
}

// Mistake is what is wrong with one key of a definition.
type Mistake struct{ Key, Text string }

func (m *Mistake) Error() string { return m.Key + ": " + m.Text }

// Invalid returns a Mistake about key.
func Invalid(key, format string, args ...any) error {
	return &Mistake{Key: key, Text: fmt.Sprintf(format, args...)}
}
