// Package budget is the arithmetic of limits: what is used up, what soon will be, and how many
// calls are left. It is pure.
//
// Limits are in [state.Limits], what was spent in [state.Usage]. Before each model call a loop
// asks whether a limit is reached:
//
//	reason, limit, over := budget.Exhausted(run.Limits, run.Usage, turns, now)
//	if over {
//		return end(reason, "reached "+limit)
//	}
//
// [Warnings] are given once for each limit, at a share of it; [Tokens] decides whether a run with
// a token budget goes on.
//
// # Guarantees
//
//   - Limits are checked before each model call and charged after it, so spend exceeds a
//     limit by at most the one call that was in flight (I10).
//   - Equal arguments give equal results; the time is an argument.
package budget
