package worker

import (
	"golang.org/x/sync/semaphore"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// suspects bounds how many turns a worker has in hand at once with which others were
// lost before: one of them may be what kills workers, and then it takes its neighbours
// with it. Of those with which one worker was lost, as many as there are slots may be
// together, so that an ordinary death costs no time; of those that lost two, 32; and
// the last two attempts are each alone. So the turn that kills is told from those that
// were only near it before these have used up their attempts.
type suspects struct {
	room     *semaphore.Weighted
	slots    int64
	attempts int
}

func newSuspects(slots, attempts int) *suspects {
	return &suspects{semaphore.NewWeighted(int64(slots)), int64(slots), attempts}
}

// admit reports whether a claimed turn may begin beside those that have; done ends it.
func (s *suspects) admit(c state.Claim) (done func(), ok bool) {
	n := s.weight(c)
	return func() { s.room.Release(n) }, s.room.TryAcquire(n)
}

func (s *suspects) weight(c state.Claim) int64 {
	switch {
	case c.Attempt <= 1:
		return 0
	case c.Attempt > s.attempts || c.Abort != nil:
		return 0 // it only ends: no model is asked and no tool called
	default:
		return max(1, s.slots>>(5*max(0, s.attempts-1-c.Attempt)))
	}
}
