// Package budget is the arithmetic of limits: which are used up, which soon will be, and the number
// of calls left. It is pure.
//
// Limits are in [state.Limits], usage in [state.Usage]. Before each model call a loop checks
// whether a limit is reached:
//
//	reason, limit, over := budget.Exhausted(run.Limits, run.Usage, turns, now)
//	if over {
//		return end(reason, "reached "+limit)
//	}
//
// [Warnings] returns each limit once, at a fraction of it; [Tokens] decides whether a run with a
// token budget continues.
//
// # Guarantees
//
//   - Limits are checked before each model call and charged after it, so spend exceeds a
//     limit by at most the one call that was in flight (I10).
//   - Equal arguments give equal results; the time is an argument.
package budget
