package state

import "slices"

// Who asks for something may not approve it where a tenant wants four eyes: who submits a run,
// says something to it, answers it, gives it a result or edits a call of it, in the run that it
// was forked from and in those that it has started as well. Who only approves or denies does not.

// Askers adds the principals to all who have asked for something in a log, each once.
func Askers(all []string, log []Entry) []string {
	for _, e := range log {
		if e.By != nil && e.asks() {
			all = addOnce(all, e.By.Principal)
		}
		all = addOnce(all, e.Requesters...)
	}
	return all
}

func (e *Entry) asks() bool {
	switch e.Reason {
	case Submitted, Forked, UserMessage, Answered, ToolResults:
		return true
	default:
		return len(e.Messages) > 0 || e.Approval != nil && len(e.Approval.Arguments) > 0
	}
}

// AskersOf returns the principals who ask for something with signals, each once.
func AskersOf(signals []Signal) (all []string) {
	for _, s := range signals {
		if s.By != nil && s.asks() {
			all = addOnce(all, s.By.Principal)
		}
		if s.Child != nil {
			all = addOnce(all, s.Child.Requesters...)
		}
	}
	return all
}

// asks leaves out edits of arguments: EntryDecided names their authors, and an approval that
// repeats the arguments of the call is no edit.
func (s *Signal) asks() bool {
	return s.Message != nil || s.Answer != nil || len(s.ToolResults) > 0
}

func addOnce(all []string, more ...string) []string {
	for _, m := range more {
		if !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}
