package restore

import (
	"context"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Store wraps s. While w.Waiting(), Claim answers ClaimBehind, and Sweep and Evict return no runs. Commit, Seal, a
// Create that records a run as lost, and a Record with more than results return ErrWaiting. A deletion that has already
// sealed its runs continues. All other methods, such as those that read, submit, signal and abort runs, work as usual.
// When this process has noticed the end of the wait, Sweep ignores the backlog for 30 s (resweep). When s answers
// ClaimBehind, Watch.Run compares the marks at once. A nil Watch returns s.
func (w *Watch) Store(s state.Store) state.Store {
	if w == nil {
		return s
	}
	return &store{Store: s, watch: w}
}

type store struct {
	state.Store

	watch *Watch
}

// Claim implements state.Turns.
func (s *store) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	if s.watch.Waiting() {
		return &state.Claim{Outcome: state.ClaimBehind}, nil
	}
	c, err := s.Store.Claim(ctx, r)
	if err == nil && c.Outcome == state.ClaimBehind {
		s.watch.suspect()
	}
	return c, err
}

// Record implements state.Turns. Results are kept: they are of calls that were made.
func (s *store) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	if s.watch.Waiting() && len(r.Entries)+len(r.Started)+len(r.Starts)+len(r.Awaits) > 0 {
		return nil, ErrWaiting
	}
	return s.Store.Record(ctx, l, r)
}

// Commit implements state.Turns.
func (s *store) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if s.watch.Waiting() {
		return state.Committed{}, ErrWaiting
	}
	return s.Store.Commit(ctx, l, c)
}

// resweep is the time after a wait in which sweeps ignore the backlog: its messages are of turns that the store
// does not have, or no longer waits for.
const resweep = 30 * time.Second

// Sweep implements state.Schedule.
func (s *store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	if s.watch.Waiting() {
		return nil, nil
	}
	if at := s.watch.resumed.Load(); at > 0 && time.Since(time.Unix(0, at)) < resweep {
		backlog = nil
	}
	return s.Store.Sweep(ctx, limit, delay, backlog)
}

// Evict implements state.Workers.
func (s *store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	if s.watch.Waiting() {
		return nil, nil
	}
	return s.Store.Evict(ctx, worker, limit, delay)
}

// Create implements state.Runs.
func (s *store) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if s.watch.Waiting() && n.State.Transition.Reason == state.EndLost {
		return state.Created{}, ErrWaiting
	}
	return s.Store.Create(ctx, n)
}

// Seal implements state.Deletions.
func (s *store) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	if s.watch.Waiting() {
		return nil, ErrWaiting
	}
	return s.Store.Seal(ctx, id, token)
}

// Bus wraps b. While w.Waiting(), PublishTurn returns ErrWaiting, and queues deliver no turns. When this process has
// noticed that an operator once accepted an older copy, PublishTurn adds the epoch to the ids of messages: runs then
// repeat turns, and the bus would drop their messages as duplicates. A nil Watch returns b.
func (w *Watch) Bus(b bus.Bus) bus.Bus {
	if w == nil {
		return b
	}
	return &guarded{Bus: b, watch: w}
}

type guarded struct {
	bus.Bus

	watch *Watch
}

// PublishTurn implements bus.Turns.
func (g *guarded) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if g.watch.Waiting() {
		return ErrWaiting
	}
	if epoch := g.watch.epoch.Load(); epoch > 0 {
		id += ":r" + strconv.FormatInt(epoch, 10)
	}
	return g.Bus.PublishTurn(ctx, t, id)
}

// Turns implements bus.Turns.
func (g *guarded) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	q, err := g.Bus.Turns(ctx, key)
	if err != nil {
		return nil, err
	}
	return &queue{q, g.watch}, nil
}

// StickyTurns implements bus.Turns.
func (g *guarded) StickyTurns(ctx context.Context, worker string) (bus.TurnQueue, error) {
	q, err := g.Bus.StickyTurns(ctx, worker)
	if err != nil {
		return nil, err
	}
	return &queue{q, g.watch}, nil
}

type queue struct {
	bus.TurnQueue

	watch *Watch
}

// Next implements bus.TurnQueue.
func (q *queue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	for {
		if q.watch.Waiting() {
			q.SetPrefetch(0)
			if err := q.watch.await(ctx); err != nil {
				return nil, err
			}
		}
		d, err := q.TurnQueue.Next(ctx)
		if err != nil || !q.watch.Waiting() {
			return d, err
		}
		_ = d.Nak(Interval) // else the ack wait brings it back
	}
}
