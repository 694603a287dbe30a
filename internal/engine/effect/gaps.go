package effect

import (
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	gapsKept  = 16   // of an agent
	gapAgents = 1024 // whose gaps are kept; one more clears all

	// A provider that keeps a prompt for five minutes keeps it for an hour at a higher price. The
	// price pays if the next call is made between the two.
	shortCache = 5 * time.Minute
	longCache  = time.Hour

	// longShare is the least share of gaps in between at which an hour pays: writing the new part of
	// a prompt costs 0.75 of the input price more, and writing all of it again 1.15 more than reading.
	longShare = 0.25
)

// gaps learns how long the runs of each agent wait between two model calls: for an approval, a child
// or a slow tool. It is safe for concurrent use.
type gaps struct {
	mu     sync.Mutex
	agents map[string]*recent
}

// recent are the latest gaps of an agent, in a ring.
type recent struct {
	long [gapsKept]bool
	n    int // seen in all
}

// longWait reports whether the model call after the present one is likely to come at least five minutes and less than
// an hour later, so that a prompt cache of five minutes will have expired and one of an hour will not. It is likely
// if the run waited that long before the present call, or if runs of its agent often do. longWait also records the
// wait before the present call.
func (g *gaps) longWait(s *state.State, now time.Time) bool {
	last := loop.CalledAt(s.Log)
	g.mu.Lock()
	defer g.mu.Unlock()
	name := s.Tenant + "\x00" + s.Definition().Name
	of := g.agents[name]
	if of == nil {
		if g.agents == nil || len(g.agents) == gapAgents {
			g.agents = map[string]*recent{}
		}
		of = &recent{}
		g.agents[name] = of
	}
	long := false
	if !last.IsZero() {
		gap := now.Sub(last)
		long = gap >= shortCache && gap < longCache
		of.long[of.n%gapsKept] = long
		of.n++
	}
	return long || of.often()
}

func (r *recent) often() bool {
	have := min(r.n, gapsKept)
	long := 0
	for _, is := range r.long[:have] {
		if is {
			long++
		}
	}
	return long > 0 && float64(long) >= longShare*float64(have)
}
