// Package eval runs cases against one or two versions of an agent and compares what came of them.
//
//	file, err := eval.Parse(data)
//	report, err := eval.Run(ctx, client, file, eval.Options{Agents: []eval.Version{{Agent: "support", Version: 4}}, Repeat: 3})
//	if !report.Passed() { … }
//
// # Guarantees
//
//   - Each case runs as often as the options say, once per version and repeat, whatever is killed: a
//     second evaluation with the same [Options.ID] continues the first.
//   - A run that does not complete fails its case, unless a CEL expectation of the case names status or
//     reason. A run that waits for a person is cancelled and fails.
//   - A comparison is paired by case and says when a difference is within chance.
package eval
