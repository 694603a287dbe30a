package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Periods are the intervals and timeouts of the protocol. worker.Config documents each.
type Periods struct {
	Lease           time.Duration
	RedeliveryDelay time.Duration
	Sweep           time.Duration
	Heartbeat       time.Duration
	LateResults     time.Duration
}

// storePause is the time between attempts at a store that does not answer.
const storePause = 100 * time.Millisecond

// LeaseOver reports whether an error of the store means that a lease has ended: another worker has
// it, or the store is an older copy without it.
func LeaseOver(err error) bool {
	return errors.Is(err, state.ErrFenced) || errors.Is(err, state.ErrNotFound)
}

// Survive must be deferred directly by work for a run. It recovers and logs a panic, so that the panic ends
// only that work.
func Survive(log *slog.Logger, run state.RunID) {
	p := timelimit.Caught(recover())
	if p == nil {
		return
	}
	log.Error("work for a run panicked; a worker retries it, unless it was only to call hooks that watch the run", "run_id", run, "panic", p.Value, "stack", string(p.Stack), "hint", "if the stack names a loop, hook or tool of yours, fix it; otherwise report this bug in Turnpike with the stack")
}

// debug logs an error that changes nothing, such as a lost ack: it means one more delivery.
func debug(log *slog.Logger, err error, message string) {
	if err != nil {
		log.Debug(message, "error", err)
	}
}

// finalizing is the part of a Finalizer that the sweeper needs.
type finalizing interface {
	FinalizeRun(ctx context.Context, id state.RunID, done int64) error
}
