package hook

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Spec is what gateways and workers must know of a kind of hook to read definitions.
// Its methods may be called from any goroutine.
type Spec interface {
	// Settings returns a pointer to a new struct of the keys that only hooks of this
	// kind have, by its json tags. It is filled before Check sees it.
	Settings() any

	// Check looks at the settings of a hook at a point, and returns how people and
	// models are to know it. It may keep in settings what Kind.Call needs. The error
	// is a *Mistake if it is about one key.
	Check(p Point, settings any) (title string, err error)
}

// Tenanted is settings of a hook that not every tenant may have.
type Tenanted interface {
	// CheckTenant returns nil if hooks of a tenant may have the settings, in the deployment
	// whose subjects begin with prefix. The error is a *Mistake if it is about one key.
	CheckTenant(prefix, tenant string) error
}

// Specs finds the Spec of a kind by the name that definitions give it.
type Specs map[string]Spec

// Names returns the names of the kinds, sorted.
func (s Specs) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Mistake is what is wrong with one key of a hook.
type Mistake struct{ Key, Text string }

func (m *Mistake) Error() string { return m.Key + ": " + m.Text }

// Kind is what a worker asks hooks of one kind through.
type Kind interface {
	// Spec returns what gateways must know of the kind.
	Spec() Spec

	// Call asks a hook, whose settings Spec.Check has seen. It honours ctx.
	Call(ctx context.Context, settings any, r Request) (Answer, error)
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

// With returns k and more together; a kind that both have is that of more.
func (k Kinds) With(more Kinds) Kinds {
	all := maps.Clone(k)
	if all == nil {
		all = Kinds{}
	}
	maps.Copy(all, more)
	return all
}

// SpecOf returns the Spec of a kind whose settings are an S.
func SpecOf[S any](check func(p Point, settings *S) (title string, err error)) Spec {
	return spec[S]{check}
}

type spec[S any] struct {
	check func(p Point, settings *S) (string, error)
}

func (spec[S]) Settings() any { return new(S) }

func (s spec[S]) Check(p Point, settings any) (string, error) {
	own, err := as[S](settings)
	if err != nil {
		return "", err
	}
	return s.check(p, own)
}

// KindOf returns a kind whose settings are an S.
func KindOf[S any](s Spec, call func(ctx context.Context, settings *S, r Request) (Answer, error)) Kind {
	return kind[S]{s, call}
}

type kind[S any] struct {
	spec Spec
	call func(ctx context.Context, settings *S, r Request) (Answer, error)
}

func (k kind[S]) Spec() Spec { return k.spec }

func (k kind[S]) Call(ctx context.Context, settings any, r Request) (Answer, error) {
	own, err := as[S](settings)
	if err != nil {
		return Answer{}, err
	}
	return k.call(ctx, own, r)
}

func as[S any](settings any) (*S, error) {
	own, ok := settings.(*S)
	if !ok {
		return nil, fmt.Errorf("settings are %T, want %T", settings, own)
	}
	return own, nil
}
