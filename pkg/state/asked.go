package state

import "slices"

// Where a tenant requires four eyes, a principal that requests something may not approve it. A
// principal requests if it submits a run, sends a message, an answer or a result to it, or edits a
// call: in the run, the run it was forked from, or its child runs. It also requests what a
// schedule, a hook or a trigger does that it stored last. Approving and denying are not requests.

// Askers returns all and the principals that requested something in a log, each once.
func Askers(all []string, log []Entry) []string {
	if c := CheckpointOf(log); c != nil {
		all = addOnce(all, c.Askers...)
	}
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

// AskersOf returns the principals that request something with signals, each once.
func AskersOf(signals []Signal) (all []string) {
	for _, s := range signals {
		if s.By != nil && s.asks() {
			all = addOnce(all, s.By.Principal)
			all = addOnce(all, s.Requesters...)
		}
		if s.Child != nil {
			all = addOnce(all, s.Child.Requesters...)
		}
	}
	return all
}

// asks excludes edits of arguments: EntryDecided names their authors, and an approval that repeats
// the arguments of the call is not an edit.
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
