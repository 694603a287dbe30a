// Package tool is the contract with the things that an agent can do.
//
//   - [Tool] makes calls; [Func] is one in Go. [Call] is one call, [Result] what the model reads.
//   - A kind of tool has two halves. [Spec] is what gateways and workers must know of it: how its
//     definitions are read, and what a call needs. [Kind] is what only a worker does: expand,
//     describe, call. Package toolspec has the kinds that ship with Turnpike.
//   - [Kinds] and [Specs] are registries, which a process passes to its worker or gateway.
//
// A tool in Go:
//
//	timetable := tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
//		return tool.Result{Content: "The 9:02 leaves from platform 4."}, nil
//	})
//
// examples/toolkind is a kind of a third party.
//
// # Guarantees
//
//   - A tool that is not declared idempotent is started at most once for a call. If its worker dies
//     meanwhile, its [Probe] is asked what became of it. If it has none, or that cannot say, the
//     model learns that the outcome is unknown. A call that a probe knows to have come to nothing
//     is started once more (I4).
//   - An idempotent one may be called again, with the same [Call.IdempotencyKey].
//   - The context of a call ends with its timeout, with an abort and with a lost lease.
//   - Every call gets exactly one result, in the order of the calls (I5).
package tool
