package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Kind is what a worker does with the tools of one kind. Its methods may be called
// from any goroutine. Embed Plain for those that a kind has no use for.
type Kind interface {
	// Spec returns what gateways must know of the kind.
	Spec() Spec

	// Pin asks whoever knows for the tools that t, a source, stands for, in a form
	// that is kept: all workers and all runs of that version of the agent expand by
	// it. It returns JSON.
	Pin(ctx context.Context, t Bound) (json.RawMessage, error)

	// Expand returns the tools that t, a source, stands for by what was pinned. It
	// returns the same at every call, and asks nobody. Each tool has Listed set.
	Expand(t Bound, pinned json.RawMessage) ([]Definition, error)

	// Describe returns what is known of tools that leave it to whoever serves them
	// to say what they are (Needs.Described), by name. It is asked at every turn, so
	// it must remember.
	Describe(ctx context.Context, tools []Bound) map[string]Description

	// Call makes one call, as a Tool does.
	Call(ctx context.Context, t Bound, c Call) (Result, error)
}

// Bound is one tool of an agent as its kind gets it. It does not change.
type Bound struct {
	*Definition

	// Settings are those of the kind, as Spec.Check has seen them.
	Settings any

	// Tenant is that of the run, or of the agent.
	Tenant string

	// Secret returns the value of secret://name for a "host:port", to which alone it may be
	// sent then; "" is a program of the worker. A kind asks for it at each use, and keeps it
	// out of what it returns.
	Secret func(name, host string) (string, error)
}

// Kinds finds a Kind by the name that definitions give it.
type Kinds map[string]Kind

// Specs returns what gateways must know of the kinds.
func (k Kinds) Specs() Specs {
	specs := make(Specs, len(k))
	for name, kind := range k {
		specs[name] = kind.Spec()
	}
	return specs
}

// Names returns the names of the kinds, sorted.
func (k Kinds) Names() []string { return slices.Sorted(maps.Keys(k)) }

// With returns k and more together; a kind that both have is that of more.
func (k Kinds) With(more Kinds) Kinds {
	all := maps.Clone(k)
	if all == nil {
		all = Kinds{}
	}
	maps.Copy(all, more)
	return all
}

// Plain is for kinds whose definitions stand for one tool each, and say all of it.
type Plain struct{}

// Pin returns an error: there are no sources.
func (Plain) Pin(context.Context, Bound) (json.RawMessage, error) {
	return nil, errors.New("a tool of this kind stands for itself only")
}

// Expand returns an error: there are no sources.
func (Plain) Expand(Bound, json.RawMessage) ([]Definition, error) {
	return nil, errors.New("a tool of this kind stands for itself only")
}

// Describe knows nothing.
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

// ExternalKind returns the kind of tools whose calls no worker makes: see Needs.By.
func ExternalKind(s Spec) Kind {
	return KindOf(s, func(_ context.Context, t Bound, c Call) (Result, error) {
		return Error(fmt.Sprintf("Tool %q is of kind %s: no worker makes its calls", c.Name, t.Kind)), nil
	})
}
