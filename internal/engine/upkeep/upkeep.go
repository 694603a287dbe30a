package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Periods are the times of the protocol. The worker's configuration says what each means.
type Periods struct {
	Lease           time.Duration
	RedeliveryDelay time.Duration
	Sweep           time.Duration
	Heartbeat       time.Duration
	LateResults     time.Duration
}

// storePause is the time between attempts at a store that does not answer.
const storePause = 100 * time.Millisecond

// LeaseOver reports whether an error of the store says that a lease is over: another worker has it,
// or the run is lost with all that the store had written since its copy was made.
func LeaseOver(err error) bool {
	return errors.Is(err, state.ErrFenced) || errors.Is(err, state.ErrNotFound)
}

// Survive is deferred around work for a run. It logs a panic, so that the panic ends only that
// work.
func Survive(log *slog.Logger, run state.RunID) {
	p := timelimit.Caught(recover())
	if p == nil {
		return
	}
	log.Error("turn panicked", "run_id", run, "panic", p.Value, "stack", string(p.Stack), "hint", "report the stack to the author of the loop or tool that it names, else to Turnpike; the worker retries")
}

// debug logs an error that changes nothing, such as a lost ack: it means one more delivery.
func debug(log *slog.Logger, err error, message string) {
	if err != nil {
		log.Debug(message, "error", err)
	}
}

// finalizing is what the sweeper needs of a Finalizer.
type finalizing interface {
	FinalizeRun(ctx context.Context, id state.RunID, done int64) error
}
