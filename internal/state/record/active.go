package record

import "github.com/turnpike-dev/turnpike/pkg/state"

// ActiveRuns counts the runs of each tenant that are queued or running, by shard. It is not
// safe for use by several goroutines at once.
type ActiveRuns map[share]int

type share struct {
	shard  int
	tenant string
}

func shareOf(r Record) share { return share{r.Header.ID.Shard(), r.Header.Tenant} }

func active(s state.Status) bool { return s == state.Queued || s == state.Running }

// Move records that a run's record was replaced. from is the zero Record for a new run, and to for a
// deleted one.
func (c ActiveRuns) Move(from, to Record) {
	if active(from.Status) {
		k := shareOf(from)
		if c[k]--; c[k] == 0 {
			delete(c, k)
		}
	}
	if active(to.Status) {
		c[shareOf(to)]++
	}
}

// Noisy reports whether a run is in flight and its tenant noisy: see state.NoisyAbove. A run whose commit
// has claimed the next turn is in flight.
func (c ActiveRuns) Noisy(r Record) bool {
	return active(r.Status) && c[shareOf(r)] > state.NoisyAbove
}
