package gateway

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxWait bounds ?wait=.
const maxWait = 10 * time.Minute

func (g *Gateway) postRun(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	sub := submission{caller: access.FromContext(r.Context()), key: r.Header.Get("Idempotency-Key"), trace: r.Header.Get(span.Header)}
	if wait > 0 {
		release, err := g.waits.take(sub.caller)
		if err != nil {
			return err // before the run is made
		}
		defer release()
	}
	if sub.body, err = decode(r, &sub.req); err != nil {
		return err
	}
	st, err := g.submit(r.Context(), sub)
	if err != nil {
		return err
	}
	releaseBody(r) // a wait of minutes needs no memory for it
	g.metrics.submitted.WithLabelValues("http").Inc()
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	status := http.StatusAccepted
	if wait > 0 {
		ctx, stop := g.whileAllowed(r)
		defer stop()
		if atRest, ok := g.atRest(ctx, st, wait); ok {
			st, status = atRest, http.StatusOK
		} else if err := context.Cause(ctx); err != nil && r.Context().Err() == nil {
			return err
		} else if now, err := g.store.Load(r.Context(), st.ID); err == nil {
			st = now
		} else if errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return reply(w, status, api.RunOf(st, time.Now()))
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
		return 0, invalid("wait %q must be a duration up to %s, such as 30s", text, maxWait)
	}
	return d, nil
}

// atRest waits until a run is terminal or waits for somebody, and reports whether
// it is. It looks at the store when the log of the run has grown, and now and then when a
// hint may have been lost. known is the run as the caller has it.
func (g *Gateway) atRest(ctx context.Context, known state.State, wait time.Duration) (_ state.State, ok bool) {
	id, missing := known.ID, 0
	ctx, cancel := context.WithTimeout(g.budgeted(ctx, true), wait)
	defer cancel()
	grown := make(chan struct{}, 1)
	stop, err := g.bus.Watch(ctx, id, func(n bus.Notice) {
		if n.Live != nil {
			return // a run that streams its answer does not rest
		}
		select {
		case grown <- struct{}{}:
		default:
		}
	})
	if err == nil {
		defer stop()
	}
	one, lost := g.waiters.join(), false
	defer func() { one.leave(ok && lost) }()
	for {
		st, err := g.store.Load(ctx, id)
		if err == nil && atRest(st) {
			// A look may only have been quicker than the hint.
			now, err := g.clock.now(ctx)
			lost = lost && err == nil && now.Sub(st.UpdatedAt.Time) > lookAfter
			return st, true
		}
		if missing++; !errors.Is(err, state.ErrNotFound) {
			missing = 0
		}
		if missing == lostLooks {
			st, err := g.recordLost(ctx, known, "a client waits for it")
			return st, err == nil
		}
		select {
		case <-grown:
			lost = false
			one.looks()
		case <-one.turn:
			lost = true
		case <-g.quit:
			return state.State{}, false
		case <-ctx.Done():
			return state.State{}, false
		}
	}
}

// atRest reports whether a caller has to hear of st: it has ended, or it waits, and
// not only for runs that it has started itself.
func atRest(st state.State) bool {
	return st.Status.Terminal() || st.Status == state.Waiting && (st.Waiting == nil || st.Waiting.Reason != state.WaitingChild)
}

// run returns the run that a request is about. One of another tenant is none.
func (g *Gateway) run(r *http.Request) (state.State, error) {
	id, err := state.ParseRunID(r.PathValue("id"))
	if err != nil {
		return state.State{}, problem(http.StatusBadRequest, api.CodeInvalidID, "%q: %v", r.PathValue("id"), err)
	}
	st, err := g.store.Load(r.Context(), id)
	if err == nil && st.Tenant != tenantOf(r) {
		err = runNotFound(id)
	}
	if err == nil {
		traceRun(r.Context(), st)
	}
	return st, err
}

func (g *Gateway) getRun(w http.ResponseWriter, r *http.Request) error {
	st, err := g.run(r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.RunOf(st, time.Now()))
}

