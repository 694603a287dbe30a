// Package eval runs cases against one or two versions of an agent and compares the results.
//
//	file, err := eval.Parse(data)
//	report, err := eval.Run(ctx, client, file, eval.Options{ID: "eval_1", Agents: []eval.Version{{Agent: "support", Version: 4}}, Repeat: 3})
//	if !report.Passed() { … }
//
// # Guarantees
//
//   - Each case has one run per version and repeat, even if the evaluating process is killed: a second evaluation
//     with the same options, [Options.ID] among them, continues the first, unless the first run of a version was
//     deleted meanwhile, which has the idempotency key of them all: then their cases run again.
//   - A case fails if its run does not complete, unless a CEL expectation of the case uses status or reason. A run
//     that waits for a person is cancelled, and its case fails.
//   - A comparison is paired by case and shows whether a difference may be due to chance.
package eval
