package admission

import (
	"maps"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Quarantine limits how many repeated attempts a worker makes at the same time. A repeated attempt is one at a turn
// that has lost workers before: the turn may have killed them, and may kill this worker with all its other turns.
// Each repeated attempt has a weight, and the sum of their weights is at most the number of the worker's slots. Each of
// the last two attempts at a turn weighs as much as all slots, the attempt before these as much as a 32nd of them but
// at least one, and an earlier one as much as one. So the crash of a worker hardly delays its turns, and a turn that
// keeps killing workers is soon the only repeated attempt on its worker. First attempts weigh nothing, so they may
// start next to any repeated attempt. Quarantine is safe for concurrent use.
type Quarantine struct {
	slots    int64
	attempts int

	mu   sync.Mutex
	used int64 // of slots, by weight

	deferred map[waitingTurn]deferral
}

// waitingTurn is a turn of a run, after a version.
type waitingTurn struct {
	run     state.RunID
	version int64
}

// deferral says when the message of a deferred turn returns, and when its deferral was logged last.
type deferral struct{ until, logged time.Time }

// logDeferralEvery is the shortest time between two logs of the deferral of a turn.
const logDeferralEvery = time.Minute

// NewQuarantine returns a quarantine for a worker with that many slots. attempts is the maximum of attempts at
// a turn.
func NewQuarantine(slots, attempts int) *Quarantine {
	return &Quarantine{slots: int64(slots), attempts: attempts, deferred: map[waitingTurn]deferral{}}
}

// Admit reports whether an attempt at a turn, counted from 1, may start next to the repeated attempts in
// flight. If ok, the caller must call done exactly once when the attempt ends; otherwise done is nil. First
// attempts are always admitted, and so are turns that only end their run, because it was aborted or has no
// attempts left: they make no model or tool calls. A nil Quarantine admits everything.
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

// Refused returns the range of attempts that Admit would refuse now, both ends included, or 0 and 0
// if Admit would refuse none.
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

// Defer records that a message of a turn arrived at now, that the quarantine refuses the turn,
// and that the message will be delivered again after delay. copied reports that this message is
// a copy, since another one of the turn returns only after more than half of delay; Defer then
// records nothing, and the caller must drop the message. Each crash of a worker may add a copy.
// log reports whether the caller should log the deferral: at most once a minute for each turn.
func (q *Quarantine) Defer(run state.RunID, version int64, now time.Time, delay time.Duration) (copied, log bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	turn := waitingTurn{run, version}
	was, known := q.deferred[turn]
	if now.Before(was.until.Add(-delay / 2)) { // far earlier than a message that waits
		return true, false
	}
	if !known {
		maps.DeleteFunc(q.deferred, func(_ waitingTurn, d deferral) bool { return now.Sub(d.until) > logDeferralEvery })
	}
	if log = now.Sub(was.logged) >= logDeferralEvery; log {
		was.logged = now
	}
	q.deferred[turn] = deferral{now.Add(delay), was.logged}
	return false, log
}

// Deferred returns the number of turns that wait at now because the quarantine has refused them. A nil Quarantine has
// none.
func (q *Quarantine) Deferred(now time.Time) (n int) {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.deferred {
		if now.Before(d.until) {
			n++
		}
	}
	return n
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
