// Package invariant defines what must be true of every log, whatever happened during its writing.
// The explorer, the simulation and chaos check their logs against it.
package invariant

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Log returns an error unless entries are numbered 1 to n (I9), and their
// transitions lead from version 1 to version without leaving one out (I1).
func Log(entries []state.Entry, version int64) error {
	last := int64(0)
	for i, e := range entries {
		if e.Seq != int64(i+1) {
			return fmt.Errorf("I9: entry %d has the number %d", i+1, e.Seq)
		}
		if e.Version > 0 && e.Reason != state.Recovered {
			if last++; e.Version != last {
				return fmt.Errorf("I1: version %d follows %d", e.Version, last-1)
			}
		}
	}
	if last != version {
		return fmt.Errorf("I1: the run is at version %d, its log at %d", version, last)
	}
	return nil
}

// Paired returns an error unless the results of each message's calls follow it, in
// order, and none is left out (I5).
func Paired(view []state.Message) error {
	var open []state.Part
	for _, m := range view {
		if m.Role == state.RoleTool {
			if len(open) == 0 || open[0].ID != m.Parts[0].CallID {
				return fmt.Errorf("I5: a result of %s has no matching call before it", m.Parts[0].CallID)
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
		return fmt.Errorf("I5: the call %s has no result", open[0].ID)
	}
	return nil
}
