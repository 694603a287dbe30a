package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Known has the names that a process supports in definitions. Compile refuses other names, and lists the supported
// ones.
type Known struct {
	Tools     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string // in addition to the built-in ones

	// MaxResult bounds the max_result of tools, in bytes; 0 means no bound.
	MaxResult int

	// ModelExtra lists the keys that model.extra may set; nil allows all keys that Turnpike does not set itself.
	ModelExtra model.Extras
}

// Builtin returns the names that ship with Turnpike, and the given names of loops.
func Builtin(loops ...string) Known {
	return Known{Tools: toolspec.Builtin(), Hooks: hookspec.Builtin(), Providers: model.BuiltinSpecs(), Loops: loops}
}

// Parse reads a definition in YAML or JSON. The error reports a document that is too large or cannot be parsed, or it
// joins the mistakes that show without the meaning of the values, such as unknown keys and wrong types, each with its
// place. If there are such mistakes and known has Providers, the error also joins the mistakes that Compile would find
// elsewhere in the definition, so that an author can fix all at once.
func (known Known) Parse(data []byte) (Definition, error) {
	var def Definition
	err := known.decode(data, &def)
	if err == nil {
		return def, nil
	}
	if len(known.Providers) > 0 {
		err = errors.Join(err, known.elsewhere(data, def, Faults(err)))
	}
	return Definition{}, fmt.Errorf("read definition: %w", err)
}

// elsewhere returns the mistakes that Compile finds in the valid part of a definition. It omits those that may follow
// from a mistake in said, such as a missing name next to an unknown key.
func (known Known) elsewhere(data []byte, def Definition, said []*Fault) error {
	_, err := known.Compile(def, 0)
	faults := Faults(err)
	there := find(data, faults)
	var more []error
	for _, f := range faults {
		at := ""
		for name := range namesTo(f.At) {
			if _, ok := there[name]; ok {
				at = name
				break
			}
		}
		if !slices.ContainsFunc(said, func(s *Fault) bool { return within(s.At, at) || within(at, s.At) }) {
			more = append(more, f)
		}
	}
	return errors.Join(more...)
}

// Parse reads a definition as Known.Parse does, without any kinds of tools and hooks: it leaves their own keys to
// Known.Compile.
func Parse(data []byte) (Definition, error) { return Known{}.Parse(data) }
