// Package rule compiles conditions that authors of agents write in CEL, such as when a tool call needs
// the approval of a person.
//
//	holds, err := rule.Compile(`args.amount > 100`, cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)))
//	if err != nil {
//		return err
//	}
//	yes, err := holds(map[string]any{"args": map[string]any{"amount": 120}})
//
// # Guarantees
//
//   - A condition has no effect and no access to anything but its variables.
//   - Its cost is bounded. A [Condition] that exceeds it fails instead of hanging.
//   - A [Condition] may be called from any goroutine.
package rule
