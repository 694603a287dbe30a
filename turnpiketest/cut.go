package turnpiketest

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// store is the store of one worker. After a crash it refuses only calls that change runs and leases: others do no harm.
type store struct {
	state.Store

	life *life
}

func (s store) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	if err := s.life.alive(); err != nil {
		return new(state.Claim), err
	}
	c, err := s.Store.Claim(ctx, r)
	if err == nil && c.Outcome == state.Claimed {
		err = s.life.pass(Claimed)
	}
	return c, err
}

func (s store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	if err := s.life.alive(); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, l, lease, delay)
}

func (s store) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	answered, started, returned := answers(r.Entries), len(r.Starts)+len(r.Started) > 0, len(r.Results) > 0
	err := s.all(step{answered, ModelAnswered}, step{returned, CallReturned})
	if err != nil {
		return nil, err
	}
	abort, err := s.Store.Record(ctx, l, r)
	if err == nil {
		err = s.all(step{answered, ModelJournaled}, step{started, CallStarted}, step{returned, ResultJournaled})
	}
	return abort, err
}

func (s store) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if err := s.life.pass(TurnDecided); err != nil {
		return state.Committed{}, err
	}
	done, err := s.Store.Commit(ctx, l, c)
	if err == nil {
		err = s.life.pass(TurnCommitted)
	}
	return done, err
}

func (s store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	if err := s.life.alive(); err != nil {
		return err
	}
	return s.Store.Release(ctx, l, delay)
}

func (s store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	if err := s.life.alive(); err != nil {
		return state.Wake{}, err
	}
	return s.Store.Signal(ctx, id, sig, delay)
}

func (s store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	if err := s.life.alive(); err != nil {
		return state.Wake{}, err
	}
	return s.Store.Abort(ctx, id, abort, delay)
}

func (s store) Create(ctx context.Context, r state.NewRun) (state.Created, error) {
	if err := s.life.alive(); err != nil {
		return state.Created{}, err
	}
	return s.Store.Create(ctx, r)
}

func (s store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	if err := s.life.alive(); err != nil {
		return nil, err
	}
	return s.Store.Sweep(ctx, limit, delay, backlog)
}

func (s store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	if err := s.life.alive(); err != nil {
		return nil, err
	}
	return s.Store.Evict(ctx, worker, limit, delay)
}

func (s store) Heartbeat(ctx context.Context, worker string, lasts time.Duration) error {
	if err := s.life.alive(); err != nil {
		return err
	}
	return s.Store.Heartbeat(ctx, worker, lasts)
}

func (s store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	if err := s.life.alive(); err != nil {
		return err
	}
	return s.Store.MarkFinalized(ctx, id, seq)
}

// step is a point that an operation passes if reached is set.
type step struct {
	reached bool
	point   Point
}

// all passes the points that are reached, in order.
func (s store) all(steps ...step) error {
	for _, st := range steps {
		if !st.reached {
			continue
		}
		if err := s.life.pass(st.point); err != nil {
			return err
		}
	}
	return s.life.alive()
}

// answers reports whether entries have a response of the model.
func answers(entries []state.Entry) bool {
	for _, e := range entries {
		if e.Type == state.EntryModel {
			return true
		}
	}
	return false
}

// wire is the bus of one worker.
type wire struct {
	bus.Bus

	life *life
}

// PublishTurn implements bus.Turns.
func (w wire) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if err := w.life.alive(); err != nil {
		return err
	}
	if err := w.Bus.PublishTurn(ctx, t, id); err != nil {
		return err
	}
	return w.life.pass(TurnPublished)
}

// SendHeartbeat implements bus.Membership.
func (w wire) SendHeartbeat(b bus.Heartbeat) {
	if w.life.alive() == nil {
		w.Bus.SendHeartbeat(b)
	}
}

// NotifyAppended implements bus.Events.
func (w wire) NotifyAppended(tenant string, run state.RunID, from, to int64) {
	if w.life.alive() == nil {
		w.Bus.NotifyAppended(tenant, run, from, to)
	}
}

// PublishLive implements bus.Events.
func (w wire) PublishLive(run state.RunID, data []byte) {
	if w.life.alive() == nil {
		w.Bus.PublishLive(run, data)
	}
}

// PublishAbort implements bus.Control.
func (w wire) PublishAbort(ctx context.Context, a bus.Abort) error {
	if err := w.life.alive(); err != nil {
		return err
	}
	return w.Bus.PublishAbort(ctx, a)
}

// DeadLetter implements bus.Intake.
func (w wire) DeadLetter(ctx context.Context, d bus.DeadLetter) error {
	if err := w.life.alive(); err != nil {
		return err
	}
	return w.Bus.DeadLetter(ctx, d)
}

// Turns implements bus.Turns.
func (w wire) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	q, err := w.Bus.Turns(ctx, key)
	if err != nil {
		return nil, err
	}
	return queue{q, w.life}, nil
}

// StickyTurns implements bus.Turns.
func (w wire) StickyTurns(ctx context.Context, worker string) (bus.TurnQueue, error) {
	q, err := w.Bus.StickyTurns(ctx, worker)
	if err != nil {
		return nil, err
	}
	return queue{q, w.life}, nil
}

// queue is a queue of turns of one worker.
type queue struct {
	bus.TurnQueue

	life *life
}

func (q queue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	d, err := q.TurnQueue.Next(ctx)
	if err != nil {
		return nil, err
	}
	if err := q.life.alive(); err != nil {
		return nil, err // the message stays unacknowledged
	}
	return delivery{d, q.life}, nil
}

// delivery is a message that one worker has received.
type delivery struct {
	bus.TurnDelivery

	life *life
}

func (d delivery) Ack() error {
	if err := d.life.alive(); err != nil {
		return err
	}
	return d.TurnDelivery.Ack()
}

func (d delivery) Nak(delay time.Duration) error {
	if err := d.life.alive(); err != nil {
		return err
	}
	return d.TurnDelivery.Nak(delay)
}

func (d delivery) InProgress() error {
	if err := d.life.alive(); err != nil {
		return err
	}
	return d.TurnDelivery.InProgress()
}
