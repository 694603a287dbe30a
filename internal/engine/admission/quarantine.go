package admission

import "sync"

// Quarantine bounds how many turns a worker has in flight at once with which others were
// lost before: one of them may be what kills workers, and then it takes its neighbours
// with it. Of those with which one worker was lost, as many as there are slots may be
// together, so that an ordinary death costs no time; of those that lost two, 32; and
// the last two attempts are each alone. So the turn that kills is told from those that
// were only near it before these have used up their attempts.
type Quarantine struct {
	slots    int64
	attempts int

	mu   sync.Mutex
	used int64 // of slots, by weight
}

// NewQuarantine returns a quarantine for a worker with so many slots, where a turn has so
// many attempts.
func NewQuarantine(slots, attempts int) *Quarantine {
	return &Quarantine{slots: int64(slots), attempts: attempts}
}

// Admit reports whether an attempt at a turn may begin beside those that have; done ends
// it. A turn that only ends, since it was aborted or has no attempts left, asks no model
// and calls no tool: it is always admitted. A nil Quarantine admits everything.
func (q *Quarantine) Admit(attempt int, aborted bool) (done func(), ok bool) {
	if q == nil || aborted {
		return func() {}, true
	}
	n := q.weight(attempt)
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > 0 && q.used+n > q.slots {
		return nil, false
	}
	q.used += n
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.used -= n
	}, true
}

// Refused returns which attempts would not be admitted now, from the first to the last; 0
// and 0 is none.
func (q *Quarantine) Refused() (from, to int) {
	if q == nil {
		return 0, 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for attempt := 2; attempt <= q.attempts; attempt++ { // the more attempts, the more weight
		if q.used+q.weight(attempt) > q.slots {
			return attempt, q.attempts
		}
	}
	return 0, 0
}

func (q *Quarantine) weight(attempt int) int64 {
	if attempt <= 1 || attempt > q.attempts {
		return 0
	}
	switch left := q.attempts - 1 - attempt; {
	case left <= 0:
		return q.slots
	case left == 1:
		return max(1, q.slots/32)
	default: // however many slots there are: an ordinary death fills no quarantine
		return 1
	}
}
