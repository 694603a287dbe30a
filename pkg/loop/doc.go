// Package loop decides what a run does next. It is pure: no clock, no
// randomness, no network, no queue, no logging. Equal arguments give equal results,
// so a turn can be replayed from its inputs.
//
// A loop answers one question, over and over: given this state and this event, what is next? It
// answers with the next state and at most one effect for the worker to perform. The result of the
// effect is the next event. A decision without an effect ends the turn: the state has made its
// transition, and the worker commits it.
//
//	TurnBegan ──► CallModel ──► ModelResponded ──► RunHooks ──► HooksAnswered ──► RunTools ──► ToolsFinished ──► (turn ends)
//	                  │
//	                  ├──► ModelFailed ──► (turn ends)
//	                  ├──► ModelDelayed ─► (turn ends)
//	                  └──► Aborted ──────► (turn ends)
//
// New does the part that all loops share: signals, limits, hooks, recoveries, compaction, aborts,
// and exactly one result for every call. A custom loop is a value of Rules.
//
// A loop that answers in two steps, and stores its progress:
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
// turnpiketest.Loop checks the guarantees that every loop must give. docs/how-to/write-a-loop.md
// explains how to write one.
//
// # Guarantees
//
//   - The commit of a turn stores the loop's own state with the decision; only the loop reads it. A worker
//     that takes over a turn calls the loop again with the state of the previous commit.
//   - Limits, signals and aborts apply whatever a loop decides: [New] checks them first.
//   - Every tool call gets exactly one result, in order (I5).
package loop
