package stream

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Admission limits and counts the open event streams of a gateway.
type Admission struct {
	Callers Callers
	Quota   *limit.Quota
	Readers prometheus.Gauge // number of open streams
	Log     *slog.Logger
}

// RunHandler responds to GET /v1/runs/{id}/events.
type RunHandler struct {
	Admission

	runs   Runs
	events *Events
}

// NewRunHandler returns a handler that streams events.
func NewRunHandler(runs Runs, events *Events, a Admission) *RunHandler {
	return &RunHandler{Admission: a, runs: runs, events: events}
}

// Get streams the events of a run, or responds with a page of them if the client accepts JSON and no event stream.
func (h *RunHandler) Get(w http.ResponseWriter, r *http.Request) error {
	after, err := exchange.After(r)
	if err != nil {
		return err
	}
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "application/json") && !strings.Contains(accept, contentType) {
		return h.page(w, r, after)
	}
	// Workers send deltas only for runs that were submitted with deltas; a reader may omit these.
	wants := r.URL.Query().Get("stream")
	if wants != "" && wants != "turns" && wants != "deltas" {
		return exchange.Invalid("stream is %q: use turns or deltas", wants)
	}
	caller := access.FromContext(r.Context())
	st, err := h.runs.Get(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return err
	}
	setHeaders(w)
	if r.Method == http.MethodHead {
		return nil
	}
	release, err := h.Quota.Take(caller)
	if err != nil {
		w.Header().Del("Cache-Control")
		return err
	}
	defer release()
	reader, err := h.events.Open(r.Context(), st, Selection{After: after, NoDeltas: wants == "turns"})
	if err != nil {
		w.Header().Del("Cache-Control")
		return err
	}
	defer reader.Close()
	h.Readers.Inc()
	defer h.Readers.Dec()
	w.WriteHeader(http.StatusOK)
	ctx, stop := h.Callers.WhileAllowed(r)
	defer stop()
	if err := h.send(ctx, reader, frames{w, http.NewResponseController(w)}); err != nil {
		h.Log.Debug("event stream ended by an error", "error", err, "run_id", st.ID)
	}
	return nil
}

// send sends a comment, so that the client of a stream without events knows that it is connected, and then the events.
func (h *RunHandler) send(ctx context.Context, reader *Reader, to frames) error {
	if err := to.write(sse.AppendComment(nil, "open")); err != nil {
		return err
	}
	if err := to.Flush(); err != nil {
		return err
	}
	return reader.Run(ctx, to)
}

func (h *RunHandler) page(w http.ResponseWriter, r *http.Request, after int64) error {
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (page api.Page[json.RawMessage], err error) {
		id := r.PathValue("id")
		log, next, err := h.runs.Entries(ctx, c, id, after, p)
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
	}, "after", "stream")
}

// setHeaders sets the headers of an event stream.
func setHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
}

// frames is a Sink that writes an event stream to a response.
type frames struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (f frames) write(frame []byte) error {
	_, err := f.w.Write(frame)
	return err
}

// Event implements Sink.
func (f frames) Event(e *Event) error { return f.write(e.frame) }

// KeepAlive implements Sink.
func (f frames) KeepAlive() error { return f.write(sse.AppendComment(nil, "keep-alive")) }

// Flush implements Sink.
func (f frames) Flush() error { return f.rc.Flush() }
