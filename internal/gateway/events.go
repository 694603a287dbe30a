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

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// keepAlive is how often a stream without events says that it lives.
	keepAlive = 15 * time.Second

	// backstop is how often a stream looks into the store for events of which no hint
	// came.
	backstop = 2 * time.Second

	// statusEvery is how many such looks are made for one that also reads the run's status.
	statusEvery = 5

	// readerBuffer is how many events may wait for a slow reader, and readerBytes how
	// large they may be together. Beyond, they are read from the store when the reader
	// comes round, a page of about as many bytes at a time: what a slow reader has not
	// taken yet is held in memory.
	readerBuffer = 256
	readerBytes  = 64 << 10

	// pageEvents is how many events such a page has at most.
	pageEvents = 64

	eventStream = "text/event-stream"
)

// getEvents streams a run's events: those in the store after the reader's last,
// then those that come. The store is the truth, so a reader that comes back misses
// nothing and sees nothing twice.
func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request) error {
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "application/json") && !strings.Contains(accept, eventStream) {
		return g.eventPage(w, r, after)
	}
	// Workers send deltas of the runs that asked for them when they were submitted;
	// a reader may do without.
	wants := r.URL.Query().Get("stream")
	if wants != "" && wants != "turns" && wants != "deltas" {
		return exchange.Invalid("stream %q is not one of turns, deltas", wants)
	}
	st, err := g.service.Runs.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	s := &stream{
		g: g, id: st.ID, known: st, w: w, rc: http.NewResponseController(w), after: after, noDeltas: wants == "turns", live: make(chan *framed, readerBuffer), page: 1,
	}
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return nil
	}
	release, err := g.streams.Take(access.FromContext(r.Context()))
	if err != nil {
		h.Del("Cache-Control")
		return err
	}
	defer release()
	// Interest first, the store second: nothing can fall between.
	leave, err := g.audiences.join(r.Context(), s)
	if err != nil {
		h.Del("Cache-Control")
		return &service.BusError{Err: err}
	}
	defer leave()
	g.readers.Inc()
	defer g.readers.Dec()
	w.WriteHeader(http.StatusOK)
	ctx, stop := g.callers.WhileAllowed(r)
	defer stop()
	if err := s.run(ctx); err != nil {
		g.log.Debug("event stream ends", "error", err, "run_id", st.ID)
	}
	return nil
}

// afterOf is the number of the last event that the reader has: Last-Event-ID overrides
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
		return 0, exchange.Problem(http.StatusBadRequest, api.CodeInvalidCursor, "%q is not the id of an event", text)
	}
	return n, nil
}

func (g *Gateway) eventPage(w http.ResponseWriter, r *http.Request, after int64) error {
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (page api.Page[json.RawMessage], err error) {
		id := r.PathValue("id")
		log, next, err := g.service.Runs.Entries(ctx, c, id, after, p)
		if err != nil {
			return page, err
		}
		items := make([]json.RawMessage, len(log))
		for i, e := range log {
			if items[i], err = api.EncodeEvent(state.RunID(id), e); err != nil {
				return page, err
			}
		}
		cursor := ""
		if next > 0 {
			cursor = strconv.FormatInt(next, 10)
		}
		return api.NewPage(items, cursor), nil
	})
}

// stream is one reader of one run's events.
type stream struct {
	g        *Gateway
	id       state.RunID
	w        http.ResponseWriter
	rc       *http.ResponseController
	after    int64 // number of the last committed event sent
	turn     int   // its turn
	live     chan *framed
	buffered atomic.Int64 // bytes in live
	page     int          // how many events to read from the store next
	going    bool         // by the last event that tells, the run has not ended
	finished bool         // the last event sent is the end of the run

	noDeltas bool

	known   state.State // the run when the stream began
	looks   int         // at the store, without a hint
	lacking int         // looks in a row that did not find the run
}

// hear takes what the bus brings, one at a time. A reader that does not keep up loses
// it here and finds it in the store.
func (s *stream) hear(e *framed) {
	size := int64(len(e.frame))
	if buffered := s.buffered.Load(); buffered > 0 && buffered+size > readerBytes {
		return
	}
	s.buffered.Add(size)
	select {
	case s.live <- e:
	default:
		s.buffered.Add(-size)
	}
}

