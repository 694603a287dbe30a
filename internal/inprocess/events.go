package inprocess

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Retries of a stream that failed: the delay before each, and the maximum number without an event.
const (
	retryDelay = 250 * time.Millisecond
	retryLimit = 120
)

// permanent reports whether a call failed for a reason that does not pass.
func permanent(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return errors.Is(err, ErrClosed) || ok && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
}

// Events yields the events of a run after number after. The sequence ends without an error after the run has ended. If
// ctx ends, or an error is permanent or does not pass within retryLimit attempts, the last pair has the error.
// Committed events come in order, each once. The sequence may be used once.
func (c *Client) Events(ctx context.Context, id string, after int64) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for failures := 0; ; failures++ {
			last, enough, err := c.follow(ctx, id, after, yield)
			if enough {
				return
			}
			if last > after {
				after, failures = last, 0
			}
			if err == nil {
				// The reader also ends if the store lacked the run for a while and has it again.
				run, lost := c.Get(ctx, id)
				if lost == nil && run.Terminal() || errors.Is(lost, api.ErrNotFound) { // ended, or deleted after its end
					return
				}
				err = lost
			}
			if ctx.Err() != nil || failures == retryLimit || permanent(err) || !pause(ctx, retryDelay) {
				yield(api.Event{}, errors.Join(err, ctx.Err()))
				return
			}
		}
	}
}

// follow yields the events of one reader until the reader ends or yield returns false; enough is true in the second
// case. It returns the number of the last committed event, or after if there was none. The error is that with which the
// reader has ended. If it is nil and enough is false, the reader has ended after the run's last event, or without that
// event: see stream.Reader.Run.
func (c *Client) follow(ctx context.Context, id string, after int64, yield func(api.Event, error) bool) (last int64, enough bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	events, ended := make(chan api.Event), make(chan struct{})
	var failure error // when ended is closed
	// The reader has a goroutine of its own, so that Close need not wait for the caller's loop.
	go func() {
		defer close(ended)
		failure = c.read(ctx, id, after, events)
	}()
	defer func() { stop(); <-ended }()
	for {
		select {
		case e := <-events:
			if e.Seq > 0 && e.Seq <= after {
				continue
			}
			after = max(after, e.Seq)
			if !yield(e, nil) {
				return after, true, nil
			}
		case <-ended:
			return after, false, failure
		}
	}
}

// read sends events to a channel until the run has ended.
func (c *Client) read(ctx context.Context, id string, after int64, to chan<- api.Event) error {
	ctx, end, err := c.p.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = service.Guarded(c.p.cfg.Log, func() error {
		caller, err := c.caller()
		if err != nil {
			return err
		}
		within := service.WithBudget(ctx, c.p.cfg.Budget, true)
		if err := c.p.cfg.Service.Permit(within, caller, service.ReadLong); err != nil {
			return err
		}
		st, err := c.p.cfg.Service.Runs.Get(within, caller, id)
		if err != nil {
			return err
		}
		reader, err := c.p.cfg.Events.Open(within, st, stream.Selection{After: after})
		if err != nil {
			return err
		}
		defer reader.Close()
		return reader.Run(within, channel{within, to})
	})()
	if err != nil {
		return c.problem(ctx, err)
	}
	return nil
}

// channel sends the events of a reader to a channel.
type channel struct {
	ctx context.Context //nolint:containedctx // of one reader
	to  chan<- api.Event
}

// Event implements stream.Sink.
func (s channel) Event(e *stream.Event) error {
	decoded, err := api.DecodeEvent(e.Data())
	if err != nil {
		return err
	}
	select {
	case s.to <- decoded:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// KeepAlive implements stream.Sink.
func (channel) KeepAlive() error { return nil }

// Flush implements stream.Sink.
func (channel) Flush() error { return nil }
