package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// postFork starts a run that shares the history of another up to a turn (L9). It
// is a run of its own, of the same version of the agent, with limits and usage of
// its own.
func (g *Gateway) postFork(w http.ResponseWriter, r *http.Request) error {
	source, err := g.run(r)
	if err != nil {
		return err
	}
	var req api.ForkRequest
	sub := submission{caller: access.From(r.Context()), key: r.Header.Get("Idempotency-Key"), trace: r.Header.Get(span.Header)}
	if sub.body, err = g.decode(w, r, &req); err != nil {
		return err
	}
	if len(sub.key) > maxKey {
		return invalid("the idempotency key has %d bytes, at most %d are allowed", len(sub.key), maxKey)
	}
	if sub.key != "" {
		sub.key = "fork/" + string(source.ID) + "/" + sub.key // a name of its own
	}
	if req.Turn == nil {
		return invalid("turn is missing: the history is shared up to its end, 0 is the submission alone")
	}
	log, err := g.store.Log(r.Context(), source.ID, 0, 0)
	if err != nil {
		return err
	}
	history, err := state.Upto(log, *req.Turn)
	if err != nil {
		return invalid("%v", err)
	}
	if given := req.Input; len(given) > 0 && string(given) != "null" {
		more, err := submitted(given)
		if err != nil {
			return err
		}
		history.Messages = append(history.Messages, more...)
	}
	if len(history.Messages) > maxMessages {
		return invalid("the history has %d messages with the input, at most %d are allowed", len(history.Messages), maxMessages)
	}
	if err := paired(history.Messages); err != nil {
		return invalid("input: %v", err)
	}
	if last := history.Messages[len(history.Messages)-1]; last.Role == state.RoleAssistant {
		return invalid("turn %d ends with an answer of the model: give an input to go on from there", *req.Turn)
	}
	run, err := g.forked(r.Context(), source, history, sub.caller)
	if err != nil {
		return err
	}
	st, err := g.start(r.Context(), run, sub)
	if err != nil {
		return err
	}
	g.metrics.submitted.WithLabelValues("fork").Inc()
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	return reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
}

func (g *Gateway) forked(ctx context.Context, source state.State, h state.History, by access.Caller) (state.State, error) {
	if source.Loop == "single_call" {
		return state.State{}, problem(http.StatusConflict, api.CodeNotSupported, "run %s is a single_call: it makes one model call, and a fork could only repeat it: submit it again", source.ID)
	}
	a, err := g.compiled(ctx, source.Tenant, source.Agent, source.AgentVersion)
	if err != nil {
		return state.State{}, err
	}
	now, err := g.clock.now(ctx)
	if err != nil {
		return state.State{}, err
	}
	run := state.State{
		Agent: source.Agent, AgentVersion: source.AgentVersion, Loop: source.Loop, Tenant: source.Tenant, Priority: source.Priority,
		Metadata: source.Metadata, Stream: source.Stream, Limits: a.Tighten(state.Limits{}, now),
		Facts: h.Facts, Turn: h.Turn, TurnBase: h.Turn,
	}
	if run.ID, err = g.ids.next(now.Time, 1); err != nil {
		return state.State{}, err
	}
	for i := range h.Messages {
		h.Messages[i].ID = fmt.Sprintf("msg_1_%d", i)
		if h.Messages[i].At.IsZero() {
			h.Messages[i].At, h.Messages[i].Turn = now, h.Turn
		}
	}
	return run.Move(state.Forked, state.Entry{At: now, By: by.By(), Messages: h.Messages, Detail: fmt.Sprintf("%s turn %d", source.ID, h.Turn)})
}
