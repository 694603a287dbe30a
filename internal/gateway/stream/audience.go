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

// audiences has the readers by run. All readers of a run share one subscription, and one read of the
// entries that its log gains.
type audiences struct {
	bus  Bus
	read func(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error)

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

// join passes events that arrive after it returns to a reader, until the caller calls leave.
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
		a.watch(context.WithoutCancel(ctx), au) // other readers also wait for it, so it does not end with this one
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

// watch subscribes to the notices of a run, until au.stop is called.
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

// leave ends the subscription with the last reader. It has begun by then: the reader that began it
// leaves after that.
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
			log, err := a.read(ctx, au.id, after, int(min(n.To-after, pageEvents)))
			if err != nil || len(log) == 0 {
				break // each reader reads the store itself, soon
			}
			for _, e := range log {
				data, err := api.EncodeEvent(au.id, e)
				if err != nil {
					return
				}
				a.send(au, newEvent(e.Seq, head{e.Type, e.Turn}, data))
			}
			after += int64(len(log))
		}
	}
}

// send passes an event to all readers.
func (a *audiences) send(au *audience, e *Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range au.readers {
		r.offer(e)
	}
}

// maxNotices and noticeBytes bound the notices that wait while the store is read. A lost notice costs
// live events only: readers find committed ones in the store.
const (
	maxNotices  = 1024
	noticeBytes = 4 * readerBytes
)

// notices is a queue of notices from the bus.
type notices struct {
	wake chan struct{}

	mu    sync.Mutex
	queue []bus.Notice
	bytes int // of the live events in queue
}

// add appends a notice and does not block. It merges consecutive notices of growth, so that they cost one
// read.
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

// next waits for a notice until ctx ends.
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

// Event is an event of a run, encoded once for all readers of the run. It must not be changed.
type Event struct {
	seq int64 // 0: a live event
	head
	frame []byte // its part of an event stream, which ends with the data and two line ends
	size  int    // of the data
}

// newEvent returns an event with data, which is one line of JSON. The number of a committed event is
// its id.
func newEvent(seq int64, h head, data []byte) *Event {
	e := sse.Event{Type: string(h.Type), Data: data}
	if seq > 0 {
		e.ID = strconv.FormatInt(seq, 10)
	}
	return &Event{seq: seq, head: h, frame: sse.Append(make([]byte, 0, len(data)+64), e), size: len(data)}
}

// Seq returns the number of a committed event, and 0 for a live event.
func (e *Event) Seq() int64 { return e.seq }

// Data returns the event as JSON.
func (e *Event) Data() []byte {
	return e.frame[len(e.frame)-len("\n\n")-e.size : len(e.frame)-len("\n\n")]
}

// head is the part of an event that decides where it is sent.
type head struct {
	Type state.EntryType `json:"type"`
	Turn int             `json:"turn"`
}

// liveHead decodes the head of a live event, and reports whether it is a live event of the run.
// Committed events come from the store only, whichever process sends one here.
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
