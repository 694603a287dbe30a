package hook

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Spec is what gateways and workers need to read definitions of one kind of hook. Its methods may
// be called from any goroutine.
type Spec interface {
	// Settings returns a pointer to a new struct with the keys that only hooks of this kind have,
	// by its json tags. The caller fills it before it calls Check.
	Settings() any

	// Check validates the settings of a hook at a point, and returns the title of the hook for people and models. It
	// may store in settings the values that Kind.Call needs. The error is a *Mistake if it concerns one key.
	Check(p Point, settings any) (title string, err error)
}

// Tenanted is implemented by settings that not every tenant may use.
type Tenanted interface {
	// CheckTenant returns nil if hooks of a tenant may have the settings. prefix is that of the deployment's subjects.
	// The error is a *Mistake if it concerns one key.
	CheckTenant(prefix, tenant string) error
}

// Specs maps the name of a kind in definitions to its Spec.
type Specs map[string]Spec

// Names returns the names of the kinds, sorted.
func (s Specs) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Mistake is an error in one key of a hook.
type Mistake struct{ Key, Text string }

func (m *Mistake) Error() string { return m.Key + ": " + m.Text }

// Kind calls hooks of one kind. Workers use it. Its methods must be safe for concurrent use.
type Kind interface {
	// Spec returns the gateway half of the kind.
	Spec() Spec

	// Call calls a hook whose settings Spec.Check has validated. It must return when ctx ends.
	Call(ctx context.Context, settings any, r Request) (Answer, error)
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

// With returns the union of k and more; more takes precedence.
func (k Kinds) With(more Kinds) Kinds {
	all := maps.Clone(k)
	if all == nil {
		all = Kinds{}
	}
	maps.Copy(all, more)
	return all
}

// SpecOf returns the Spec of a kind whose settings have type S.
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

// KindOf returns a Kind whose settings have type S. s must be a Spec for these settings.
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
		return nil, fmt.Errorf("settings of the hook's kind are %T, want %T: return that type from the method Settings of its Spec", settings, own)
	}
	return own, nil
}
