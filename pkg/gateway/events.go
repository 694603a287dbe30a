package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/api/sse"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// keepAlive is how often a silent stream says that it lives.
	keepAlive = 15 * time.Second

	// backstop is how often a stream looks into the store for events whose
	// announcement was lost.
	backstop = 2 * time.Second

	// readerBuffer is how many events may wait for a slow reader, and readerBytes how
	// large they may be together. Beyond, they are read from the store when the reader
	// comes round.
	readerBuffer = 256
	readerBytes  = 64 << 10

	// readerPage is how many events are read from the store at a time: what a slow
	// reader has not taken yet is held in memory.
	readerPage = 4

	eventStream = "text/event-stream"
)

// getEvents streams a run's events: those in the store after the reader's last,
// then those that come. The store is the truth, so a reader that comes back misses
// nothing and sees nothing twice.
func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request) error {
	st, err := g.run(r)
	if err != nil {
		return err
	}
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "application/json") && !strings.Contains(accept, eventStream) {
		return g.eventPage(w, r, st.ID, after)
	}
	// Workers send deltas of the runs that asked for them when they were submitted;
	// a reader may do without.
	wants := r.URL.Query().Get("stream")
	if wants != "" && wants != "turns" && wants != "deltas" {
		return invalid("stream %q is not one of turns, deltas", wants)
	}
	s := &stream{
		g: g, id: st.ID, w: w, rc: http.NewResponseController(w), after: after, noDeltas: wants == "turns", live: make(chan bus.Event, readerBuffer),
	}
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return nil
	}
	// Interest first, the store second: nothing can fall between.
	stop, err := g.bus.Watch(r.Context(), st.ID, s.hear)
	if err != nil {
		h.Del("Cache-Control")
		return &busError{err}
	}
	defer stop()
	g.metrics.readers.Inc()
	defer g.metrics.readers.Dec()
	w.WriteHeader(http.StatusOK)
	if err := s.run(r.Context()); err != nil {
		g.log.Debug().Err(err).Str("run_id", string(st.ID)).Msg("event stream ends")
	}
	return nil
}

// afterOf is the number of the last event that the reader has: Last-Event-ID beats
// ?after=, as a browser that reconnects repeats its first URL.
func afterOf(r *http.Request) (int64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		text = r.URL.Query().Get("cursor")
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, problem(http.StatusBadRequest, api.CodeInvalidCursor, "%q is not the id of an event", text)
	}
	return n, nil
}

func (g *Gateway) eventPage(w http.ResponseWriter, r *http.Request, id state.RunID, after int64) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	log, err := g.store.Log(r.Context(), id, after, limit+1)
	if err != nil {
		return err
	}
	next := ""
	if len(log) > limit {
		log = log[:limit]
		next = strconv.FormatInt(log[limit-1].Seq, 10)
	}
	items := make([]json.RawMessage, len(log))
	for i, e := range log {
		if items[i], err = api.EncodeEvent(id, e); err != nil {
			return err
		}
	}
	return reply(w, http.StatusOK, api.NewPage(items, next))
}

// stream is one reader of one run's events.
type stream struct {
	g     *Gateway
	id    state.RunID
	w     http.ResponseWriter
	rc    *http.ResponseController
	after int64 // number of the last committed event sent
	turn  int   // its turn
	live  chan bus.Event
	held  atomic.Int64 // bytes in live

	noDeltas bool
}

// hear takes what the bus brings. A reader that does not keep up loses it here and
// finds it in the store.
func (s *stream) hear(e bus.Event) {
	size := int64(len(e.Data))
	if s.held.Add(size) > readerBytes && size < s.held.Load() {
		s.held.Add(-size)
		return
	}
	select {
	case s.live <- e:
	default:
		s.held.Add(-size)
	}
}

// errEnded ends a stream after the run's last event.
var errEnded = errors.New("run has ended")

func (s *stream) run(ctx context.Context) error {
	// At once, so that a reader of a silent run knows that it is connected.
	if err := s.write(sse.AppendComment(nil, "open")); err != nil {
		return err
	}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	look := time.NewTicker(backstop)
	defer look.Stop()
	for {
		var err error
		select {
		case e := <-s.live:
			s.held.Add(-int64(len(e.Data)))
			err = s.take(ctx, e)
		case <-look.C:
			err = s.catchUp(ctx)
		case <-alive.C:
			err = s.write(sse.AppendComment(nil, "keep-alive"))
		case <-s.g.quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// take sends an event that the bus brought, if it is the next one.
func (s *stream) take(ctx context.Context, e bus.Event) error {
	head := headOf(e.Data)
	switch {
	case e.Seq == 0:
		// One that was heard while older events were read may come too late.
		if head.Turn < s.turn || s.noDeltas && head.Type == state.LiveModelDelta {
			return nil
		}
		return s.write(sse.Append(nil, sse.Event{Type: string(head.Type), Data: e.Data}))
	case e.Seq <= s.after:
		return nil
	case e.Seq > s.after+1:
		return s.catchUp(ctx)
	}
	if err := s.send(e.Seq, head, e.Data); err != nil {
		return err
	}
	if head.Type == state.EntryFinished {
		return s.end(ctx)
	}
	return nil
}

// catchUp sends what the store has after the last event sent.
func (s *stream) catchUp(ctx context.Context) error {
	for {
		log, err := s.g.store.Log(ctx, s.id, s.after, readerPage)
		if err != nil {
			return err
		}
		for _, e := range log {
			data, err := api.EncodeEvent(s.id, e)
			if err != nil {
				return err
			}
			if err := s.send(e.Seq, head{e.Type, e.Turn}, data); err != nil {
				return err
			}
		}
		if len(log) < readerPage {
			return s.end(ctx)
		}
	}
}

// end returns errEnded if the run has ended and everything was sent.
func (s *stream) end(ctx context.Context) error {
	st, err := s.g.store.Load(ctx, s.id)
	if err != nil {
		return err
	}
	if !st.Status.Terminal() {
		return nil
	}
	log, err := s.g.store.Log(ctx, s.id, s.after, 1)
	if err != nil {
		return err
	}
	if len(log) > 0 {
		return nil // the next event or look brings it
	}
	return errEnded
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

// send writes a committed event. Its number is its id.
func (s *stream) send(seq int64, h head, data []byte) error {
	s.after, s.turn = seq, h.Turn
	return s.write(sse.Append(nil, sse.Event{ID: strconv.FormatInt(seq, 10), Type: string(h.Type), Data: data}))
}

// write sends a frame in one piece.
func (s *stream) write(frame []byte) error {
	// A reader that takes nothing for so long is gone.
	if err := s.rc.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil && !isUnsupported(err) {
		return err
	}
	if _, err := s.w.Write(frame); err != nil {
		return err
	}
	return s.rc.Flush()
}

func isUnsupported(err error) bool { return errors.Is(err, http.ErrNotSupported) }
