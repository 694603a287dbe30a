package gateway

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxWait bounds ?wait=.
const maxWait = 10 * time.Minute

func (g *Gateway) postRun(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	caller := access.FromContext(r.Context())
	if wait > 0 {
		release, err := g.waiting.Take(caller)
		if err != nil {
			return err // before the run is made
		}
		defer release()
	}
	in := service.Submission{Key: r.Header.Get("Idempotency-Key"), Trace: r.Header.Get(span.Header), Source: "http"}
	if in.Body, err = exchange.Decode(r, &in.Request); err != nil {
		return err
	}
	st, err := g.service.Submissions.Submit(r.Context(), caller, in)
	if err != nil {
		return err
	}
	exchange.Release(r) // a wait of minutes needs no memory for it
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	status := http.StatusAccepted
	if wait > 0 {
		ctx, stop := g.callers.WhileAllowed(r)
		defer stop()
		if atRest, ok := g.waits.Wait(ctx, st, wait); ok {
			st, status = atRest, http.StatusOK
		} else if err := context.Cause(ctx); err != nil && r.Context().Err() == nil {
			return err
		} else if now, err := g.store.Load(r.Context(), st.ID); err == nil {
			st = now
		} else if errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return exchange.Reply(w, status, api.RunOf(st, time.Now()))
}

func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if seconds, numErr := strconv.Atoi(text); numErr == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, exchange.Invalid("wait %q must be a duration up to %s, such as 30s", text, maxWait)
	}
	return d, nil
}

// accepted answers with a run that was made or changed.
func accepted(w http.ResponseWriter, st state.State) error {
	return exchange.Reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
}

// made answers with a run that was made.
func made(w http.ResponseWriter, st state.State) error {
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	return accepted(w, st)
}

func (g *Gateway) postFork(w http.ResponseWriter, r *http.Request) (err error) {
	in := service.Forking{Run: r.PathValue("id"), Key: r.Header.Get("Idempotency-Key"), Trace: r.Header.Get(span.Header)}
	if in.Body, err = exchange.Decode(r, &in.Request); err != nil {
		return err
	}
	st, err := g.service.Submissions.Fork(r.Context(), access.FromContext(r.Context()), in)
	if err != nil {
		return err
	}
	return made(w, st)
}

func (g *Gateway) postDraft(w http.ResponseWriter, r *http.Request) (err error) {
	var req api.DraftRequest
	in := service.Submission{Key: r.Header.Get("Idempotency-Key"), Trace: r.Header.Get(span.Header)}
	if in.Body, err = exchange.Decode(r, &req); err != nil {
		return err
	}
	st, err := g.service.Submissions.SubmitDraft(r.Context(), access.FromContext(r.Context()), req, in)
	if err != nil {
		return err
	}
	return made(w, st)
}

func (g *Gateway) postSignal(w http.ResponseWriter, r *http.Request) (err error) {
	in := service.Sending{Run: r.PathValue("id"), Key: r.Header.Get("Idempotency-Key")}
	if in.Body, err = exchange.Decode(r, &in.Request); err != nil {
		return err
	}
	st, err := g.service.Signals.Send(r.Context(), access.FromContext(r.Context()), in)
	if err != nil {
		return err
	}
	return accepted(w, st)
}

func (g *Gateway) postCancel(w http.ResponseWriter, r *http.Request) error {
	var req api.CancelRequest
	b, err := exchange.ReadBody(r)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if err := api.Decode(b, &req); err != nil {
			return exchange.Problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
		}
	}
	st, err := g.service.Runs.Cancel(r.Context(), access.FromContext(r.Context()), service.Canceling{Run: r.PathValue("id"), Reason: req.Reason})
	if err != nil {
		return err
	}
	return accepted(w, st)
}

func (g *Gateway) postCancelRuns(w http.ResponseWriter, r *http.Request) error {
	var req api.CancelRunsRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	answer, err := g.service.Runs.CancelMany(r.Context(), access.FromContext(r.Context()), req)
	if err != nil {
		return err
	}
	if req.DryRun {
		return exchange.Reply(w, http.StatusOK, answer)
	}
	return exchange.Reply(w, http.StatusAccepted, answer)
}

func (g *Gateway) getRun(w http.ResponseWriter, r *http.Request) error {
	st, err := g.service.Runs.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusOK, api.RunOf(st, time.Now()))
}

func (g *Gateway) deleteRun(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, g.service.Runs.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("id")))
}

func (g *Gateway) listRuns(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	view := query.Get("view")
	if view != "" && view != "full" && view != "summary" {
		return exchange.Invalid("view %q is not one of full, summary", view)
	}
	query.Del("view")
	l, err := service.ParseListing(query)
	if err != nil {
		return err
	}
	page, err := g.service.Runs.List(r.Context(), access.FromContext(r.Context()), l)
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

func (g *Gateway) getMessages(w http.ResponseWriter, r *http.Request) error {
	view := r.URL.Query().Get("view")
	if view != "" && view != "full" && view != "model" && view != "session" {
		return exchange.Invalid("view %q is not one of model, full, session", view)
	}
	format := transcript.Format(r.URL.Query().Get("format"))
	if format != "" {
		if view != "" && view != "model" {
			return exchange.Invalid("format %q exports what the model sees: leave out view", format)
		}
		if err := format.Check(); err != nil {
			return exchange.Invalid("%v", err)
		}
	}
	log, err := g.service.Runs.Log(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	if format != "" {
		return replyTranscript(w, format, state.View(log))
	}
	if view == "session" {
		return exchange.ReplyCut(w, r, state.Session(log))
	}
	messages := state.View(log)
	if view == "full" {
		messages = state.FullView(log)
	}
	return exchange.ReplyCut(w, r, api.MessagesOf(messages))
}

// replyTranscript answers with a history in a foreign format, message by message.
func replyTranscript(w http.ResponseWriter, f transcript.Format, messages []state.Message) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriter(w)
	if err := transcript.Write(out, f, messages); err != nil {
		panic(http.ErrAbortHandler) // the reader is gone; half an answer must not look like a whole one
	}
	_ = out.Flush() // the reader may be gone; there is nobody to tell
	return nil
}

func (g *Gateway) getTurns(w http.ResponseWriter, r *http.Request) error {
	log, err := g.service.Runs.Log(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	return exchange.ReplyCut(w, r, state.Audit(log))
}
