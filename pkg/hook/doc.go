// Package hook is the contract for observers of runs: a worker calls hooks at fixed points of a turn,
// and a hook may object.
//
//   - [Request] is the input of a hook, at one of five points: at the input, before a tool, after a response,
//     at a stop, after a failure. [Answer] is its output; the zero value means no objection.
//   - [Func] is a hook in Go. [Spec] and [Kind] define a kind of hook that agent definitions may name,
//     in addition to those that ship with Turnpike: turnpike.Options.HookKinds.
//
// A hook that refuses one tool:
//
//	refuse := hook.Func(func(ctx context.Context, r hook.Request) (hook.Answer, error) {
//		if r.Point == hook.PreTool && r.Call.Tool == "drop_table" {
//			why := "this database is read only"
//			return hook.Answer{Deny: &why}, nil
//		}
//		return hook.Answer{}, nil
//	})
//
// # Guarantees
//
//   - A denied call is not made. The model reads the reason.
//   - A hook that fails, hangs or panics denies the call before a tool, fails the run at the input, and is
//     ignored elsewhere. on_error in the definition can change this for input, pre_tool and stop.
//   - A model response is journaled before a hook receives it (I3). If a worker is lost or stopped while hooks
//     run, the next attempt calls them again, so they may run twice for one turn.
package hook
