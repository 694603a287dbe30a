package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

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

// Survive is deferred around work for a run. It logs a panic, so that the panic ends that work and
// nothing else.
func Survive(log zerolog.Logger, run state.RunID) {
	p := timelimit.Caught(recover())
	if p == nil {
		return
	}
	log.Error().Str("run_id", string(run)).Interface("panic", p.Value).Bytes("stack", p.Stack).
		Str("hint", "a defect of a loop, of a part of your own, or of Turnpike; the worker tries again").Msg("turn panicked")
}

// debug logs an error that changes nothing, such as a lost ack: it means one more delivery.
func debug(log zerolog.Logger, err error, message string) {
	if err != nil {
		log.Debug().Err(err).Msg(message)
	}
}

// finalizing is what the sweeper needs of a Finalizer.
type finalizing interface {
	FinalizeRun(ctx context.Context, id state.RunID, done int64) error
}