// deleteRun forgets a run that has ended, with all that are below it.
func (g *Gateway) deleteRun(w http.ResponseWriter, r *http.Request) error {
	st, err := g.run(r)
	if err != nil {
		return err
	}
	if _, err := g.cleaner.Delete(r.Context(), st.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *Gateway) listRuns(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	view := query.Get("view")
	if view != "" && view != "full" && view != "summary" {
		return invalid("view %q is not one of full, summary", view)
	}
	query.Del("view")
	text, err := searchOf(query["text"])
	if err != nil {
		return err
	}
	query.Del("text")
	examined := 0
	if text != "" {
		var rest string
		if rest, examined, err = cursorOf(query.Get("cursor")); err != nil {
			return err
		}
		if query.Has("cursor") {
			query.Set("cursor", rest)
		}
	}
	f, err := filterOf(query)
	if err != nil {
		return err
	}
	if f.Loop != "" && !slices.Contains(g.cfg.Loops, f.Loop) {
		return invalid("loop %q is not one of %s", f.Loop, strings.Join(g.cfg.Loops, ", "))
	}
	f.Tenant, f.Bytes = tenantOf(r), listBytes
	if text != "" {
		s := &search{g: g, text: text, limit: f.Limit, examined: examined}
		next, complete, err := s.run(r.Context(), f)
		if err != nil {
			return err
		}
		page := api.NewPage(runsOf(s.found, view), next)
		page.Examined, page.Complete = &s.examined, &complete
		return replyPage(w, page)
	}
	page, err := g.store.List(r.Context(), f)
	if err != nil {
		return err
	}
	return replyPage(w, api.NewPage(runsOf(page.Runs, view), page.Next))
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

func filterOf(query url.Values) (state.Filter, error) {
	var f state.Filter
	var before string
	var err error
	if f.Limit, err = limitIn(query); err != nil {
		return f, err
	}
	for name, values := range query {
		value := values[0]
		if len(values) > 1 && name != "status" {
			return f, invalid("parameter %q is given %d times", name, len(values))
		}
		key, isMetadata := strings.CutPrefix(name, "metadata.")
		switch {
		case isMetadata:
			if f.Metadata == nil {
				f.Metadata = map[string]string{}
			}
			if key == "" {
				return f, invalid("parameter %q names no key: write metadata.KEY=VALUE", name)
			}
			f.Metadata[key] = value
		case name == "status":
			for text := range strings.SplitSeq(strings.Join(values, ","), ",") {
				if !slices.Contains(state.Statuses(), state.Status(text)) {
					return f, invalid("status %q is not one of %s", text, words(state.Statuses()))
				}
				f.Status = append(f.Status, state.Status(text))
			}
		case name == "waiting_reason":
			if f.Waiting = state.Reason(value); !slices.Contains(state.WaitReasons(), f.Waiting) {
				return f, invalid("waiting_reason %q is not one of %s", value, words(state.WaitReasons()))
			}
		case name == "agent" || name == "loop":
			if value == "" {
				return f, invalid("parameter %q is empty: name one, or leave it out", name)
			}
			if name == "agent" {
				f.Agent = value
			} else {
				f.Loop = value
			}
		case name == "parent":
			if f.Parent, err = state.ParseRunID(value); err != nil {
				return f, problem(http.StatusBadRequest, api.CodeInvalidID, "parent %q: %v", value, err)
			}
		case name == "batch":
			f.Batch = value
			if _, err = state.ParseBatchID(value); err != nil {
				return f, problem(http.StatusBadRequest, api.CodeInvalidID, "batch %q: %v", value, err)
			}
		case name == "created_after":
			// A plus that was not escaped arrives as a space.
			if f.CreatedAfter, err = time.Parse(time.RFC3339, strings.ReplaceAll(value, " ", "+")); err != nil {
				return f, invalid("created_after %q is not RFC 3339, as in 2026-11-20T15:04:05Z", value)
			}
		case name == "created_before":
			at, err := time.Parse(time.RFC3339, strings.ReplaceAll(value, " ", "+"))
			if err != nil {
				return f, invalid("created_before %q is not RFC 3339, as in 2026-11-20T15:04:05Z", value)
			}
			before = string(state.FirstIDAt(at))
		case name == "cursor":
			if _, err := state.ParseRunID(value); err != nil {
				return f, problem(http.StatusBadRequest, api.CodeInvalidCursor, "the cursor is not one that a list gave")
			}
			f.Cursor = value
		case name == "limit", name == parameterTenant:
		default:
			return f, invalid("unknown parameter %q; known are status, waiting_reason, agent, loop, metadata.KEY, parent, batch, created_after, created_before, text, view, cursor, limit, tenant", name)
		}
	}
	// Ids begin with the time of their making, so a list from a time on begins behind one.
	if f.Cursor == "" || before != "" && before < f.Cursor {
		f.Cursor = before
	}
	return f, nil
}

func (g *Gateway) getMessages(w http.ResponseWriter, r *http.Request) error {
	st, err := g.run(r)
	if err != nil {
		return err
	}
	view := r.URL.Query().Get("view")
	if view != "" && view != "full" && view != "model" && view != "session" {
		return invalid("view %q is not one of model, full, session", view)
	}
	format := transcript.Format(r.URL.Query().Get("format"))
	if format != "" {
		if view != "" && view != "model" {
			return invalid("format %q exports what the model sees: leave out view", format)
		}
		if err := format.Check(); err != nil {
			return invalid("%v", err)
		}
	}
	log, err := g.store.Log(r.Context(), st.ID, 0, 0)
	if err != nil {
		return err
	}
	if format != "" {
		return replyTranscript(w, format, state.View(log))
	}
	if view == "session" {
		return pageOf(w, r, state.Session(log))
	}
	messages := state.View(log)
	if view == "full" {
		messages = state.FullView(log)
	}
	return pageOf(w, r, api.MessagesOf(messages))
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
	st, err := g.run(r)
	if err != nil {
		return err
	}
	log, err := g.store.Log(r.Context(), st.ID, 0, 0)
	if err != nil {
		return err
	}
	return pageOf(w, r, state.Audit(log))
}

// words lists what may stand somewhere.
func words[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}
