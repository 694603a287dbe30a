package state

import (
	"context"
	"time"
)

// Quotas keep the rate limits that all workers of a deployment share. A key names the unit that a
// provider limits: a group of models that one API key uses at one address of a provider. A key consists
// of letters, digits and hyphens. A store may delete its record of a key a day after the last use.
//
// A quota has its own clock, derived from the store's. That clock stands still during a pause and runs
// slow for a while after one, which delays everything scheduled on it by as much, the reservations of
// waiting callers included.
//
// Quotas are exempt from the rule that a repeated call applies once: if the caller repeats a call,
// it may count twice. Retries inside the store, after a lost reply, count once.
type Quotas interface {
	// Take requests permission to make one call now. If the caller must wait, Take counts nothing
	// but the caller's reservation.
	Take(ctx context.Context, key string, t Take) (Taken, error)

	// Correct adjusts the estimate of an admitted call by the tokens that it used more, or, if
	// negative, less.
	Correct(ctx context.Context, key string, q Quota, tokens int64) error

	// Pause makes Take admit no calls for d, because the provider demanded it (HTTP 429), and halves the rate after
	// that, down to a twentieth. During a pause another one only extends it, if it ends later. A d above an hour
	// counts as an hour, and one of 0 or less as 2 s. The rate recovers by a twentieth of the full rate every 10 s.
	Pause(ctx context.Context, key string, d time.Duration) error

	// Paused returns the keys whose rate a pause may still reduce. Callers need not call Take for
	// a key that has no limit and is not among them.
	Paused(ctx context.Context) ([]string, error)
}

// Quota is a provider's limit per minute; 0 means no limit. Take admits about a twentieth of it at
// once and spreads the rest over the minute.
type Quota struct {
	Requests int64
	Tokens   int64
}

// Take is a request to a quota for one call.
type Take struct {
	Quota Quota

	// Tokens that the call is expected to use. Take admits a call, however large, once the rate allows
	// for the tokens of the earlier calls.
	Tokens int64

	// Reservation from an earlier Taken, if the caller has waited for it; 0 means none.
	Reservation int64

	// NoReservation means that a caller that must wait gets no reservation, because it may not return.
	NoReservation bool
}

// Taken is the result of Take. The caller may make the call if Wait is 0. Otherwise it must call Take
// again with the Reservation after that time, measured on the store's clock. Take then admits that call
// before those of all later callers, unless a Pause, a Correct or callers that came after their own
// reserved time have moved it: Take then returns another Wait. A Reservation of 0 (with NoReservation, or
// if calls already wait for an hour) means that nothing is reserved: after Wait, the caller starts over.
type Taken struct {
	Wait        time.Duration
	Reservation int64 // on the quota's own clock, in microseconds
	Paused      bool  // the provider asked for this wait, not the quota
}

// Reservation is the time, Taken.Reservation, that the quota of Key has reserved for the next call of a run.
type Reservation struct {
	Key string `json:"key"`
	At  int64  `json:"at"`
}
