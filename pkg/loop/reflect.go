package loop

import (
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Reflective is the loop that thinks, executes and reflects (L1): it judges its progress without a model call, and
// adjusts a confidence. It does so after an answer, and after its tools at the interval that the agent sets, if the
// last result is an error, or if calls repeat. In addition to an answer, a terminal tool, enough confidence (L2) or
// repeated calls (L3) end a run. If the agent disables reflection, the loop judges nothing, and
// no confidence ends a run.
func Reflective(a *agent.Agent) Loop { return New(a, ReflectRules()) }

// ReflectRules returns the rules of Reflective, to which conditions can be added.
func ReflectRules() Rules {
	return Rules{OnAnswer: reflectOnAnswer, AfterTools: reflectOnWork, breaksLoops: true}
}

// The findings of a reflection, and their effect on the confidence. A gain is multiplied by
// 1 minus the confidence, a loss applies in full.
const (
	onTrack      = "on_track"
	newFindings  = "new_findings"
	stuck        = "stuck"
	loopDetected = "loop_detected"
	inError      = "error"
)

var deltas = map[string]float64{onTrack: 0.10, newFindings: 0.15, stuck: -0.10, loopDetected: -0.20, inError: -0.15}

var guidance = map[string]string{
	newFindings:  "Retrieved useful information",
	stuck:        "Tool error occurred - may need to retry or try alternative",
	loopDetected: "Breaking out of repetitive pattern - try a different approach",
	inError:      "Multiple recent errors - consider adjusting approach",
}

// usefulLength is the minimum size, in bytes, of a result that counts as a finding.
const usefulLength = 11

// reflectOnWork decides after the tools.
func reflectOnWork(t *Turn) Decision {
	c := t.agent.Reflection()
	looping := t.Looping()
	last := results(t.s.Log)
	switch {
	case slices.ContainsFunc(last, func(e state.Entry) bool { return slices.Contains(t.agent.Loop.TerminalTools, e.Name) }):
		output := deref(t.lastText())
		if output == "" {
			output = last[len(last)-1].Message.Parts[0].Content
		}
		if _, err := t.structured(&output); err != nil {
			return t.Next(state.FinalResponse, "terminal tool", state.UserText(missingOutput))
		}
		return t.Complete(state.EndCompleted, output)
	case !c.Enabled && looping:
		return t.looped()
	case !c.Enabled:
		return t.Next(state.NextTurn, "")
	}
	// The first turn has nothing to compare with, unless something went wrong.
	round := t.Count() - 1
	failed := len(last) > 0 && last[len(last)-1].IsError
	if !looping && !failed && (round == 0 || round%c.Interval != 0) {
		return t.Next(state.NextTurn, "")
	}
	found := t.reflect()
	switch {
	case looping:
		return t.looped()
	case t.confidence() >= c.Threshold:
		return t.conclude(Execute, state.EndConfident, found)
	}
	if text := guidance[found]; text != "" && c.TellGuidance {
		say := state.UserText("[Agent Self-Reflection] " + text)
		return t.Next(state.Reflected, found, say)
	}
	return t.Next(state.Reflected, found)
}

// reflectOnAnswer decides after a response without calls.
func reflectOnAnswer(t *Turn, text string) Decision {
	c := t.agent.Reflection()
	if !c.Enabled {
		return t.Complete(state.EndCompleted, text)
	}
	// A retried turn may have its reflection already.
	if last := t.s.Log[len(t.s.Log)-1]; last.Type != state.EntryReflect {
		t.reflect()
	}
	if t.confidence() >= c.Threshold {
		return t.Complete(state.EndConfident, text)
	}
	return t.Complete(state.EndCompleted, text)
}

// confidence returns the confidence that the last reflection published, or else that of
// the submission: the loop has no other state.
func (t *Turn) confidence() float64 {
	if t.s.Facts.Confidence == nil {
		return 0
	}
	return *t.s.Facts.Confidence
}

// reflect judges the run, records the judgement, and returns the finding.
func (t *Turn) reflect() string {
	found := t.assess()
	delta := deltas[found]
	if delta > 0 {
		delta *= 1 - t.confidence()
	}
	t.Emit(Reflection{Assessment: found, Delta: deltas[found], Confidence: min(1, max(0, t.confidence()+delta)), Guidance: guidance[found]})
	return found
}

// recentCalls is the number of results that a reflection considers.
const recentCalls = 3

func (t *Turn) assess() string {
	if t.Looping() {
		return loopDetected
	}
	errors := 0
	for _, failed := range recentErrors(t.s.Log) {
		if failed {
			errors++
		}
	}
	switch {
	case errors >= 2:
		return inError
	case errors == 1:
		return stuck
	}
	last := results(t.s.Log)
	if slices.ContainsFunc(last, func(e state.Entry) bool { return len(e.Message.Parts[0].Content) >= usefulLength }) {
		return newFindings
	}
	return onTrack
}

// recentErrors reports of each of the latest results whether it is an error, the latest first.
func recentErrors(log []state.Entry) []bool {
	var recent []bool
	for i := range slices.Backward(log) {
		e := &log[i]
		if i == 0 && e.Checkpoint != nil {
			recent = append(recent, e.Checkpoint.Errors...)
		}
		if e.Type == state.EntryTool || e.Type == state.EntryReused {
			recent = append(recent, e.IsError)
		}
		if len(recent) >= recentCalls {
			return recent[:recentCalls]
		}
	}
	return recent
}

// results returns the results of the calls of the last response.
func results(log []state.Entry) []state.Entry {
	var out []state.Entry
	for _, e := range slices.Backward(log) {
		switch e.Type {
		case state.EntryModel:
			slices.Reverse(out)
			return out
		case state.EntryTool, state.EntryReused:
			out = append(out, e)
		default:
		}
	}
	return nil
}
