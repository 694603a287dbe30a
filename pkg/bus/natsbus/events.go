package natsbus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Announce implements bus.Events.
func (b *Bus) Announce(ctx context.Context, run state.RunID, events []bus.Event) error {
	return b.Tell(ctx, run, events)(ctx)
}

// sent is an event on its way.
type sent struct {
	msg    *nats.Msg // nil: it is stored
	answer pending   // zero: it was not sent
}

// Tell implements bus.Events. The messages of one call travel together, in order;
// those that failed are sent again under the same ids.
func (b *Bus) Tell(_ context.Context, run state.RunID, events []bus.Event) func(context.Context) error {
	batch := make([]sent, 0, len(events))
	subject := b.subject("events", token(string(run)))
	ids := string(run) + ":"
	var trouble error // once one message failed, the rest goes after it
	for _, e := range events {
		seq := strconv.FormatInt(e.Seq, 10)
		s := sent{msg: newMsg(subject, e.Data, ids+seq, headerSeq, seq)}
		if int64(s.msg.Size()) > b.nc.MaxPayload()-headerRoom {
			// Left out: a run must not stop for it, and watchers read the store when
			// they see the gap.
			b.log.Warn().Str("run_id", string(run)).Int64("seq", e.Seq).Int("bytes", len(e.Data)).Msg("event is larger than max_payload")
			continue
		}
		if trouble == nil {
			s.answer, trouble = b.answers.send(s.msg)
		}
		batch = append(batch, s)
	}
	return func(ctx context.Context) error { return b.stored(ctx, batch) }
}

func (b *Bus) stored(ctx context.Context, batch []sent) error {
	for i := range batch {
		s := &batch[i]
		if s.msg == nil {
			continue
		}
		if s.answer != (pending{}) {
			err := s.answer.wait(ctx, publishTimeout)
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("announce events: %w", ctx.Err())
			}
			s.answer = pending{}
			if err == nil {
				s.msg = nil
				continue
			}
		}
		if err := b.publish(ctx, s.msg); err != nil {
			return fmt.Errorf("announce event: %w", err)
		}
		s.msg = nil
	}
	return nil
}

// headerRoom is what sending adds to a message: its id.
const headerRoom = 256

// Live implements bus.Events.
func (b *Bus) Live(run state.RunID, data []byte) {
	if err := b.nc.Publish(b.subject("live", token(string(run))), data); err != nil {
		b.log.Debug().Err(err).Msg("live event")
	}
}

// Watch implements bus.Events.
func (b *Bus) Watch(ctx context.Context, run state.RunID, fn func(bus.Event)) (func(), error) {
	subjects := []string{b.subject("events", token(string(run))), b.subject("live", token(string(run)))}
	return b.listen(ctx, subjects, func(m *nats.Msg) {
		e := bus.Event{Data: m.Data}
		if text := m.Header.Get(headerSeq); text != "" {
			seq, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return
			}
			e.Seq = seq
		}
		fn(e)
	})
}

// listenBuffer is how many messages may wait for a listener before some are lost.
const listenBuffer = 1024

// listen calls fn for each message on the subjects, one at a time, until stop or
// Close. One channel for all subjects keeps the order of arrival.
func (b *Bus) listen(ctx context.Context, subjects []string, fn func(*nats.Msg)) (stop func(), err error) {
	ch := make(chan *nats.Msg, listenBuffer)
	quit, done := make(chan struct{}), make(chan struct{})
	var subs []*nats.Subscription
	drop := func() {
		for _, s := range subs {
			_ = s.Unsubscribe() // fails if the connection is gone, and the subscription with it
		}
	}
	for _, subject := range subjects {
		s, err := b.nc.ChanSubscribe(subject, ch)
		if err != nil {
			drop()
			return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		subs = append(subs, s)
	}
	// The server must know of the interest before the caller reads what was there
	// before.
	flushCtx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := b.nc.FlushWithContext(flushCtx); err != nil {
		drop()
		return nil, fmt.Errorf("subscribe to %s: %w", subjects[0], err)
	}
	end := sync.OnceFunc(func() {
		drop()
		close(quit)
		<-done
	})
	forget, err := b.onClose(end)
	if err != nil {
		drop()
		return nil, err
	}
	go func() {
		defer close(done)
		for {
			select {
			case m := <-ch:
				select {
				case <-quit:
					return
				default:
					fn(m)
				}
			case <-quit:
				return
			}
		}
	}()
	return func() { forget(); end() }, nil
}

// Beat implements bus.Presence. Not every worker's name fits into the subject, so the
// message has it, too.
func (b *Bus) Beat(beat bus.Beat) {
	data, err := json.Marshal(beat)
	if err == nil {
		err = b.nc.Publish(b.subject("presence", token(beat.Worker)), data)
	}
	if err == nil && beat.Gone {
		err = b.nc.FlushTimeout(time.Second) // the last words before the connection closes
	}
	if err != nil {
		b.log.Debug().Err(err).Msg("beat")
	}
}

// Beats implements bus.Presence.
func (b *Bus) Beats(ctx context.Context, fn func(bus.Beat)) (func(), error) {
	return b.listen(ctx, []string{b.subject("presence", "*")}, func(m *nats.Msg) {
		var beat bus.Beat
		if json.Unmarshal(m.Data, &beat) == nil && beat.Worker != "" {
			fn(beat)
		}
	})
}
