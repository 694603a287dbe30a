package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The number of messages per thousand that a worker disturbs, by kind, and the number of protocol steps per ten
// thousand at which it dies.
const (
	doubled   = 10
	lost      = 3
	reordered = 10
	deadly    = 15
)

// noise injects faults inside a worker: it dies at exact steps of the protocol, which a kill from outside hits
// only by luck.
type noise struct {
	worker string
	ledger *Ledger
}

// dies sometimes kills the process. The ledger names the step.
func (n noise) dies(step string, run state.RunID) {
	if rand.IntN(10_000) >= deadly { //nolint:gosec // not a secret
		return
	}
	_ = n.note("died "+step, run)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (n noise) note(fault string, run state.RunID) error {
	return n.ledger.Append(Effect{At: time.Now(), Worker: n.worker, Run: string(run), Fault: fault})
}

// noisyStore is a store around whose writes its worker dies.
type noisyStore struct {
	state.Store
	noise
}

// Claim implements state.Turns.
func (s *noisyStore) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	c, err := s.Store.Claim(ctx, r)
	s.dies("after a claim", r.Run)
	return c, err
}

// Record implements state.Turns.
func (s *noisyStore) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	s.dies("before a record", l.Run)
	abort, err := s.Store.Record(ctx, l, r)
	s.dies("after a record", l.Run)
	return abort, err
}

// Commit implements state.Turns.
func (s *noisyStore) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	s.dies("before a commit", l.Run)
	done, err := s.Store.Commit(ctx, l, c)
	s.dies("after a commit", l.Run)
	return done, err
}

// Release implements state.Turns.
func (s *noisyStore) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	err := s.Store.Release(ctx, l, delay)
	s.dies("after a release", l.Run)
	return err
}

// noisyBus is a bus that duplicates, loses and reorders messages.
type noisyBus struct {
	bus.Bus
	noise
}

// PublishTurn implements bus.Turns.
func (b *noisyBus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	n := rand.IntN(1000) //nolint:gosec // not a secret
	switch {
	case n < lost:
		return b.note("turn message lost", t.Run)
	case n < lost+reordered:
		go func() { // ends with the message, or with the process
			if rig.Pause(context.WithoutCancel(ctx), rand.N(time.Second)) { //nolint:gosec // not a secret
				_ = b.Bus.PublishTurn(context.WithoutCancel(ctx), t, id)
			}
		}()
		return b.note("turn message late", t.Run)
	case n < lost+reordered+doubled:
		// It has another id, because the server would drop it otherwise.
		if err := b.Bus.PublishTurn(ctx, t, id+":"+ulid.Make().String()); err != nil {
			return err
		}
		if err := b.note("turn message doubled", t.Run); err != nil {
			return err
		}
	}
	err := b.Bus.PublishTurn(ctx, t, id)
	b.dies("after it published a turn", t.Run)
	return err
}

// PublishEvents implements bus.Feed.
func (b *noisyBus) PublishEvents(ctx context.Context, tenant string, run state.RunID, events []bus.Event) error {
	if rand.IntN(1000) < doubled { //nolint:gosec // not a secret
		if err := b.Bus.PublishEvents(ctx, tenant, run, events); err != nil {
			return err
		}
		if err := b.note("events doubled", run); err != nil {
			return err
		}
	}
	err := b.Bus.PublishEvents(ctx, tenant, run, events)
	b.dies("after it published events", run)
	return err
}
