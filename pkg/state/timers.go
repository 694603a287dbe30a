package state

import (
	"context"
	"time"
)

// TimerKind is the kind of a timer: lower-case letters, digits and hyphens.
type TimerKind string

// TimerID identifies a timer. Tenant is the name of a tenant, Name any text that is not empty.
type TimerID struct {
	Tenant string
	Kind   TimerKind
	Name   string
}

// Timers is the fourth part of the port: the times at which something that is not a run is due, such
// as a schedule or the delivery of a message. A timer has a name, a time and a note; only the caller
// knows what is due. Stores are made for some ten thousand timers that are due in the same minute.
//
// Times are those of the store's clock, in milliseconds. A claimer may die after its action and before
// AckTimer; another claim then repeats the action. So callers act at least once, and use the timer and
// TimerClaim.Due as the idempotency key.
type Timers interface {
	// PutTimer sets the time at which a timer is due, whether the timer exists or not, and removes its
	// note. A zero time removes the timer, if it exists. PutTimer ends a claim of the timer: AckTimer of that
	// claim returns ErrFenced. A repetition after an unknown outcome may end a claim that began in between.
	PutTimer(ctx context.Context, id TimerID, due time.Time) error

	// Timer returns the time at which a timer is due. A claim does not change that time. The error is
	// ErrNotFound if the timer does not exist.
	Timer(ctx context.Context, id TimerID) (due time.Time, err error)

	// ClaimTimers claims up to limit timers of a kind that are due, of all tenants: until the lease ends, or PutTimer
	// or AckTimer changes the timer, no other call in any process claims it. If it returns fewer than limit, no others
	// were due, except those that another process has put a moment ago. Limit is more than 0. A lease of 0 expires at
	// once. After an error the outcome is unknown: timers that the call has claimed can be claimed again when the
	// lease ends.
	ClaimTimers(ctx context.Context, kind TimerKind, limit int, lease time.Duration) ([]TimerClaim, error)

	// ListTimers returns up to limit timers of a tenant and a kind, including claimed ones, sorted by the
	// bytes of their names. It starts with the first name greater than after; "" starts at the beginning. If it
	// returns fewer than limit, no more follow, except those that another process has put a moment ago. Limit is
	// more than 0.
	ListTimers(ctx context.Context, tenant string, kind TimerKind, after string, limit int) ([]Timer, error)

	// AckTimer ends a claim, stores its note, and sets the time at which the timer is due next; a zero time removes
	// it. The error is ErrFenced, and AckTimer changes nothing, if the timer was claimed again, put or removed
	// since. Until then a claim stays valid even after its lease has expired. A repetition after an unknown outcome
	// returns ErrFenced if the first call has succeeded.
	AckTimer(ctx context.Context, c TimerClaim, next time.Time) error
}

// Timer is a timer as ListTimers returns it.
type Timer struct {
	Name string
	Due  time.Time // as the method Timer returns it
	Note string
}

// TimerClaim is the right to act on a timer that is due.
type TimerClaim struct {
	TimerID

	Due     time.Time // the time at which it was due
	Version int64     // identifies the claim among all of the timer

	// Note is what the latest AckTimer since PutTimer has stored with the timer, in the same write as its time. The
	// holder of the claim may change it before it acknowledges, but must keep it valid UTF-8 of at most 1,024 bytes.
	Note string
}
