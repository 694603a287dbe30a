package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// wire is the bus as one process reaches it.
type wire struct {
	bus.Bus // methods without faults: Ready, Close

	p *process
}

// PublishTurn publishes a turn. The server may lose it, duplicate it, or delay it.
func (w wire) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	return do0(ctx, w.p, toBus, "publish turn", func() error {
		f := w.p.deployment.faults()
		switch {
		case f == nil:
		case w.p.dice.chance(f.Loss):
			w.p.deployment.note(lost, "%s: turn %s lost", w.p.name, id)
			return nil
		case w.p.dice.chance(f.Double):
			w.p.deployment.note(doubled, "%s: turn %s doubled", w.p.name, id)
			if err := w.Bus.PublishTurn(ctx, t, fmt.Sprintf("%s:double:%d", id, time.Now().UnixNano())); err != nil {
				return err
			}
		case w.p.dice.chance(f.Late):
			d := w.p.dice.between(0, 2*time.Minute)
			w.p.deployment.note(late, "%s: turn %s late by %s", w.p.name, id, d)
			w.p.deployment.wg.Go(func() {
				time.Sleep(d)
				_ = w.Bus.PublishTurn(context.WithoutCancel(ctx), t, id)
			})
			return nil
		}
		return w.Bus.PublishTurn(ctx, t, id)
	})
}

func (w wire) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	q, err := w.Bus.Turns(ctx, key)
	return queue{q, w.p}, err
}

func (w wire) StickyTurns(ctx context.Context, worker string) (bus.TurnQueue, error) {
	q, err := w.Bus.StickyTurns(ctx, worker)
	return queue{q, w.p}, err
}

func (w wire) Lag(ctx context.Context) (int64, error) {
	return do(ctx, w.p, toBus, "lag", func() (int64, error) { return w.Bus.Lag(ctx) })
}

func (w wire) Backlog(ctx context.Context) (state.Backlog, error) {
	return do(ctx, w.p, toBus, "backlog", func() (state.Backlog, error) { return w.Bus.Backlog(ctx) })
}

// PublishEvents stores the events, or some of them.
func (w wire) PublishEvents(ctx context.Context, tenant string, run state.RunID, events []bus.Event) error {
	return do0(ctx, w.p, toBus, "publish events", func() error {
		for i, e := range events {
			if i > 0 {
				if err := w.p.pass(toBus, "between two events"); err != nil {
					return err
				}
			}
			if err := w.Bus.PublishEvents(ctx, tenant, run, []bus.Event{e}); err != nil {
				return err
			}
			w.p.deployment.published(run, e)
		}
		return nil
	})
}

func (w wire) LastEvent(ctx context.Context, tenant string, run state.RunID) (int64, error) {
	return do(ctx, w.p, toBus, "last event", func() (int64, error) { return w.Bus.LastEvent(ctx, tenant, run) })
}

func (w wire) NotifyAppended(tenant string, run state.RunID, from, to int64) {
	if w.p.reaches(toBus) {
		w.Bus.NotifyAppended(tenant, run, from, to)
	}
}

func (w wire) Deleted(tenant string, run state.RunID) {
	if w.p.reaches(toBus) {
		w.Bus.Deleted(tenant, run)
	}
}

func (w wire) PublishLive(run state.RunID, data []byte) {
	if w.p.reaches(toBus) {
		w.Bus.PublishLive(run, data)
	}
}

func (w wire) Watch(ctx context.Context, run state.RunID, fn func(bus.Notice)) (func(), error) {
	return w.Bus.Watch(ctx, run, func(n bus.Notice) {
		if w.p.alive() {
			fn(n)
		}
	})
}

func (w wire) PublishAbort(ctx context.Context, a bus.Abort) error {
	return do0(ctx, w.p, toBus, "publish abort", func() error { return w.Bus.PublishAbort(ctx, a) })
}

// Aborts delivers most aborts.
func (w wire) Aborts(ctx context.Context, fn func(bus.Abort)) (func(), error) {
	return w.Bus.Aborts(ctx, func(a bus.Abort) {
		w.p.deployment.wg.Go(func() {
			if w.p.pass(toBus, "hear of abort") == nil {
				fn(a)
				w.p.deployment.outside.saw(w.p, a.Run)
				w.p.deployment.note("", "%s: %s: has heard of the abort", w.p.name, a.Run)
			}
		})
	})
}

func (w wire) Submissions(ctx context.Context) (bus.Queue, error) {
	q, err := w.Bus.Submissions(ctx)
	return intake{q, w.p}, err
}

func (w wire) AbortRequests(ctx context.Context) (bus.Queue, error) {
	q, err := w.Bus.AbortRequests(ctx)
	return intake{q, w.p}, err
}

func (w wire) SendHeartbeat(b bus.Heartbeat) {
	if w.p.reaches(toBus) {
		w.Bus.SendHeartbeat(b)
	}
}

func (w wire) Heartbeats(ctx context.Context, fn func(bus.Heartbeat)) (func(), error) {
	return w.Bus.Heartbeats(ctx, func(b bus.Heartbeat) {
		if w.p.reaches(toBus) {
			fn(b)
		}
	})
}

// queue hands out turns to one process.
type queue struct {
	bus.TurnQueue

	p *process
}

func (q queue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	d, err := q.TurnQueue.Next(ctx)
	if err != nil {
		return nil, err
	}
	if err := q.p.pass(toBus, "next turn"); err != nil {
		return nil, err // the message has no receiver
	}
	return delivery{d, q.p}, nil
}

type delivery struct {
	bus.TurnDelivery

	p *process
}

func (d delivery) reply(what string, send func() error) error {
	return do0(context.Background(), d.p, toBus, what, send)
}

func (d delivery) Ack() error        { return d.reply("ack", d.TurnDelivery.Ack) }
func (d delivery) InProgress() error { return d.reply("in progress", d.TurnDelivery.InProgress) }
func (d delivery) Nak(t time.Duration) error {
	return d.reply("nak", func() error { return d.TurnDelivery.Nak(t) })
}

type intake struct {
	bus.Queue

	p *process
}

func (q intake) Next(ctx context.Context) (bus.Message, error) {
	m, err := q.Queue.Next(ctx)
	if err != nil {
		return nil, err
	}
	if err := q.p.pass(toBus, "next message"); err != nil {
		return nil, err
	}
	return m, nil
}
