package protocol

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/verify/invariant"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// check returns what must not be true of any state.
func (w *world) check() error {
	r := w.Store.Record
	if w.Store.Log.len() != r.LogLen {
		return fmt.Errorf("the log has %d entries, the record says %d", w.Store.Log.len(), r.LogLen)
	}
	if err := invariant.Log(w.Store.Log.entries, r.Version); err != nil {
		return err
	}
	if r.Status == state.Waiting && (len(r.Inbox) > 0 || r.Abort != nil) {
		return fmt.Errorf("I2: the run waits with %d signals in hand", len(r.Inbox))
	}
	if r.Status.Terminal() {
		if err := invariant.Paired(state.View(w.Store.Log.entries)); err != nil {
			return err
		}
	}
	return w.checkEffects()
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
