package admission

import "golang.org/x/sync/semaphore"

// Quarantine bounds how many turns a worker has in flight at once with which others were
// lost before: one of them may be what kills workers, and then it takes its neighbours
// with it. Of those with which one worker was lost, as many as there are slots may be
// together, so that an ordinary death costs no time; of those that lost two, 32; and
// the last two attempts are each alone. So the turn that kills is told from those that
// were only near it before these have used up their attempts.
type Quarantine struct {
	capacity *semaphore.Weighted
	slots    int64
	attempts int
}

// NewQuarantine returns a quarantine for a worker with so many slots, where a turn has so
// many attempts.
func NewQuarantine(slots, attempts int) *Quarantine {
	return &Quarantine{semaphore.NewWeighted(int64(slots)), int64(slots), attempts}
}

// Admit reports whether an attempt at a turn may begin beside those that have; done ends
// it. A turn that only ends, since it was aborted or has no attempts left, asks no model
// and calls no tool: it is always admitted. A nil Quarantine admits everything.
func (q *Quarantine) Admit(attempt int, aborted bool) (done func(), ok bool) {
	if q == nil {
		return func() {}, true
	}
	n := q.weight(attempt, aborted)
	return func() { q.capacity.Release(n) }, q.capacity.TryAcquire(n)
}

func (q *Quarantine) weight(attempt int, aborted bool) int64 {
	if attempt <= 1 || attempt > q.attempts || aborted {
		return 0
	}
	return max(1, q.slots>>(5*max(0, q.attempts-1-attempt)))
}
