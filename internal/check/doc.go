// Package check describes what was found out about a dependency: a line of `turnpike doctor`, or a
// reason to refuse to start.
//
// A [state.Finding] has a name, what was found, whether a process must not start on it, and the remedy.
// [Err] joins the fatal ones:
//
//	findings := []state.Finding{{Name: "redis: maxmemory-policy", Fatal: true, Detail: "allkeys-lru", Remedy: "set it to noeviction"}}
//	if err := check.Err(findings); err != nil {
//		return fmt.Errorf("refused to start:\n%w", err)
//	}
//
// # Guarantees
//
// A finding that is not OK has a remedy. Findings never repeat credentials.
package check
