package resource

import (
	"bufio"
	"iter"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Runs reads, signals, cancels and deletes runs.
type Runs struct {
	runs    *service.Runs
	signals *service.Signals
}

// NewRuns returns the handlers of runs.
func NewRuns(runs *service.Runs, signals *service.Signals) *Runs { return &Runs{runs, signals} }

// Get responds with a run.
func (h *Runs) Get(w http.ResponseWriter, r *http.Request) error {
	st, err := h.runs.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, api.RunOf(st, time.Now()))
}

// List responds with a page of the runs that match a filter.
func (h *Runs) List(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	view := query.Get("view")
	if view != "" && view != "full" && view != "summary" {
		return exchange.Invalid("view is %q: use full or summary", view)
	}
	query.Del("view")
	l, err := service.ParseListing(query)
	if err != nil {
		return err
	}
	page, err := h.runs.List(r.Context(), access.FromContext(r.Context()), l)
	if err != nil {
		return err
	}
	return exchange.ReplyPage(w, api.Page[api.Run]{Items: runsOf(page.Items, view), NextCursor: page.NextCursor, Examined: page.Examined, Complete: page.Complete})
}

func runsOf(states []state.State, view string) []api.Run {
	now := time.Now()
	runs := make([]api.Run, len(states))
	for i, st := range states {
		runs[i] = api.RunOf(st, now)
		if view == "summary" {
			runs[i] = runs[i].Summary()
		}
	}
	return runs
}

// Messages responds with the history of a run: as the model sees it, in full, as a session, or in the format of another
// API.
func (h *Runs) Messages(w http.ResponseWriter, r *http.Request) error {
	p, err := exchange.PageOf(r, "view", "format")
	if err != nil {
		return err
	}
	view := r.URL.Query().Get("view")
	if view != "" && view != "full" && view != "model" && view != "session" {
		return exchange.Invalid("view is %q: use model, full or session", view)
	}
	format := transcript.Format(r.URL.Query().Get("format"))
	if format != "" {
		if view != "" && view != "model" {
			return exchange.Invalid("view %q cannot be combined with format %q, which exports only the messages that the model sees: omit view", view, format)
		}
		if err := format.Check(); err != nil {
			return exchange.Invalid("%v", err)
		}
	}
	ctx := r.Context()
	log, err := h.runs.Log(ctx, access.FromContext(ctx), r.PathValue("id"))
	if err != nil {
		return err
	}
	if view == "session" {
		return exchange.ReplySource(w, p, source(state.SessionEvents(log.Entries(ctx)), log))
	}
	refs, err := log.Refs(ctx, view == "full")
	if err != nil {
		return err
	}
	if format != "" {
		return replyTranscript(w, format, log.Messages(ctx, refs), log)
	}
	return exchange.ReplySource(w, p, exchange.Source[api.FullMessage]{Err: log.Err, Items: func(skip int) iter.Seq[api.FullMessage] {
		return func(yield func(api.FullMessage) bool) {
			for m := range log.Messages(ctx, refs[min(skip, len(refs)):]) {
				if !yield(api.MessagesOf([]state.Message{m})[0]) {
					return
				}
			}
		}
	}})
}

// source returns items of a log as a source of pages.
func source[T any](items iter.Seq[T], log *service.RunLog) exchange.Source[T] {
	return exchange.Source[T]{Err: log.Err, Items: func(skip int) iter.Seq[T] {
		return func(yield func(T) bool) {
			n := 0
			for item := range items {
				if n++; n > skip && !yield(item) {
					return
				}
			}
		}
	}}
}

// replyTranscript responds with a history in the format of another API, message by message.
func replyTranscript(w http.ResponseWriter, f transcript.Format, messages iter.Seq[state.Message], log *service.RunLog) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriter(w)
	if err := transcript.Write(out, f, messages); err != nil || log.Err() != nil {
		panic(http.ErrAbortHandler) // the client has disconnected, or the store has failed; a partial response must not look complete
	}
	_ = out.Flush() // the client may have disconnected
	return nil
}

// Turns responds with a page of the turns of a run.
func (h *Runs) Turns(w http.ResponseWriter, r *http.Request) error {
	p, err := exchange.PageOf(r)
	if err != nil {
		return err
	}
	log, err := h.runs.Log(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	return exchange.ReplySource(w, p, source(state.AuditRows(log.Entries(r.Context())), log))
}

// Delete deletes an ended run and all runs below it.
func (h *Runs) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, h.runs.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("id")))
}

// Signal sends a signal to a run.
func (h *Runs) Signal(w http.ResponseWriter, r *http.Request) (err error) {
	in := service.Sending{Run: r.PathValue("id"), Key: r.Header.Get(headerKey)}
	if in.Body, err = exchange.Decode(r, &in.Request); err != nil {
		return err
	}
	st, err := h.signals.Send(r.Context(), access.FromContext(r.Context()), in)
	return accepted(w, st, err)
}

// Cancel cancels a run. The body is optional.
func (h *Runs) Cancel(w http.ResponseWriter, r *http.Request) error {
	var req api.CancelRequest
	b, err := exchange.ReadBody(r)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if err := exchange.DecodeBytes(b, &req); err != nil {
			return err
		}
	}
	st, err := h.runs.Cancel(r.Context(), access.FromContext(r.Context()), service.Canceling{Run: r.PathValue("id"), Reason: req.Reason})
	return accepted(w, st, err)
}

// CancelMany cancels the runs in flight that match a filter: see service.Runs.CancelMany.
func (h *Runs) CancelMany(w http.ResponseWriter, r *http.Request) error {
	var req api.CancelRunsRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	answer, err := h.runs.CancelMany(r.Context(), access.FromContext(r.Context()), req)
	if req.DryRun {
		return reply(w, http.StatusOK, answer, err)
	}
	return reply(w, http.StatusAccepted, answer, err)
}
