// Package agent reads the definitions of agents, which users write in YAML or JSON, checks them,
// and compiles them for loops and workers.
//
//   - [Definition] is an agent as its author writes it: instructions, model, loop, tools, limits, hooks.
//   - [Known] has the names that a process supports in definitions: kinds of tools and hooks,
//     providers, loops. [Builtin] has those that ship with Turnpike.
//   - [Agent] is a checked and compiled definition, with its defaults.
//
// A definition is read and compiled:
//
//	known := agent.Builtin("plan")
//	def, err := known.Parse(text)
//	if err != nil {
//		return err
//	}
//	compiled, err := known.Compile(def, 1)
//
// # Guarantees
//
//   - A mistake is refused when the agent is stored, not when a run needs it. The error joins
//     the mistakes; each names the key and the remedy.
//   - A version of a definition never changes, and a run keeps the version that it began with.
//   - Checking a value against a schema takes a bounded number of steps, and stops there with an
//     error. The same schema and value take the same steps on every machine.
//   - Unknown keys are refused, so that a misspelt key is not ignored.
package agent
