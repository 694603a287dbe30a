package loop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// wait pauses the run until a signal arrives or the wait expires: at the run's limit for waits, which does not apply to
// children, or at the earliest Until of an open call.
func (t *Turn) wait(r state.Reason, question string) Decision {
	w := &state.Wait{Reason: r, Since: t.at, Calls: []state.WaitCall{}, Question: question}
	if r != state.WaitingChild {
		w.ExpiresAt = waitEnd(t.s.Limits, t.at)
	}
	for _, o := range t.s.Open {
		if !o.Until.IsZero() && (w.ExpiresAt.IsZero() || o.Until.Before(w.ExpiresAt.Time)) {
			w.ExpiresAt = o.Until
		}
	}
	for _, o := range t.s.Open {
		c := state.WaitCall{ID: o.ID, Tool: o.Name, Arguments: o.RawArguments(), Message: o.Question, Needs: o.Needs, RunID: o.Child}
		if o.Needs == state.NeedApproval {
			c.Hash = t.s.ApprovalHash(c.ID, c.Tool, c.Arguments)
			c.UntrustedSeen = provenance.Seen(t.s.Log)
			c.ArgsFromUntrusted = c.UntrustedSeen && provenance.FromUntrusted(t.s.Log, o.Arguments)
			if c.ArgsFromUntrusted {
				c.Sources = provenance.Sources(t.s.Log, o.Arguments)
			}
		}
		if spec := t.tool(o.Name); spec != nil {
			c.Risk = string(spec.Risk)
		}
		if o.Needs == state.NeedApproval {
			c.Message = fmt.Sprintf("%s asks for approval", o.Name)
			if o.Again != "" {
				c.Again = askedAgain(t.s.Log, o)
				c.Message = againMessage(o.Name, c.Again)
			}
		}
		w.Calls = append(w.Calls, c)
	}
	return t.move(r, state.Entry{Waiting: w})
}

// askedAgain describes the last edit of a call that waits for another approval.
func askedAgain(log []state.Entry, o state.OpenCall) *state.AskedAgain {
	again := &state.AskedAgain{Reason: o.Again, OriginalArguments: json.RawMessage("null")}
	for _, e := range slices.Backward(log) {
		if e.Type == state.EntryDecided && e.CallID == o.ID && again.EditedBy == "" && len(e.Approval.Arguments) > 0 && e.By != nil {
			again.EditedBy = e.By.Principal
		}
		if e.Type != state.EntryModel || e.Message == nil {
			continue
		}
		for _, p := range e.Message.Parts {
			if p.Type == state.PartToolCall && p.ID == o.ID {
				again.OriginalArguments = state.OpenCall{Arguments: p.Arguments}.RawArguments()
			}
		}
		break // the call is of the last response
	}
	return again
}

// againMessage explains in a sentence why a call waits for another approval.
func againMessage(tool string, again *state.AskedAgain) string {
	because := map[state.AgainReason]string{
		state.AgainFourEyes: "with four eyes another person must approve them",
		state.AgainHook:     "a hook requires approval for the new ones",
		state.AgainRule:     "the tool's approval rule matches the new ones",
	}[again.Reason]
	return fmt.Sprintf("%s asks for approval again: %s edited the arguments, and %s", tool, cmp.Or(again.EditedBy, "an approver"), because)
}
