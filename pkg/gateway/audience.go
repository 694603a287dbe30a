package gateway

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/api/sse"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// audiences are the open streams by run. A run is watched once for all of its
// readers: the bus sends what it brings to every watch, and lets go of a gateway that
// cannot keep up with that.
type audiences struct {
	bus bus.Bus

	mu   sync.Mutex
	runs map[state.RunID]*audience
}

type audience struct {
	streams map[*stream]bool

	watched chan struct{} // closed when what follows is known
	stop    func()
	err     error
}

// join has a stream hear what comes after join returns, until leave is called.
func (a *audiences) join(ctx context.Context, s *stream) (leave func(), err error) {
	a.mu.Lock()
	au, found := a.runs[s.id]
	if !found {
		au = &audience{streams: map[*stream]bool{}, watched: make(chan struct{})}
		a.runs[s.id] = au
	}
	au.streams[s] = true
	a.mu.Unlock()
	if !found {
		// Others wait for it, too, so it does not end with this reader.
		au.stop, au.err = a.bus.Watch(context.WithoutCancel(ctx), s.id, func(e bus.Event) { a.tell(au, e) })
		close(au.watched)
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

// tell passes on what the bus has brought. It is read and framed once for all.
func (a *audiences) tell(au *audience, e bus.Event) {
	h := headOf(e.Data)
	f := &framed{e.Seq, h, frameOf(e.Seq, h, e.Data)}
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range au.streams {
		s.hear(f)
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

// headOf reads the head of an event; of one that is no JSON it is empty.
func headOf(data []byte) head {
	var h head
	if json.Unmarshal(data, &h) != nil {
		return head{}
	}
	return h
}
