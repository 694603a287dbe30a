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

// Known is what a process knows of what definitions name. A definition that names
// anything else is refused, with what there is.
type Known struct {
	Tools     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string // beside the built-in ones

	// MaxResult bounds the max_result of tools; 0 means unbounded.
	MaxResult int

	// ModelExtra lists the keys that model.extra may set; nil allows all that Turnpike does not
	// set itself.
	ModelExtra model.Extras
}

// Builtin returns what ships with Turnpike, and loops by name.
func Builtin(loops ...string) Known {
	return Known{Tools: toolspec.Builtin(), Hooks: hookspec.Builtin(), Providers: model.BuiltinSpecs(), Loops: loops}
}

// Parse reads a definition in YAML or JSON. The error joins every mistake that can be seen
// without knowing what the values mean: unknown keys, keys given twice, wrong types, each with
// its place. If there is one, the error also joins the mistakes that Compile would find
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

// elsewhere returns the mistakes that Compile finds in the readable part of a definition. It
// omits those that may follow from a mistake in said, such as a missing name where a key is
// unknown.
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

// Parse reads a definition as Known.Parse does, without knowing any kinds of tool and hook: it
// leaves their own keys to Known.Compile.
func Parse(data []byte) (Definition, error) { return Known{}.Parse(data) }
