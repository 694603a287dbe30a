package quota

import (
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Lifetime is the time that a bucket is kept after its last change.
const Lifetime = 24 * time.Hour

// SlowUntil returns the latest time at which a quota that is paused for d at now has its full rate again.
func SlowUntil(d time.Duration, now time.Time) time.Time {
	return now.Add(pause(d) + (full-slowest)/raise*raiseEvery*time.Microsecond)
}

const (
	second = 1_000_000

	// burst is the part of a quota, in time, that may be used at once. No minute may exceed the quota,
	// so the rest of the quota is spread over a little more than the minute.
	burst  = 3 * second
	window = 60*second + burst

	// horizon is the maximum time ahead of a reservation, and the maximum cost of one call.
	horizon = 3600 * second

	// spacing is the time between the calls of a quota without a limit that waited for the end of a pause.
	spacing = second / 20

	shortPause   = 2 * second
	longestPause = 3600 * second

	// The speed of the quota's clock in percent of the store's: the full and the slowest speed, and the increase of the
	// speed at each interval raiseEvery.
	full       = 100
	slowest    = 5
	raise      = 5
	raiseEvery = 10 * second
)

// Bucket is a store's record of a quota. It is a value; methods change the receiver's copy and
// callers replace the whole. The zero value is a new bucket.
type Bucket struct {
	At    int64 `json:"at"`    // the store's clock at the last change
	Clock int64 `json:"clock"` // the quota's own clock at that time
	Speed int64 `json:"speed"` // of the quota's clock, in percent of the store's
	Raise int64 `json:"raise"` // the time, on the store's clock, at which Speed rises next
	Until int64 `json:"until"` // the end of the pause, on the store's clock

	// The times, on the quota's clock, at which the next call is admitted: Used counts the calls that were made,
	// and Reserved also those with a reservation. Requests and tokens are two limits, and the later time counts.
	UsedRequests     int64 `json:"used_requests"`
	UsedTokens       int64 `json:"used_tokens"`
	ReservedRequests int64 `json:"reserved_requests"`
	ReservedTokens   int64 `json:"reserved_tokens"`

	// Late is the next reservation for callers that came after their own and found no capacity: after an
	// outage they must not all be admitted at once.
	Late int64 `json:"late"`
}

// cost returns the time in which a quota of limit a minute admits n.
func cost(n, limit int64) int64 {
	if n <= 0 || limit <= 0 {
		return 0
	}
	n = min(n, 100_000_000) // no product is larger than what Lua counts exactly
	return min((n*window+limit-1)/limit, horizon)
}

// advance moves both clocks on to now.
func (b *Bucket) advance(now int64) {
	if b.At == 0 {
		b.At, b.Clock, b.Speed = now, now, full
	}
	t := max(b.At, min(b.Until, now))
	b.At = max(b.At, now)
	for t < b.At {
		end := b.At
		if b.Speed < full {
			end = min(end, b.Raise)
		}
		b.Clock += (end - t) * b.Speed / full
		t = end
		if b.Speed < full && t == b.Raise {
			b.Speed = min(b.Speed+raise, full)
			b.Raise += raiseEvery
		}
	}
}

// until returns the time, on the store's clock, until the quota's clock reaches at.
func (b *Bucket) until(at int64) int64 {
	t, left := max(b.At, b.Until), at-b.Clock
	speed, step := b.Speed, b.Raise
	for left > 0 {
		if speed == full {
			t += left
			break
		}
		gain := (step - t) * speed / full
		if gain >= left {
			t += (left*full + speed - 1) / speed
			break
		}
		left -= gain
		t, speed, step = step, min(speed+raise, full), step+raiseEvery
	}
	return t - b.At
}

// Take implements state.Quotas.
func (b *Bucket) Take(q state.Take, now time.Time) state.Taken {
	b.advance(now.UnixMicro())
	requests, tokens := cost(1, q.Quota.Requests), cost(q.Tokens, q.Quota.Tokens)
	paused := b.Until > b.At
	open := max(b.UsedRequests, b.UsedTokens)
	first := max(open, q.Reservation)
	if q.Reservation == 0 {
		first = max(open, b.ReservedRequests, b.ReservedTokens, b.Late)
	}
	if !paused && b.Clock >= first {
		charge(&b.UsedRequests, &b.UsedTokens, b.Clock, requests, tokens)
		if q.Reservation == 0 {
			charge(&b.ReservedRequests, &b.ReservedTokens, b.Clock, requests, tokens)
		}
		return state.Taken{}
	}
	at := max(first, b.Clock)
	reservation := at
	switch {
	case q.NoReservation:
		reservation = 0
	case q.Reservation > b.Clock: // too early, and it stays reserved
	case q.Reservation > 0:
		at = max(open, b.Late, b.Clock)
		reservation = at
		b.Late = at + max(requests, tokens, spaced(q.Quota))
	case at > b.Clock+horizon:
		at, reservation = b.Clock+horizon/2, 0
	default:
		charge(&b.ReservedRequests, &b.ReservedTokens, at, requests+spaced(q.Quota), tokens)
	}
	return state.Taken{Wait: time.Duration(b.until(at)) * time.Microsecond, Reservation: reservation, Paused: paused}
}

// spaced returns the distance between waiting callers without a limit.
func spaced(q state.Quota) int64 {
	if q.Requests > 0 || q.Tokens > 0 {
		return 0
	}
	return spacing
}

// charge counts a call at a time. Unused capacity is kept up to a burst, except that callers
// without a limit are admitted one by one.
func charge(requests, tokens *int64, at, r, t int64) {
	*requests = max(*requests, at-burst) + r
	*tokens = max(*tokens, at-burst) + t
}

// Correct implements state.Quotas.
func (b *Bucket) Correct(q state.Quota, tokens int64, now time.Time) {
	b.advance(now.UnixMicro())
	c := cost(tokens, q.Tokens) - cost(-tokens, q.Tokens)
	b.UsedTokens += c
	b.ReservedTokens += c
}

// Pause implements state.Quotas.
func (b *Bucket) Pause(d time.Duration, now time.Time) {
	b.advance(now.UnixMicro())
	// A refusal of a call that was in flight when the pause began is not new information.
	if b.Until <= b.At {
		b.Speed = max(b.Speed/2, slowest)
	}
	b.Until = max(b.Until, b.At+pause(d).Microseconds())
	b.Raise = b.Until + raiseEvery
	for _, free := range []*int64{&b.UsedRequests, &b.UsedTokens, &b.ReservedRequests, &b.ReservedTokens} {
		*free = max(*free, b.Clock) // no burst after a pause
	}
}

func pause(d time.Duration) time.Duration {
	if d.Microseconds() <= 0 {
		return shortPause * time.Microsecond
	}
	return min(d, longestPause*time.Microsecond)
}
