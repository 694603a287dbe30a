package stream

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// audiences has the readers of each run. All readers of a run share one subscription, and what is read after a notice.
// Each reader also reads the store by itself: at first, after a gap, and every lookInterval. audiences is safe for
// concurrent use.
type audiences struct {
	bus  Bus
	read func(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error)

	mu   sync.Mutex
	runs map[state.RunID]*audience
}

type audience struct {
	id      state.RunID
	readers map[*Reader]bool
	queue   notices

	watched chan struct{} // closed when the fields below are set
	stop    func()
	err     error
}

// join passes the events of a run that arrive after it returns to r, until the caller calls leave. The caller must call
// leave once.
func (a *audiences) join(ctx context.Context, r *Reader) (leave func(), err error) {
	a.mu.Lock()
	au, found := a.runs[r.id]
	if !found {
		au = &audience{id: r.id, readers: map[*Reader]bool{}, queue: notices{wake: make(chan struct{}, 1)}, watched: make(chan struct{})}
		a.runs[r.id] = au
	}
	au.readers[r] = true
	a.mu.Unlock()
	if !found {
		a.watch(context.WithoutCancel(ctx), au) // not the context of this reader: others use the subscription too
	}
	select {
	case <-au.watched:
		err = au.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		a.leave(r, au)
		return nil, err
	}
	return func() { a.leave(r, au) }, nil
}

// watch subscribes to the notices of a run and serves them, until au.stop is called.
func (a *audiences) watch(ctx context.Context, au *audience) {
	defer close(au.watched)
	stop, err := a.bus.Watch(ctx, au.id, au.queue.add)
	if err != nil {
		au.err = err
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serve(ctx, au)
	}()
	au.stop = func() { stop(); cancel(); <-done }
}

// leave removes a reader, and ends the subscription with the last one. By then the subscription was opened or has
// failed, because the reader that opens it does not leave before.
func (a *audiences) leave(r *Reader, au *audience) {
	a.mu.Lock()
	delete(au.readers, r)
	last := len(au.readers) == 0
	if last {
		delete(a.runs, r.id)
	}
	a.mu.Unlock()
	if last && au.err == nil {
		au.stop()
	}
}

// serve passes notices to the readers in the order of arrival: a live event follows the committed
// events that preceded it.
func (a *audiences) serve(ctx context.Context, au *audience) {
	for {
		n, err := au.queue.next(ctx)
		if err != nil {
			return
		}
		if n.Live != nil {
			if h, ok := liveHead(au.id, n.Live); ok {
				a.send(au, newEvent(0, h, n.Live))
			}
			continue
		}
		for after := n.From; after < n.To; {
			page, err := a.read(ctx, au.id, after, int(min(n.To-after, pageEvents)), readerBytes)
			if err != nil || len(page.Entries) == 0 {
				break // each reader reads the store itself within lookInterval
			}
			for _, e := range page.Entries {
				data, err := api.EncodeEvent(au.id, e)
				if err != nil {
					return
				}
				a.send(au, newEvent(e.Seq, head{e.Type, e.Turn}, data))
			}
			after += int64(len(page.Entries))
		}
	}
}

// send passes an event to all readers of a run.
func (a *audiences) send(au *audience, e *Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range au.readers {
		r.offer(e)
	}
}

// maxNotices and noticeBytes are the limits of notices that wait while the store is read. A lost notice can cost a live
// event, but no committed one: readers find those in the store.
const (
	maxNotices  = 1024
	noticeBytes = 4 * readerBytes
)

// notices is a queue of notices from the bus.
type notices struct {
	wake chan struct{}

	mu    sync.Mutex
	queue []bus.Notice
	bytes int // size of the live events in queue
}

// add appends a notice, or drops it at the limits. It does not block. It merges consecutive notices that a log has
// grown, so that they cost one read.
func (q *notices) add(n bus.Notice) {
	q.mu.Lock()
	if last := len(q.queue) - 1; last >= 0 && n.Live == nil && q.queue[last].Live == nil {
		q.queue[last].From, q.queue[last].To = min(q.queue[last].From, n.From), max(q.queue[last].To, n.To)
	} else if len(q.queue) < maxNotices && (q.bytes == 0 || q.bytes+len(n.Live) <= noticeBytes) {
		q.queue = append(q.queue, n)
		q.bytes += len(n.Live)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for a notice and removes it. The error is that of ctx.
func (q *notices) next(ctx context.Context) (bus.Notice, error) {
	for {
		q.mu.Lock()
		if len(q.queue) > 0 {
			n := q.queue[0]
			q.queue = q.queue[1:]
			q.bytes -= len(n.Live)
			q.mu.Unlock()
			return n, nil
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
			return bus.Notice{}, ctx.Err()
		}
	}
}

// Event is an event of a run, encoded once for all readers of the run. It is immutable.
type Event struct {
	seq int64 // 0: a live event
	head
	frame []byte // the encoded event of an event stream, which ends with the data and two line ends
	size  int    // size of the data in bytes
}

// newEvent returns an event with data, which must be one line of JSON. seq is the number of a committed event, or 0.
func newEvent(seq int64, h head, data []byte) *Event {
	e := sse.Event{Type: string(h.Type), Data: data}
	if seq > 0 {
		e.ID = strconv.FormatInt(seq, 10)
	}
	return &Event{seq: seq, head: h, frame: sse.Append(make([]byte, 0, len(data)+64), e), size: len(data)}
}

// Seq returns the number of a committed event, and 0 for a live event.
func (e *Event) Seq() int64 { return e.seq }

// Data returns the event as one line of JSON without a line end. The caller must not change it.
func (e *Event) Data() []byte {
	return e.frame[len(e.frame)-len("\n\n")-e.size : len(e.frame)-len("\n\n")]
}

// head has the fields of an event that decide which readers get it.
type head struct {
	Type state.EntryType `json:"type"`
	Turn int             `json:"turn"`
}

// liveHead decodes the head of a live event, and reports whether readers may get the event: it is of this run and of a
// known type. liveHead refuses events with a number, because committed events come only from the store.
func liveHead(run state.RunID, data []byte) (head, bool) {
	var h struct {
		head

		RunID state.RunID `json:"run_id"`
		Seq   *int64      `json:"seq"`
	}
	if json.Unmarshal(data, &h) != nil || h.RunID != run || h.Seq != nil {
		return head{}, false
	}
	switch h.Type {
	case state.LiveTurnStarted, state.LiveToolStarted, state.LiveToolProgress, state.LiveModelDelta:
		return h.head, true
	default:
		return head{}, false
	}
}
