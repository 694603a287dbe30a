package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Kind is the worker's half of a kind of tool. Its methods must be safe for concurrent use. Embed Plain for methods
// that a kind does not need.
type Kind interface {
	// Spec returns the gateway half of the kind.
	Spec() Spec

	// Pin returns, as JSON, the tools that the source t stands for, from the server that defines them. Turnpike stores
	// the result: all workers and all runs of that version of the agent expand t by it.
	Pin(ctx context.Context, t Bound) (json.RawMessage, error)

	// Expand returns the tools that the source t stands for according to pinned. It must return the same tools at every
	// call, without I/O, each with Listed set. An error or a panic of Pin or Expand ends a run of the agent with
	// invalid_agent; a handoff to the agent is refused instead, and the run continues with its present agent. The
	// error should end with a remedy for the author of the agent: Turnpike adds only what failed.
	Expand(t Bound, pinned json.RawMessage) ([]Definition, error)

	// Describe returns, by name, the descriptions of tools whose server describes them (Needs.Described). While a
	// version of an agent has turns, the worker calls it about once a second, and models may see answers that are a
	// second old. It omits tools whose server does not answer.
	Describe(ctx context.Context, tools []Bound) map[string]Description

	// Call makes one call, as a Tool does. The worker has validated the arguments against t.Schema. A probe has those of
	// the call that it is about.
	Call(ctx context.Context, t Bound, c Call) (Result, error)
}

// Bound is one tool of an agent as its kind receives it. It does not change.
type Bound struct {
	*Definition

	// Settings are those of the kind, validated by Spec.Check.
	Settings any

	// Tenant is the tenant of the run, or of the agent.
	Tenant string

	// Secret returns the value of secret://name, to be sent only to host, a "host:port", or, if host is empty, only to
	// a program that the worker runs. A kind must call Secret for each use, and keep the value out of its results.
	Secret func(name, host string) (string, error)
}

// Kinds maps the name of a kind in definitions to the Kind.
type Kinds map[string]Kind

// Specs returns the specs of the kinds.
func (k Kinds) Specs() Specs {
	specs := make(Specs, len(k))
	for name, kind := range k {
		specs[name] = kind.Spec()
	}
	return specs
}

// Names returns the names of the kinds, sorted.
func (k Kinds) Names() []string { return slices.Sorted(maps.Keys(k)) }

// With returns the union of k and more; more takes precedence.
func (k Kinds) With(more Kinds) Kinds {
	all := maps.Clone(k)
	if all == nil {
		all = Kinds{}
	}
	maps.Copy(all, more)
	return all
}

// Plain is for kinds whose definitions each stand for one tool and fully describe it.
type Plain struct{}

// Pin returns an error: a plain kind is not a source.
func (Plain) Pin(context.Context, Bound) (json.RawMessage, error) {
	return nil, errors.New("a definition of this kind is one tool, not a source of tools: implement Pin and Expand for a source")
}

// Expand returns an error: a plain kind is not a source.
func (Plain) Expand(Bound, json.RawMessage) ([]Definition, error) {
	return nil, errors.New("a definition of this kind is one tool, not a source of tools: implement Pin and Expand for a source")
}

// Describe returns no descriptions.
func (Plain) Describe(context.Context, []Bound) map[string]Description { return nil }

// KindOf returns a kind that only makes calls.
func KindOf(s Spec, call func(ctx context.Context, t Bound, c Call) (Result, error)) Kind {
	return caller{spec: s, call: call}
}

type caller struct {
	Plain
	spec Spec
	call func(ctx context.Context, t Bound, c Call) (Result, error)
}

func (c caller) Spec() Spec { return c.spec }

func (c caller) Call(ctx context.Context, t Bound, call Call) (Result, error) {
	return c.call(ctx, t, call)
}

// ExternalKind returns the kind of tools that no worker calls: see Needs.By. Its Call returns an error result.
func ExternalKind(s Spec) Kind {
	return KindOf(s, func(_ context.Context, t Bound, c Call) (Result, error) {
		return Error(fmt.Sprintf("Tool %q was not called, since no worker makes calls of the kind %s. Continue without it", c.Name, t.Kind)), nil
	})
}
