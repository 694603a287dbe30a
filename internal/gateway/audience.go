package gateway

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

// audiences are the open streams by run. A run is watched once for all of its readers, and
// what its log gains is read from the store once for all that keep up.
type audiences struct {
	bus  bus.Bus
	read func(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error)

	mu   sync.Mutex
	runs map[state.RunID]*audience
}

type audience struct {
	id      state.RunID
	streams map[*stream]bool
	queue   notices

	watched chan struct{} // closed when what follows is known
	stop    func()
	err     error
}

// join has a stream hear what comes after join returns, until leave is called.
func (a *audiences) join(ctx context.Context, s *stream) (leave func(), err error) {
	a.mu.Lock()
	au, found := a.runs[s.id]
	if !found {
		au = &audience{id: s.id, streams: map[*stream]bool{}, queue: notices{wake: make(chan struct{}, 1)}, watched: make(chan struct{})}
		a.runs[s.id] = au
	}
	au.streams[s] = true
	a.mu.Unlock()
	if !found {
		a.watch(context.WithoutCancel(ctx), au) // others wait for it, too, so it does not end with this reader
	}
	select {
	case <-au.watched:
		err = au.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		a.leave(s, au)
		return nil, err
	}
	return func() { a.leave(s, au) }, nil
}

// watch begins to listen for a run, until au.stop.
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

// leave ends the watch with the last stream, which is not before it has begun: whoever
// began it was a stream until then.
func (a *audiences) leave(s *stream, au *audience) {
	a.mu.Lock()
	delete(au.streams, s)
	last := len(au.streams) == 0
	if last {
		delete(a.runs, s.id)
	}
	a.mu.Unlock()
	if last && au.err == nil {
		au.stop()
	}
}

// serve passes on what the bus has brought, in its order: a live event after the committed
// ones that came before it.
func (a *audiences) serve(ctx context.Context, au *audience) {
	for {
		n, err := au.queue.next(ctx)
		if err != nil {
			return
		}
		if n.Live != nil {
			if h, ok := liveHead(au.id, n.Live); ok {
				a.send(au, &framed{0, h, frameOf(0, h, n.Live)})
			}
			continue
		}
		for after := n.From; after < n.To; {
			log, err := a.read(ctx, au.id, after, int(min(n.To-after, pageEvents)))
			if err != nil || len(log) == 0 {
				break // each stream looks for itself, soon
			}
			for _, e := range log {
				data, err := api.EncodeEvent(au.id, e)
				if err != nil {
					return
				}
				h := head{e.Type, e.Turn}
				a.send(au, &framed{e.Seq, h, frameOf(e.Seq, h, data)})
			}
			after += int64(len(log))
		}
	}
}

// send gives an event to all streams.
func (a *audiences) send(au *audience, f *framed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range au.streams {
		s.hear(f)
	}
}

// maxNotices and noticeBytes bound what may wait until the store has been read. What is
// lost here is live, or found by the streams' own look at the store.
const (
	maxNotices  = 1024
	noticeBytes = 4 * readerBytes
)

// notices is a queue of what the bus has brought.
type notices struct {
	wake chan struct{}

	mu    sync.Mutex
	queue []bus.Notice
	bytes int // of the live events in queue
}

// add takes a notice and does not block. Logs that grow while the store is read are read
// at once.
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

// framed is an event as it goes to its readers; seq is 0 for a live one.
type framed struct {
	seq int64
	head
	frame []byte
}

// frameOf returns an event as a frame. The number of a committed one is its id.
func frameOf(seq int64, h head, data []byte) []byte {
	e := sse.Event{Type: string(h.Type), Data: data}
	if seq > 0 {
		e.ID = strconv.FormatInt(seq, 10)
	}
	return sse.Append(make([]byte, 0, len(data)+64), e)
}

// head is what a stream must know of an event.
type head struct {
	Type state.EntryType `json:"type"`
	Turn int             `json:"turn"`
}

// liveHead reads the head of a live event of a run, and reports whether it is one: what is
// committed comes from the store, whoever sends it here.
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
