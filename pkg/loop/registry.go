package loop

import (
	"maps"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
)

// Factory binds a loop to an agent. It must be safe for concurrent use.
type Factory func(a *agent.Agent) Loop

// Registry maps the loop names in definitions to loops (D1). It must not change while a worker uses it.
type Registry map[string]Factory

// Builtin returns a new map of the loops that ship with Turnpike. A third party adds its own loops to the map;
// the worker needs nothing else (D10).
func Builtin() Registry {
	return Registry{
		"react":       React,
		"reflect":     Reflective,
		"single_call": SingleCall,
		"two_phase":   TwoPhase,
	}
}

// Names returns the names in r, sorted.
func (r Registry) Names() []string { return slices.Sorted(maps.Keys(r)) }
