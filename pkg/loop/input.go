package loop

import (
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// checkInput calls the input hooks if the model is about to read user messages that they have not
// seen.
func (t *Turn) checkInput() (Decision, bool) {
	if t.agent == nil || len(t.agent.Hooks(hook.Input)) == 0 {
		return Decision{}, false
	}
	messages := t.uncheckedInput()
	if len(messages) == 0 {
		return Decision{}, false
	}
	return Decision{Next: &t.s, Effect: RunHooks{Point: hook.Input, Messages: messages}}, true
}

// uncheckedInput returns the messages of callers that the model is about to read and that the hooks have not
// decided about, the oldest first: those since the last response of the model and the last check. A message
// that arrives later makes another check necessary. After a handoff it returns all that the view has, in its order,
// because the hooks of the new agent have decided about none.
func (t *Turn) uncheckedInput() []state.Message {
	var found []state.Message
	handedOff := false
scan:
	for i := range slices.Backward(t.s.Log) {
		e := &t.s.Log[i]
		switch e.Type {
		case state.EntryHandoff:
			handedOff = true
			continue
		case state.EntryCompacted:
			continue
		case state.EntryModel, state.EntryChecked:
			if !handedOff {
				break scan
			}
		default:
		}
		for _, m := range slices.Backward(e.Messages) {
			if t.ofCaller(e, m) {
				found = append(found, m)
			}
		}
		if c := e.Checkpoint; c != nil && i == 0 && handedOff {
			for _, m := range slices.Backward(c.Messages) {
				from := &state.Entry{}
				if slices.Contains(c.Submitted, m.ID) {
					from.Type = state.EntrySubmitted
				}
				if t.ofCaller(from, m) {
					found = append(found, m)
				}
			}
		}
	}
	if handedOff { // a replacement stands in the view where its original stood, and in the log later
		return slices.DeleteFunc(state.View(t.s.Log), func(m state.Message) bool {
			return !slices.ContainsFunc(found, func(said state.Message) bool { return said.ID == m.ID })
		})
	}
	slices.Reverse(found)
	return found
}

// ofCaller reports whether input hooks decide about a message of an entry: a message of a user, or, in a submission, a
// text in the role assistant or system other than the agent's instructions. A fork begins with the history of another
// run, of which hooks decide only about the messages of users.
func (t *Turn) ofCaller(e *state.Entry, m state.Message) bool {
	if e.Type != state.EntrySubmitted || e.Reason == state.Forked || m.Role == state.RoleUser {
		return saidByUser([]state.Message{m})
	}
	return m.Text() != "" && (m.Role == state.RoleAssistant || m.Role == state.RoleSystem && m.ID != instructionsOf(t.agent, t.s))
}

// inputChecked records the answers of the input hooks, and reports whether they end the run. The log
// keeps the messages as the user sent them; the view has the replacements, and no refused message,
// also if another message continues the run. A run that a hook could not check ends without a record,
// so that a replay calls the hooks again.
func (t *Turn) inputChecked(ev HooksAnswered) (Decision, bool) {
	for _, a := range ev.Answers {
		if a.Failed != nil {
			return t.hookFailed(state.EndInputHookFailed, *a.Failed), true
		}
	}
	var refused *string
	changed := false
	for i, m := range ev.Asked.Messages {
		if i >= len(ev.Answers) {
			break
		}
		e := state.Entry{Type: state.EntryChecked, MessageIDs: []string{m.ID}}
		switch a := ev.Answers[i]; {
		case a.Refuse != nil:
			e.Detail = "refused: " + *a.Refuse
			if refused == nil {
				refused = a.Refuse
			}
		case a.Replace != nil:
			instead := withText(m, *a.Replace)
			t.stamp(&instead, 0)
			e.Detail, e.Messages = "replaced", []state.Message{instead}
		default:
			continue
		}
		t.append(&e)
		changed = true
	}
	if !changed {
		t.append(&state.Entry{Type: state.EntryChecked, Detail: "allowed"})
	}
	if refused != nil {
		return t.move(state.EndRefused, state.Entry{Detail: "an input hook refused the message", Output: refused}), true
	}
	return Decision{}, false
}

// withText returns m with other text. Images stay.
func withText(m state.Message, text string) state.Message {
	parts := []state.Part{{Type: state.PartText, Text: text}}
	for _, p := range m.Parts {
		if p.Type != state.PartText {
			parts = append(parts, p)
		}
	}
	m.Parts = parts
	return m
}

func (t *Turn) countHookErrors(ev HooksAnswered) {
	for _, a := range ev.Answers {
		t.s.Trouble.HookErrors += a.Failures
	}
}
