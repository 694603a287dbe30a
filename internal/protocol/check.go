package protocol

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// check returns what must not be true of any state.
func (w *world) check() error {
	r := w.Store.Record
	if w.Store.Log.len() != r.LogLen {
		return fmt.Errorf("the log has %d entries, the record says %d", w.Store.Log.len(), r.LogLen)
	}
	version := int64(0)
	for i, e := range w.Store.Log.entries {
		if e.Seq != int64(i+1) {
			return fmt.Errorf("I9: entry %d has the number %d", i+1, e.Seq)
		}
		if e.Version > 0 && e.Reason != state.Recovered {
			if version++; e.Version != version {
				return fmt.Errorf("I1: version %d follows %d", e.Version, version-1)
			}
		}
	}
	if version != r.Version {
		return fmt.Errorf("I1: the record is at version %d, its log at %d", r.Version, version)
	}
	if r.Status == state.Waiting && (len(r.Inbox) > 0 || r.Abort != nil) {
		return fmt.Errorf("I2: the run waits with %d signals in hand", len(r.Inbox))
	}
	if r.Status.Terminal() {
		if err := paired(state.View(w.Store.Log.entries)); err != nil {
			return fmt.Errorf("I5: %w", err)
		}
	}
	return w.checkEffects()
}

// paired returns an error unless the results of each message's calls follow it, in
// order.
func paired(view []state.Message) error {
	var open []state.Part
	for _, m := range view {
		if m.Role == state.RoleTool {
			if len(open) == 0 || open[0].ID != m.Parts[0].CallID {
				return fmt.Errorf("a result of %s stands where it does not belong", m.Parts[0].CallID)
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			break
		}
		open = m.Calls()
	}
	if len(open) > 0 {
		return fmt.Errorf("the call %s has no result", open[0].ID)
	}
	return nil
}

// checkEffects compares what tools did with what the run knows. After a rollback the
// store has forgotten what it knew.
func (w *world) checkEffects() error {
	paid := 0
	for _, e := range w.Effects {
		if e.Tool == "pay" {
			paid++
		}
	}
	if w.RolledBack {
		return nil
	}
	if paid > 1 {
		return fmt.Errorf("I4: paid %d times", paid)
	}
	for _, e := range w.Effects {
		for _, known := range w.Store.Log.entries {
			if known.Type != state.EntryModel || known.Turn != e.Turn || known.Message == nil {
				continue
			}
			asked := false
			for _, c := range known.Message.Calls() {
				asked = asked || c.ID == e.Call && c.Arguments == e.Arguments
			}
			if !asked {
				return fmt.Errorf("I3: %s ran with %s, which the response of turn %d does not say", e.Tool, e.Arguments, e.Turn)
			}
		}
	}
	return nil
}
