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
	messages := uncheckedInput(t.s.Log)
	if len(messages) == 0 {
		return Decision{}, false
	}
	return Decision{Next: t.s, Effect: RunHooks{Point: hook.Input, Messages: messages}}, true
}

// uncheckedInput returns the user messages since the last response of the model and the last check,
// the oldest first. A message that arrives later makes another check necessary.
func uncheckedInput(log []state.Entry) []state.Message {
	var found []state.Message
	for i := range slices.Backward(log) {
		e := &log[i]
		switch e.Type {
		case state.EntryModel, state.EntryChecked:
			return found
		case state.EntryCompacted:
			continue
		default:
		}
		for _, m := range slices.Backward(e.Messages) { // a fork begins with those of another run
			if m.Role == state.RoleAssistant {
				return found
			}
			if saidByUser([]state.Message{m}) {
				found = slices.Insert(found, 0, m)
			}
		}
	}
	return found
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
		t.append(e)
		changed = true
	}
	if !changed {
		t.append(state.Entry{Type: state.EntryChecked, Detail: "allowed"})
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
