package agent

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
)

// Known is what a process knows of what definitions name. A definition that names
// anything else is refused, with what there is.
type Known struct {
	Tools     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string // beside the built-in ones
}

// Builtin returns what ships with Turnpike, and loops by name.
func Builtin(loops ...string) Known {
	return Known{Tools: toolspec.Builtin(), Hooks: hookspec.Builtin(), Providers: model.BuiltinSpecs(), Loops: loops}
}

// Parse reads a definition in YAML or JSON. The error joins every mistake that can be
// seen without knowing what the values mean: unknown keys, keys given twice, wrong
// types, each with its place.
func (known Known) Parse(data []byte) (Definition, error) {
	var def Definition
	if err := known.decode(data, &def); err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	return def, nil
}

// Parse reads a definition as Known.Parse does, for whoever knows no kinds of tool and
// hook: what these have of their own is left to Known.Compile.
func Parse(data []byte) (Definition, error) { return Known{}.Parse(data) }
