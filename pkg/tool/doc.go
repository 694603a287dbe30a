// Package tool is the contract for the tools of an agent.
//
//   - [Tool] makes calls; [Func] is one in Go. [Call] is one call, [Result] the model's view of it.
//   - A kind of tool has two halves. [Spec] is what gateways and workers need: it reads definitions and
//     states what a call needs. [Kind] is used only by workers: it expands, describes and calls tools.
//     Those of turnpike.Options.Kinds add to the kinds that ship with Turnpike.
//   - [Kinds] and [Specs] are registries, which a process passes to its worker or gateway.
//
// A tool in Go:
//
//	timetable := tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
//		return tool.Result{Content: "The 9:02 leaves from platform 4."}, nil
//	})
//
// examples/toolkind is a third-party kind.
//
// # Guarantees
//
//   - A call of a tool that is not declared idempotent is started at most once. If its worker dies or is
//     stopped during the call, the next attempt calls the [Probe] of the tool for the outcome. Without a
//     probe, or if the probe cannot tell, the model learns that the outcome is unknown. If the probe finds
//     that the call had no effect and can have none any more, the worker starts it once more (I4).
//     A call that only asked a person a question is made again with the answer.
//   - An idempotent tool may be called again, with the same [Call.IdempotencyKey].
//   - The context of a call ends with its timeout, with an abort or a message that interrupts the run, with
//     the run's deadline, with a lost lease, and with the shutdown grace of the worker.
//   - Every call gets exactly one result, in the order of the calls (I5).
package tool
