package chaos

import (
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// checkDeleted checks that a deleted run leaves nothing, and that nothing acts for it afterwards.
func (c *checker) checkDeleted(w Witness) {
	if c.undone(w.Deleted) {
		return
	}
	if w.Found {
		c.broken("I1", w.ID, "the run was deleted at %s and is %s", w.Deleted.At, w.Run.Status)
	}
	c.checkGone(w)
}

// overdue is the time after which an expired run must be deleted: a gateway checks every six seconds,
// and completes another one's interrupted deletion a minute later.
const overdue = 90 * time.Second

// checkKept reports whether a run is gone because its retention expired. Until then it exists, and afterwards
// it leaves nothing.
func (c *checker) checkKept(w Witness) bool {
	over := w.Ended.Add(keptFor)
	switch {
	case w.Found:
		over = w.Run.FinishedAt.Add(keptFor)
		if w.Run.Terminal() && w.Looked.After(over.Add(overdue)) && !c.touched(w) {
			c.broken("I6", w.ID, "the run was to be deleted at %s and is there at %s", over.Format(time.TimeOnly), w.Looked.Format(time.TimeOnly))
		}
		return false
	case c.fellBack(w.Accepted.Sent, w.Looked):
		return true // a failover may have taken it, or its deletion
	case w.Ended.IsZero() && w.Looked.Before(w.Accepted.At.Add(keptFor)), !w.Ended.IsZero() && w.Looked.Before(over.Add(-slack)):
		return false // it is lost
	}
	w.Deleted.At = w.Looked
	if !w.Ended.IsZero() {
		w.Deleted.At = over
	}
	c.checkGone(w)
	return true
}

// checkGone checks that a deletion leaves a marker, and that nothing acts for the run afterwards.
func (c *checker) checkGone(w Witness) {
	for _, id := range append(slices.Clone(w.Below), w.ID) {
		if id != w.ID && slices.Contains(c.Remaining, id) {
			c.broken("I1", w.ID, "the run was deleted, and %s below it was not", id)
		}
		for _, what := range c.Remnants[id] {
			c.broken("I6", id, "the run was deleted at %s, and the store has %s", w.Deleted.At, what)
		}
		if n := len(c.Published[id]); n > 0 {
			c.broken("I9", id, "the run was deleted at %s, and the feed has %d events of it", w.Deleted.At, n)
		}
		// Before the deletion, a worker may have found it lost after a failover to an older replica.
		if slices.Contains(c.Letters, id) && !c.touched(w) {
			c.broken("I2", id, "the run was deleted at %s, and has a dead letter", w.Deleted.At)
		}
		for _, e := range c.effects[id] {
			if e.At.After(w.Deleted.At.Add(slack)) {
				c.broken("I7", id, "%s ran %s %s after the run was deleted", e.Worker, e.Tool, e.At.Sub(w.Deleted.At))
			}
		}
	}
}

// checkHooks reports hooks that received a response that is not in the log, or the failure of a run that
// did not fail, and tools that acted before their hook was called (I3).
func (c *checker) checkHooks(w Witness) {
	if c.touched(w) {
		return
	}
	said := map[string]bool{}
	for _, e := range w.Log {
		said[nonceOf(e.Message)] = true
	}
	for _, e := range c.hooks[w.ID] {
		switch {
		case e.Hook == string(hook.StopFailure):
			if !slices.ContainsFunc(w.Log, func(e state.Entry) bool { return e.Reason == state.EndModelError }) {
				c.broken("I3", w.ID, "the hook of %s was asked about a run that ended %s", e.Hook, w.Run.Transition.Reason)
			}
		case !said[e.Nonce]:
			c.broken("I3", w.ID, "the hook of %s was asked about the response %q, which is not the run's", e.Hook, e.Nonce)
		}
	}
	if w.Kind == "watched" || w.Kind == "failing" {
		for _, e := range c.unasked[w.ID] {
			c.broken("I3", w.ID, "%s ran %s for call %s, and its hook was not asked before", e.Worker, e.Tool, e.Call)
		}
	}
}

// checkProbed checks that a call with a probe acts once, under whatever key, and that the model reads the
// outcome (I4).
func (c *checker) checkProbed(w Witness) {
	if w.Kind != "probed" || c.touched(w) {
		return
	}
	results := map[string]string{}
	for _, e := range w.Log {
		if e.Type == state.EntryTool && e.Message != nil {
			results[e.CallID] = e.Message.Parts[0].Content
		}
	}
	keys := map[string]string{} // by call
	for _, e := range c.effects[w.ID] {
		if e.Tool != "sure" {
			continue
		}
		if was, again := keys[e.Call]; again && was != e.Key {
			c.broken("I4", w.ID, "call %s of sure was made under two keys, %s and %s", e.Call, was, e.Key)
		}
		keys[e.Call] = e.Key
		if w.Run.Status == string(state.Completed) && !w.Aborting && !w.Mode.Interrupts() && results[e.Call] != e.Result {
			c.broken("I4", w.ID, "call %s of sure was made, and the model reads %q", e.Call, results[e.Call])
		}
	}
}

// fewest is the minimum number of interrupted runs for a judgment about recoveries.
const fewest = 8

// checkRecoveries checks that, with a lease longer than failure detection needs, most runs of a dead worker
// continue before its lease ends (I2).
func (c *checker) checkRecoveries() {
	var took []time.Duration
	for _, r := range c.Recoveries {
		if r.Kind == "worker killed" {
			took = append(took, r.Took)
		}
	}
	slices.Sort(took)
	if c.Lease < longLease || len(took) < fewest {
		return
	}
	if half := quantile(took, 0.5); half > c.Lease/2 {
		c.broken("I2", "", "half of the runs that a worker's death interrupted were taken up after %v, of a lease of %v", half, c.Lease)
	}
}
