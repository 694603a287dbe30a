package state

import (
	"context"
	"time"
)

// Quotas keep the rate limits that all workers of a deployment share (A17). A key
// names whatever a provider counts: a provider, an address, an API key and the
// models that go together; it is made of letters, digits and hyphens. What a store knows of a key it may forget a day after
// the key was last used.
//
// A quota has a clock of its own. It is the store's clock, but it stands still
// during a pause and is slow for a while after one, so that everything that it was
// to let in, those who wait for their place included, comes later by as much.
//
// The rule that a repeated call applies once does not hold here: a caller that repeats one
// may be counted twice. What a store repeats by itself, after a reply that was lost, counts
// once.
type Quotas interface {
	// Take asks for the right to make one call now. Nothing is counted where the
	// answer is to wait, but for the place of the caller among those who wait.
	Take(ctx context.Context, key string, t Take) (Taken, error)

	// Correct corrects the estimate of a call that was let in: by how many tokens it
	// used more, or less.
	Correct(ctx context.Context, key string, q Quota, tokens int64) error

	// Pause lets nobody in for d, because the provider said so (HTTP 429), and
	// halves the pace after it. Pauses do not add up, and are an hour at most; d of
	// 0 is a short one. The pace recovers by itself within minutes.
	Pause(ctx context.Context, key string, d time.Duration) error

	// Paused returns the keys that a pause has slowed down lately. For a key without
	// a limit that is not among them, nobody needs to ask.
	Paused(ctx context.Context) ([]string, error)
}

// Quota is how much may be asked of a provider in any minute; 0 is no limit. About
// a twentieth of it may come at once, the rest spread over the minute.
type Quota struct {
	Requests int64
	Tokens   int64
}

// Take asks a quota for one call.
type Take struct {
	Quota Quota

	// Tokens that the call is expected to use. A call is let in when those before it
	// are paid for, however large it is itself.
	Tokens int64

	// Reservation that an earlier answer gave, and for which the caller has waited; 0 is
	// none.
	Reservation int64

	// NoReservation reserves nothing for the caller if it has to wait: it may not come back.
	NoReservation bool
}

// Taken is the answer of a quota. The call may be made if Wait is 0. Otherwise the
// caller is to come back with its Reservation after that time, measured on the store's
// clock. It then goes before all who came later and, if the quota was not paused
// meanwhile, is let in. Without a Reservation (the queue is an hour long) it begins anew.
type Taken struct {
	Wait        time.Duration
	Reservation int64 // on the quota's own clock, in microseconds
	Paused      bool  // the provider asked for this wait, not the quota
}

// Reservation is the time that a quota has reserved for the next call of a run.
type Reservation struct {
	Key string `json:"key"`
	At  int64  `json:"at"`
}
