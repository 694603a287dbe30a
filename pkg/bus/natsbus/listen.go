package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// listenBuffer is the number of messages that may wait for a listener before some are lost.
const listenBuffer = 1024

// flush waits until the server has processed what the client has sent. If the connection breaks before that, the
// client sends its subscriptions again when it has reconnected, and flush waits for that.
func (b *Bus) flush(ctx context.Context) error {
	for {
		err := b.nc.FlushWithContext(ctx)
		if !errors.Is(err, nats.ErrConnectionClosed) || b.nc.IsClosed() {
			return err
		}
	}
}

// listen calls fn for messages on the subjects, one at a time and in the order of arrival, until stop or Close, which
// both wait for a call of fn in progress; fn must call neither. ctx bounds only listen. When listen returns nil, the
// server has the subscriptions. Messages are lost while listenBuffer of them wait for fn, and while the connection is
// broken. The error is bus.ErrClosed after Close.
func (b *Bus) listen(ctx context.Context, subjects []string, fn func(*nats.Msg)) (stop func(), err error) {
	ch := make(chan *nats.Msg, listenBuffer)
	quit, done := make(chan struct{}), make(chan struct{})
	var subs []*nats.Subscription
	drop := func() {
		for _, s := range subs {
			_ = s.Unsubscribe() // fails if the connection, and so the subscription, is gone
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
	// The server must have the subscription before the caller reads the earlier state.
	flushCtx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := b.flush(flushCtx); err != nil {
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
