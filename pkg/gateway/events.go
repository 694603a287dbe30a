package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// keepAlive is how often a silent stream says that it lives.
	keepAlive = 15 * time.Second

	// backstop is how often a stream looks into the store for events whose
	// announcement was lost.
	backstop = 2 * time.Second

	// readerBuffer is how many events may wait for a slow reader. Beyond, they are
	// read from the store when the reader comes round.
	readerBuffer = 256
)

// getEvents streams a run's events: those in the store after the reader's last,
// then those that come. The store is the truth, so a reader that comes back misses
// nothing and sees nothing twice.
func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	if err != nil {
		return err
	}
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		return g.eventPage(w, r, id, after)
	}
	if _, err := g.store.Load(r.Context(), id); err != nil {
		return err
	}
	s := &stream{g: g, id: id, w: w, rc: http.NewResponseController(w), after: after, live: make(chan bus.Event, readerBuffer)}
	// Interest first, the store second: nothing can fall between.
	stop, err := g.bus.Watch(r.Context(), id, s.hear)
	if err != nil {
		return &busError{err}
	}
	defer stop()
	g.metrics.readers.Inc()
	defer g.metrics.readers.Dec()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	// A reader of a run that waits must know at once that it is connected.
	if err := s.rc.Flush(); err != nil {
		return nil //nolint:nilerr // the reader is gone
	}
	if err := s.run(r.Context()); err != nil {
		g.log.Debug().Err(err).Str("run_id", string(id)).Msg("event stream ends")
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
	after int64 // number of the last event sent
	live  chan bus.Event
}

// hear takes what the bus brings. A reader that does not keep up loses it here and
// finds it in the store.
func (s *stream) hear(e bus.Event) {
	select {
	case s.live <- e:
	default:
	}
}

// errEnded ends a stream after the run's last event.
var errEnded = errors.New("run has ended")

func (s *stream) run(ctx context.Context) error {
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
			err = s.take(ctx, e)
		case <-look.C:
			err = s.catchUp(ctx)
		case <-alive.C:
			err = s.write([]byte(": keep-alive\n\n"))
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
	switch {
	case e.Seq == 0:
		return s.send(0, e.Data)
	case e.Seq <= s.after:
		return nil
	case e.Seq > s.after+1:
		return s.catchUp(ctx)
	}
	if err := s.send(e.Seq, e.Data); err != nil {
		return err
	}
	if isFinish(e.Data) {
		return s.end(ctx)
	}
	return nil
}

// catchUp sends what the store has after the last event sent.
func (s *stream) catchUp(ctx context.Context) error {
	log, err := s.g.store.Log(ctx, s.id, s.after, 0)
	if err != nil {
		return err
	}
	for _, e := range log {
		data, err := api.EncodeEvent(s.id, e)
		if err != nil {
			return err
		}
		if err := s.send(e.Seq, data); err != nil {
			return err
		}
	}
	return s.end(ctx)
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

func isFinish(data []byte) bool { return eventType(data) == string(state.EntryFinished) }

func eventType(data []byte) string {
	var e struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(data, &e) != nil {
		return ""
	}
	return e.Type
}

// send writes one event in one piece; a live one has no id.
func (s *stream) send(seq int64, data []byte) error {
	frame := make([]byte, 0, len(data)+64)
	if seq > 0 {
		frame = append(strconv.AppendInt(append(frame, "id: "...), seq, 10), '\n')
		s.after = seq
	}
	frame = append(append(append(frame, "event: "...), eventType(data)...), '\n')
	frame = append(append(append(frame, "data: "...), data...), "\n\n"...)
	return s.write(frame)
}

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
