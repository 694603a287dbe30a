// Package loop decides what a run does next. It is pure: no clock, no
// randomness, no network, no queue, no log. Equal arguments give equal results,
// so a turn can be replayed from its inputs.
//
// A loop is asked one question, over and over: given this state, something has
// happened; what now? It answers with the next state and at most one effect for
// the worker to perform. The result of the effect is the next event. A decision
// without an effect ends the turn: the state has made its transition, and the
// worker commits it.
//
//	TurnBegan ──► CallModel ──► ModelResponded ──► RunHooks ──► HooksAnswered ──► RunTools ──► ToolsFinished ──► (turn ends)
//	                  │
//	                  ├──► ModelFailed ──► (turn ends)
//	                  ├──► ModelDelayed ─► (turn ends)
//	                  └──► Aborted ──────► (turn ends)
//
// What all loops share — signals, limits, hooks, recoveries, compaction, aborts,
// and that every call gets exactly one result — is done by New. A loop of its own
// kind is a value of Rules.
//
// A loop that answers in two steps, and keeps how far it is:
//
//	type draft struct{ Written bool }
//
//	var rules = loop.Typed[draft]{OnAnswer: func(t *loop.Turn, own *draft, text string) loop.Decision {
//		if !own.Written {
//			own.Written = true
//			return t.Next(state.NextTurn, "drafted", state.UserText("Now make it shorter."))
//		}
//		return t.Complete(state.EndCompleted, text)
//	}}.Rules()
//
//	func Editor(a *agent.Agent) loop.Loop { return loop.New(a, rules) }
//
// looptest holds it to what must be true of every loop. docs/how-to/write-a-loop.md has the rest.
//
// # Guarantees
//
//   - What a loop keeps is stored with the turn that changed it, and nobody else reads it. A worker that
//     takes over a turn asks the loop again, with what the commit before has stored.
//   - Limits, signals and aborts hold whatever a loop decides: [New] looks at them first.
//   - Every tool call gets exactly one result, in order (I5).
package loop
