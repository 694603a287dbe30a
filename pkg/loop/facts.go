package loop

import "github.com/turnpike-dev/turnpike/pkg/state"

// Fact is information about a run that a loop publishes as an entry of the run's log, which readers
// receive as an event. The set of facts is part of the contract; readers need not know the loop.
type Fact interface{ entry() state.Entry }

// Progress is the loop's next step.
type Progress struct {
	Step   int
	Action string // such as tool_call or delegate
	Target string
}

// Reflection is a judgement of the progress of the run. Confidence, from 0 to 1, becomes the confidence of the
// run in state.Facts.
type Reflection struct {
	Assessment string
	Delta      float64 // the change of confidence for the assessment, before it is scaled
	Confidence float64
	Guidance   string
}

func (p Progress) entry() state.Entry {
	return state.Entry{Type: state.EntryProgress, Step: p.Step, Action: p.Action, Target: p.Target}
}

func (r Reflection) entry() state.Entry {
	return state.Entry{
		Type: state.EntryReflect, Assessment: r.Assessment, ConfidenceDelta: r.Delta, Confidence: &r.Confidence, Guidance: r.Guidance,
	}
}

// Emit appends a fact to the log, before the entries of later steps of the turn. Readers get the event once
// the store has the entry.
func (t *Turn) Emit(f Fact) { t.append(new(f.entry())) }
