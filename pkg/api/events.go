package api

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
)

// Reconnections of a stream: the delay before each, the maximum number in a row, and the time after which an open
// connection resets that number. A proxy may cut connections again and again.
const (
	reconnectEvery = 250 * time.Millisecond
	reconnectLimit = 120
	stoodFor       = time.Second
)

// Events yields the events of a run with numbers above after, until the run has ended or ctx ends. It reconnects when
// the connection breaks, and yields each committed event once, in order; live events that the gateway sends in between
// are lost. If ctx ends, the gateway refuses, or 120 reconnections in a row fail, the last pair has the error. If the
// store has lost the run, Events may end without run.finished: Get returns the run as failed.
func (c *Client) Events(ctx context.Context, id string, after int64) iter.Seq2[Event, error] {
	return c.Follow(ctx, id, after, nil)
}

// Follow is Events that also reports the state of its connection: it calls notice, if not nil, once with an error when
// the gateway cannot be reached or fails, and once with nil when the connection is open again. A connection that breaks
// and opens again at once is not reported. Follow calls notice from the goroutine of the iteration, and not for an
// error that ends the iteration.
func (c *Client) Follow(ctx context.Context, id string, after int64, notice func(lost error)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		link := connection{notice: notice}
		for failures := 0; ; failures++ {
			last, enough, err := c.follow(ctx, id, after, &link, func(e Event) bool { return yield(e, nil) })
			if enough {
				return
			}
			if last > after || link.stood {
				after, failures = last, 0
			}
			if ctx.Err() == nil && c.ended(ctx, id, after) {
				return
			}
			if ctx.Err() != nil || failures == reconnectLimit || link.permanent(err) {
				yield(Event{}, errors.Join(err, ctx.Err()))
				return
			}
			beforeNext(ctx)
		}
	}
}

// ended reports whether a run has ended and has no event after number after. It also returns false if the gateway does
// not answer. The end of the stream proves neither, because a gateway that shuts down ends streams too.
func (c *Client) ended(ctx context.Context, id string, after int64) bool {
	run, err := c.Get(ctx, id)
	if err != nil || !run.Terminal() {
		return false
	}
	var rest Page[json.RawMessage]
	path := runPath(id) + "/events?limit=1&after=" + strconv.FormatInt(after, 10)
	err = c.do(ctx, http.MethodGet, path, http.Header{"Accept": {"application/json"}}, nil, &rest)
	return err == nil && len(rest.Items) == 0
}

// Entries returns the committed events of a run so far, each as JSON.
func (c *Client) Entries(ctx context.Context, id string) (entries []json.RawMessage, err error) {
	for query := (url.Values{}); ; {
		var page Page[json.RawMessage]
		path := runPath(id) + "/events?" + query.Encode()
		if err := c.do(ctx, http.MethodGet, path, http.Header{"Accept": {"application/json"}}, nil, &page); err != nil {
			return entries, err
		}
		entries = append(entries, page.Items...)
		if page.NextCursor == nil {
			return entries, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// beforeNext waits for the delay before a reconnection, or until ctx has ended.
func beforeNext(ctx context.Context) {
	timer := time.NewTimer(reconnectEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// connection is the state of the connection of a stream of events.
type connection struct {
	notice func(lost error)
	lost   bool
	worked bool // it was open at least once
	stood  bool // the last connection was open for stoodFor or longer
}

func (l *connection) fails(ctx context.Context, err error) {
	if l.notice != nil && !l.lost && ctx.Err() == nil && !l.permanent(err) {
		l.notice(err)
	}
	l.lost = true
}

func (l *connection) stands() {
	if l.notice != nil && l.lost {
		l.notice(nil)
	}
	l.lost, l.worked = false, true
}

// permanent reports whether the gateway refused for a reason that will not pass. A proxy in front of a gateway may
// respond instead while the gateway starts.
func (l *connection) permanent(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
	}
	if f, ok := errors.AsType[*foreignError](err); ok {
		return !l.worked && f.status < http.StatusInternalServerError
	}
	_, bad := errors.AsType[*addressError](err)
	return bad || errors.Is(err, ErrInvalid) // the error of WithRootCAs
}

// follow reads the events of one connection. It returns the number of the last committed event, and reports whether the
// caller has seen enough.
func (c *Client) follow(ctx context.Context, id string, after int64, link *connection, see func(Event) bool) (last int64, enough bool, err error) {
	err = c.frames(ctx, runPath(id)+"/events", strconv.FormatInt(after, 10), link, func(frame sse.Event) (bool, error) {
		e, err := DecodeEvent(frame.Data)
		if err != nil {
			return false, err
		}
		if e.Seq > 0 && e.Seq <= after {
			return true, nil // nothing is seen twice, whatever is in between
		}
		after = max(after, e.Seq)
		enough = !see(e)
		return !enough, nil
	})
	return after, enough, err
}

// frames reads a stream over one connection, after the event with the id last, until see returns false or an error.
func (c *Client) frames(ctx context.Context, path, last string, link *connection, see func(sse.Event) (bool, error)) error {
	link.stood = false
	if c.bad != nil {
		return c.bad
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	c.sign(req)
	resp, err := c.http.Do(req)
	if err != nil {
		err = unreachable(err)
		link.fails(ctx, err)
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := problemOf(resp)
		link.fails(ctx, err)
		return err
	}
	link.stands()
	began := time.Now()
	defer func() { link.stood = time.Since(began) >= stoodFor }()
	for in := sse.NewReader(resp.Body); ; {
		frame, err := in.Next()
		if err != nil {
			return err
		}
		if more, err := see(frame); err != nil || !more {
			return err
		}
	}
}

// Wait returns a run once it has ended or waits for anything but its child runs: for a person,
// an external process, its start time, its batch, a rate limit or the retry of a model call.
// When ctx ends, the error wraps that of ctx. Its other errors are those of Get and Events.
func (c *Client) Wait(ctx context.Context, id string) (Run, error) {
	run, err := c.Get(ctx, id)
	if err != nil || atRest(run) {
		return run, err
	}
	for e, err := range c.Events(ctx, id, 0) {
		if err != nil {
			return run, err
		}
		if e.Type != "run.waiting" && e.Type != "run.finished" {
			continue
		}
		// The event may be of an earlier rest.
		if run, err = c.Get(ctx, id); err != nil || atRest(run) {
			return run, err
		}
	}
	return c.Get(ctx, id)
}

// atRest reports whether the run has ended, or waits for anything but its child runs.
func atRest(r Run) bool {
	return r.Terminal() || r.Waiting != nil && r.Waiting.Reason != "waiting_child"
}

// Do submits a run, calls each, if not nil, for every event as it arrives, and returns the run and
// all these events when the run has ended. Do continues to wait while the run waits for a person or
// an external process; ctx bounds the whole call and not the run. Its errors are those of Submit,
// Events and Get; with those of Events it returns the run as Submit did, and the events so far.
func (c *Client) Do(ctx context.Context, r SubmitRequest, key string, each func(Event)) (Run, []Event, error) {
	run, err := c.Submit(ctx, r, key)
	if err != nil {
		return run, nil, err
	}
	var all []Event
	for e, err := range c.Events(ctx, run.ID, 0) {
		if err != nil {
			return run, all, err
		}
		if each != nil {
			each(e)
		}
		all = append(all, e)
	}
	run, err = c.Get(ctx, run.ID)
	return run, all, err
}
