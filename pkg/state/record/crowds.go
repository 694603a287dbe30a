package record

import "github.com/turnpike-dev/turnpike/pkg/state"

// Crowds counts the runs of each tenant that are queued or running, by shard. It is not
// safe for use by several goroutines at once.
type Crowds map[crowd]int

type crowd struct {
	shard  int
	tenant string
}

func crowdOf(r Record) crowd { return crowd{r.Header.ID.Shard(), r.Header.Tenant} }

func active(s state.Status) bool { return s == state.Queued || s == state.Running }

// Move notes that a run's record was swapped. A run that is new comes from the zero
// Record, and one that is gone goes there.
func (c Crowds) Move(from, to Record) {
	if active(from.Status) {
		k := crowdOf(from)
		if c[k]--; c[k] == 0 {
			delete(c, k)
		}
	}
	if active(to.Status) {
		c[crowdOf(to)]++
	}
}

// Crowded reports whether a run is queued in a crowd: see state.Crowd. So is one whose
// commit has claimed its next turn.
func (c Crowds) Crowded(r Record) bool {
	return active(r.Status) && c[crowdOf(r)] > state.Crowd
}
