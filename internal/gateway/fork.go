package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// postFork starts a run that shares the history of another up to a turn (L9), with the
// changes that are named. It is a run of its own, with limits and usage of its own.
func (g *Gateway) postFork(w http.ResponseWriter, r *http.Request) error {
	source, err := g.run(r)
	if err != nil {
		return err
	}
	var req api.ForkRequest
	sub := submission{caller: access.FromContext(r.Context()), source: source.ID, key: r.Header.Get("Idempotency-Key"), trace: r.Header.Get(span.Header)}
	if sub.body, err = decode(r, &req); err != nil {
		return err
	}
	if err := checkKey(sub.key); err != nil {
		return err
	}
	if req.Instructions != nil {
		if err := g.checkInstructions(r.Context(), sub.caller); err != nil {
			return err
		}
	}
	run, err := g.forked(r, source, req)
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

// checkInstructions refuses other instructions by who may not write definitions, and where
// somebody else has to read them before they run.
func (g *Gateway) checkInstructions(ctx context.Context, c access.Caller) error {
	if !c.May(access.Author) {
		return forbidden(c, access.Author)
	}
	settings, err := g.tenants.Settings(ctx, c.Tenant)
	if err != nil || !settings.Review {
		return err
	}
	return problem(http.StatusForbidden, api.CodeForbidden, "instructions: tenant %s wants definitions reviewed before they run: save the agent with them, have somebody else publish it, and fork with that agent_version", c.Tenant)
}

// forkedAgent is what a fork runs: a version of the agent, or a draft of it.
type forkedAgent struct {
	name string
	*agent.Agent
}

// forked returns the run that a fork asks for. All that is wrong with it is told at once.
func (g *Gateway) forked(r *http.Request, source state.State, req api.ForkRequest) (state.State, error) {
	ctx := r.Context()
	if source.Loop == "single_call" {
		return state.State{}, problem(http.StatusConflict, api.CodeNotSupported, "run %s is a single_call: it makes one model call, and a fork could only repeat it: submit it again", source.ID)
	}
	before, err := g.compiled(ctx, source.Tenant, source.Agent, source.AgentVersion)
	if err != nil {
		return state.State{}, err
	}
	log, err := g.history(ctx, source.ID)
	if err != nil {
		return state.State{}, err
	}
	f := &fork{source: source.ID}
	if f.asked, err = g.askedBefore(ctx, source, log); err != nil {
		return state.State{}, err
	}
	a, err := g.forkVersion(ctx, f, source, before, req)
	if err != nil {
		return state.State{}, err
	}
	if req.Turn == nil {
		f.fault("turn", "turn is missing: the history is shared up to its end, 0 is the submission alone")
	} else if f.History, err = state.HistoryThrough(log, *req.Turn); err != nil {
		f.fault("turn", "%v", err)
	} else {
		f.change(req, before.Instructions)
	}
	if err := f.err(); err != nil {
		return state.State{}, err
	}
	used := forkedAgent{source.Agent, a}
	if given := req.Instructions; given != nil && *given != a.Instructions {
		if used, err = g.forkDraft(r, source, a.Version, *given); err != nil {
			return state.State{}, err
		}
		f.changed = append(f.changed, "the instructions")
	}
	f.instruct(before.Instructions, used.Instructions)
	if used.name != source.Agent {
		source.Metadata = draftMetadata(source.Metadata, used.Name)
	}
	return g.forkedRun(ctx, source, used, f)
}

// forkVersion returns the version of the agent that a fork asks for.
func (g *Gateway) forkVersion(ctx context.Context, f *fork, source state.State, before *agent.Agent, req api.ForkRequest) (*agent.Agent, error) {
	if req.AgentVersion == nil || *req.AgentVersion == before.Version {
		return before, nil
	}
	n := *req.AgentVersion
	if n < 1 {
		f.fault("agent_version", "agent_version %d: versions are numbers from 1", n)
		return before, nil
	}
	a, err := g.compiled(ctx, source.Tenant, source.Agent, n)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		f.fault("agent_version", "agent_version: agent %s has no version %d that this build can run: GET /v1/agents/%s/versions lists them", source.Agent, n, source.Agent)
		if p.Code == api.CodeInvalidAgent {
			f.faults[len(f.faults)-1].Detail += ": " + p.Detail
		}
		return before, nil
	}
	if err != nil {
		return nil, err
	}
	if a.Loop.Type == "single_call" {
		f.fault("agent_version", "agent_version: version %d of %s is a single_call, which makes one model call and has no history to go on from", n, source.Agent)
	}
	f.changed = append(f.changed, fmt.Sprintf("version %d in place of %d", n, before.Version))
	return a, nil
}

// forkDraft keeps a version of the agent of a run with other instructions, as drafts are kept.
func (g *Gateway) forkDraft(r *http.Request, source state.State, version int, instructions string) (forkedAgent, error) {
	record, err := g.definition(r.Context(), source.Tenant, source.Agent, version)
	if err != nil {
		return forkedAgent{}, err
	}
	def, err := agent.Parse(record.Definition)
	if err != nil {
		return forkedAgent{}, err
	}
	def.Instructions = instructions
	given, err := json.Marshal(def)
	if err != nil {
		return forkedAgent{}, err
	}
	_, stored, err := g.draftOf(r, given)
	if err != nil {
		return forkedAgent{}, err
	}
	v, err := g.keepDraft(r.Context(), source.Tenant, stored)
	if err != nil {
		return forkedAgent{}, err
	}
	a, err := g.compiled(r.Context(), source.Tenant, v.Name, v.Version)
	return forkedAgent{v.Name, a}, err
}

func (g *Gateway) forkedRun(ctx context.Context, source state.State, a forkedAgent, f *fork) (state.State, error) {
	now, err := g.clock.now(ctx)
	if err != nil {
		return state.State{}, err
	}
	run := state.State{
		Agent: a.name, AgentVersion: a.Version, Loop: a.Loop.Type, Tenant: source.Tenant, Priority: source.Priority,
		Metadata: source.Metadata, Stream: source.Stream, Limits: a.Tighten(state.Limits{}, now),
		Facts: f.Facts, Turn: f.Turn, TurnBase: f.Turn,
	}
	if run.ID, err = g.ids.next(now.Time, 1); err != nil {
		return state.State{}, err
	}
	for i := range f.Messages {
		f.Messages[i].ID = fmt.Sprintf("msg_1_%d", i)
		if f.Messages[i].At.IsZero() {
			f.Messages[i].At, f.Messages[i].Turn = now, f.Turn
		}
	}
	detail := fmt.Sprintf("%s turn %d", source.ID, f.Turn)
	if len(f.changed) > 0 {
		detail += ", changed: " + strings.Join(f.changed, ", ")
	}
	return run.Move(state.Forked, state.Entry{At: now, By: access.FromContext(ctx).By(), Requesters: f.asked, Messages: f.Messages, Detail: detail})
}

// draftMetadata is that of a run of a draft: it names the agent.
func draftMetadata(given map[string]string, name string) map[string]string {
	out := maps.Clone(given)
	if out == nil {
		out = map[string]string{}
	}
	if _, there := out[metadataDraft]; !there {
		out[metadataDraft] = name
	}
	return out
}
