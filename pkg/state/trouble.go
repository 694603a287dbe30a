package state

// Trouble counts failures that did not have to end the run. Append folds it from the log, except for
// HookErrors, so lists need not read logs. Runs that an older build wrote have only the failures that came later.
type Trouble struct {
	// ToolErrors is the number of tool calls that were made and ended with an error.
	ToolErrors int `json:"tool_errors,omitempty"`

	// ModelRetries is the number of failed model calls that the run repeated, with the same model or
	// with a fallback.
	ModelRetries int `json:"model_retries,omitempty"`

	// Recovered is the number of attempts that ended without a result, because their worker died or
	// lost its claim, and that another attempt replaced.
	Recovered int `json:"recovered,omitempty"`

	// HookErrors is the number of hooks that failed, whether their failure was ignored or counted as
	// an objection. Loops and workers add them: the log has no entry for them. Hooks of stop_failure and those of
	// post_sampling in the last turn are not counted, because the commit does not wait for them.
	HookErrors int `json:"hook_errors,omitempty"`
}

// Any reports whether t counts a failure.
func (t Trouble) Any() bool { return t != Trouble{} }

// add counts the failure that e records, if any, except for lost attempts.
func (t *Trouble) add(e *Entry) {
	switch {
	case e.Type == EntryModel:
		t.ModelRetries += e.FailedCalls
	case e.Type == EntryTool && e.IsError && e.made():
		t.ToolErrors++
	case e.Type == EntryTransition && (e.Reason == ModelRetry || e.Reason == ModelFallback):
		t.ModelRetries++
	}
}

// lostAttempts returns the number of attempts that e replaces, if e is a transition with the reason Recovered. It omits
// those that an earlier entry of the same turn, in the log before e, has replaced.
func lostAttempts(log []Entry, e *Entry) int {
	if e.Type != EntryTransition || e.Reason != Recovered {
		return 0
	}
	before := 1
	for i := len(log) - 1; i >= 0; i-- {
		earlier := &log[i]
		if earlier.Reason == Recovered {
			before = earlier.Attempt
		}
		if earlier.Version > 0 {
			break // it is in this turn, or the commit before it
		}
	}
	return max(0, e.Attempt-before)
}
