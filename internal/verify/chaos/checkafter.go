package chaos

import "slices"

// checkDeleted: a run that was deleted leaves nothing, and nothing acts for it afterwards.
func (c *checker) checkDeleted(w Witness) {
	if c.rolledBack(w.Deleted) {
		return
	}
	if w.Found {
		c.broken("I1", w.ID, "the run was deleted at %s and is %s", w.Deleted, w.Run.Status)
	}
	for _, id := range append(slices.Clone(w.Below), w.ID) {
		if id != w.ID && slices.Contains(c.Remaining, id) {
			c.broken("I1", w.ID, "the run was deleted, and %s below it was not", id)
		}
		if n := len(c.Published[id]); n > 0 {
			c.broken("I9", id, "the run was deleted at %s, and the feed has %d events of it", w.Deleted, n)
		}
		// Before it was deleted, a worker may have found it lost after a failover to an older copy.
		if slices.Contains(c.Letters, id) && !c.touched(w) {
			c.broken("I2", id, "the run was deleted at %s, and has a dead letter", w.Deleted)
		}
		for _, e := range c.effects[id] {
			if e.At.After(w.Deleted.Add(slack)) {
				c.broken("I7", id, "%s ran %s %s after the run was deleted", e.Worker, e.Tool, e.At.Sub(w.Deleted))
			}
		}
	}
}

// checkHooks reports hooks that received a response that is not in the log (I3).
func (c *checker) checkHooks(w Witness) {
	if c.touched(w) {
		return
	}
	said := map[string]bool{}
	for _, e := range w.Log {
		said[nonceOf(e.Message)] = true
	}
	for _, e := range c.hooks[w.ID] {
		if !said[e.Nonce] {
			c.broken("I3", w.ID, "the hook of %s was asked about the response %q, which is not the run's", e.Hook, e.Nonce)
		}
	}
}
