// Package hook is the contract with those who watch over runs: a hook is asked at fixed points of a
// turn, and may object.
//
//   - [Request] is what it is asked, at one of four points: before a tool, after a response, at a
//     stop, after a failure. [Answer] is what it says; the zero value is no objection.
//   - [Func] is a hook in Go. [Spec] and [Kind] are a kind of hook that definitions of agents may
//     name; hookspec has those that ship with Turnpike.
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
//   - A denied call is not made. The model reads why.
//   - A hook that fails, hangs or panics denies the call before a tool, and is passed over elsewhere, unless
//     on_error in the definition says otherwise.
//   - What the model said is in the journal before a hook hears of it (I3). A worker that is lost
//     meanwhile has the hooks asked again, so they may be asked twice for one turn.
package hook
