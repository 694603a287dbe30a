// Package rule compiles conditions that authors of agents write in CEL, such as when a tool call needs
// the approval of a person.
//
//	holds, err := rule.Compile(`args.amount > 100`, cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)))
//	if err != nil {
//		return err
//	}
//	yes, err := holds(rule.NewEvaluation(map[string]any{"args": map[string]any{"amount": 120}}))
//
// # Guarantees
//
//   - A condition has no effect and no access to anything but its variables.
//   - A [Budget] bounds its time and memory, alone or together with others. A [Condition] that exceeds it fails
//     instead of hanging.
//   - A [Condition] may be called from any goroutine.
package rule