// errEnded ends a stream after the run's last event.
var errEnded = errors.New("run has ended")

func (s *stream) run(ctx context.Context) error {
	// At once, so that a reader of a run without events knows that it is connected.
	if err := s.writeNow(sse.AppendComment(nil, "open")); err != nil {
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
			s.buffered.Add(-int64(len(e.frame)))
			err = s.take(ctx, e)
		case <-look.C:
			if s.looks++; s.looks%statusEvery == 0 {
				s.going = false // look at the status also: the log of a run that was lost has grown shorter
			}
			err = s.catchUp(ctx)
		case <-alive.C:
			err = s.writeNow(sse.AppendComment(nil, "keep-alive"))
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
func (s *stream) take(ctx context.Context, e *framed) error {
	switch {
	case e.seq == 0:
		// One that was heard while older events were read may come too late.
		if e.Turn < s.turn || s.noDeltas && e.Type == state.LiveModelDelta {
			return nil
		}
		return s.writeNow(e.frame)
	case e.seq <= s.after:
		return nil
	case e.seq > s.after+1:
		return s.catchUp(ctx)
	}
	s.sent(e)
	if err := s.writeNow(e.frame); err != nil {
		return err
	}
	if e.Type == state.EntryFinished {
		return s.end(ctx)
	}
	return nil
}

// catchUp sends what the store has after the last event sent. A run that stays missing ends the
// stream.
func (s *stream) catchUp(ctx context.Context) error {
	err := s.sendStored(ctx)
	if errors.Is(err, state.ErrNotFound) {
		return s.missing(ctx, err)
	}
	s.lacking = 0
	return err
}

// sendStored sends the events a page at a time: a reader that gets a thousand events one by one is
// busy for a second.
func (s *stream) sendStored(ctx context.Context) error {
	for {
		log, err := s.read(ctx, s.page)
		if err != nil {
			return err
		}
		size := 0
		for _, e := range log {
			data, err := api.EncodeEvent(s.id, e)
			if err != nil {
				return err
			}
			size += len(data)
			h := head{e.Type, e.Turn}
			s.sent(&framed{seq: e.Seq, head: h})
			if _, err := s.w.Write(frameOf(e.Seq, h, data)); err != nil {
				return err
			}
		}
		if err := s.rc.Flush(); err != nil {
			return err
		}
		if len(log) < s.page {
			return s.end(ctx)
		}
		s.page = max(1, min(2*s.page, s.page*readerBytes/size, pageEvents))
	}
}

// read returns the next events from the store when it is this stream's turn.
func (s *stream) read(ctx context.Context, limit int) ([]state.Entry, error) {
	return s.g.service.Runs.Follow(ctx, s.id, s.after, limit)
}

// end returns errEnded if the run has ended and everything was sent.
func (s *stream) end(ctx context.Context) error {
	if s.going {
		return nil // a look at the store would be one for each reader that waits
	}
	st, err := s.g.store.Load(ctx, s.id)
	if err != nil {
		return err
	}
	if !st.Status.Terminal() {
		s.going = true
		return nil
	}
	if st.Transition.Reason == state.EndLost && !s.finished {
		return s.endLost(ctx)
	}
	log, err := s.read(ctx, 1)
	if err != nil {
		return err
	}
	if len(log) > 0 {
		return nil // the next event or look brings it
	}
	return errEnded
}

// sent notes a committed event that the reader gets.
func (s *stream) sent(e *framed) {
	s.after, s.turn, s.finished = e.seq, e.Turn, e.Type == state.EntryFinished
	switch e.Type {
	case state.EntrySubmitted, state.EntryTransition, state.EntryWaiting:
		s.going = true
	case state.EntryFinished:
		s.going = false
	default: // tells nothing of the run's status
	}
}

// writeNow writes a frame in one piece that the reader has at once.
func (s *stream) writeNow(frame []byte) error {
	if _, err := s.w.Write(frame); err != nil {
		return err
	}
	return s.rc.Flush()
}
