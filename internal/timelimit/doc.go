// Package timelimit keeps time limits on calls that may ignore their context: tools,
// hooks and models that others have written.
//
//	v, ok := timelimit.Call(ctx, &calls, time.Second, func() Answer { return ask(ctx) })
//
// If ok is false, ctx has ended, and the call is still in flight a second later. Its
// goroutine continues, and its result is dropped.
//
// [Calls] counts the calls that were abandoned and still run; a worker with many of them is not ready.
//
// # Guarantees
//
//   - [Call] returns soon after its context has ended, whatever the function does.
//   - A panic of the function becomes one of the caller, as a *[Panic] with the stack of the function.
package timelimit
