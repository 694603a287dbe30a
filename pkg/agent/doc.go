// Package agent reads the definitions of agents, which users write in YAML or JSON, checks them,
// and compiles them for loops and workers.
//
//   - [Definition] is what is written: instructions, model, loop, tools, limits, hooks.
//   - [Known] is what a process knows of the names in it: kinds of tools and hooks,
//     providers, loops. [Builtin] is what ships with Turnpike.
//   - [Agent] is a definition that was checked against what is known, with its defaults.
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
//     all mistakes; each names the key and says what to do.
//   - A version of a definition never changes, and a run keeps the version that it began with.
//   - Checking a value against a schema takes a bounded number of steps, and stops there with an
//     error. The same schema and value take the same steps everywhere, however busy a machine is.
//   - Keys that are not known are refused, so a typing error has no effect unseen.
package agent
