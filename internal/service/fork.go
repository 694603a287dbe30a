package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/turnstile"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Forking is a request for a run that continues from a turn of another run.
type Forking struct {
	Run     string // the id of the source run
	Request api.ForkRequest
	Body    []byte // the request as it was received
	Key     string // as in Submission
	Trace   string // as in Submission
}

// Fork starts a run that shares the history of another up to a turn (L9), with the requested changes. The new run has
// its own limits and usage.
func (s *Submissions) Fork(ctx context.Context, c access.Caller, in Forking) (state.State, error) {
	if err := s.permit(ctx, c, Fork); err != nil {
		return state.State{}, err
	}
	st, err := s.fork(ctx, c, in)
	target := string(st.ID)
	if err != nil {
		target = in.Run
	}
	s.note(ctx, c, Fork, target, err)
	return st, err
}

func (s *Submissions) fork(ctx context.Context, c access.Caller, in Forking) (state.State, error) {
	sub := submission{caller: c, source: state.RunID(in.Run), body: in.Body, key: in.Key, trace: in.Trace}
	if err := checkKey(sub.key); err != nil {
		return state.State{}, err
	}
	source, err := s.load(ctx, c, in.Run)
	if err != nil {
		return s.earlier(ctx, sub, err)
	}
	leave, err := s.enterFork(ctx, source)
	if err != nil {
		return state.State{}, err
	}
	defer leave()
	run, err := s.newFork(ctx, c, source, in)
	if err != nil {
		return s.earlier(ctx, sub, err)
	}
	st, err := s.start(ctx, run, sub)
	if err != nil {
		return s.earlier(ctx, sub, err)
	}
	s.submitted.WithLabelValues("fork").Inc()
	return st, nil
}

const (
	// largeFork is the size of a log from which the store takes so long to copy it that a tenant's forks wait for each
	// other.
	largeFork = 1 << 20

	// forkWait is the maximum time that a large fork waits for another one.
	forkWait = 5 * time.Second
)

// enterFork lets a fork in. For each tenant, this gateway admits one fork of a large log (largeFork) at a time, because
// a server of Redis does nothing else while it copies megabytes; forks of smaller logs do not wait. The error is a
// problem if the fork has waited for forkWait, or that of ctx. If it is nil, the caller must call leave.
func (s *Submissions) enterFork(ctx context.Context, source state.State) (leave func(), err error) {
	if source.LogBytes < largeFork {
		return func() {}, nil
	}
	leave, err = s.largeForks.Enter(ctx, source.Tenant)
	if errors.Is(err, turnstile.ErrFull) {
		p := problem(tooMany, api.CodeTooManyReads, "run %s has a log of %d bytes, and logs above %d bytes are forked one at a time for a tenant: retry when the other fork has finished", source.ID, source.LogBytes, largeFork)
		p.RetryAfter = RetryAfter
		return nil, p
	}
	return leave, err
}

// newFork returns the run that a caller requests, if the caller may start it.
func (s *Submissions) newFork(ctx context.Context, c access.Caller, source state.State, in Forking) (state.State, error) {
	if in.Request.Instructions != nil {
		if err := s.checkInstructions(ctx, c); err != nil {
			return state.State{}, err
		}
	}
	run, err := s.forked(ctx, c, source, in.Request)
	if err != nil {
		return state.State{}, err
	}
	run.Metadata, err = bindRun(c, source.Agent, run.Metadata)
	return run, err
}

// checkInstructions refuses a change of instructions if the caller may not write definitions, or if
// the tenant requires review.
func (s *Submissions) checkInstructions(ctx context.Context, c access.Caller) error {
	if !c.May(access.Author) {
		return forbidden(c, access.Author)
	}
	settings, err := s.tenants.Settings(ctx, c.Tenant)
	if err != nil || !settings.Review {
		return err
	}
	return problem(denied, api.CodeForbidden, "instructions: tenant %s requires a review of definitions before they run: save the agent with these instructions, ask an author or admin who has not saved it to publish it, and fork with that agent_version", c.Tenant)
}

// forkedAgent is the agent of a fork: a version of an agent, or a draft.
type forkedAgent struct {
	name string
	*agent.Agent
}

// forked returns the run that a fork requests. Its error lists all faults of the changes.
func (s *Submissions) forked(ctx context.Context, c access.Caller, source state.State, req api.ForkRequest) (state.State, error) {
	if source.Loop == "single_call" {
		return state.State{}, problem(conflict, api.CodeNotSupported, "run %s uses the loop single_call, which makes one model call, so a fork could only repeat it: submit a new run instead", source.ID)
	}
	var log []state.Entry
	handedOff := false
	if req.Turn != nil {
		var err error
		turn := *req.Turn
		if turn < 0 {
			turn = source.Turn // HistoryThrough refuses it, and names the turns that exist
		}
		if log, err = s.through(ctx, source, turn); err != nil {
			return state.State{}, err
		}
		responsible := source.DefinitionAt(log, *req.Turn)
		handedOff = responsible.Name != source.Agent
		source.Agent, source.AgentVersion = responsible.Name, responsible.Version
	}
	before, err := s.defs.compiled(ctx, source.Tenant, source.Agent, source.AgentVersion)
	if err != nil {
		return state.State{}, err
	}
	if handedOff {
		if _, err := bindRun(c, source.Agent, nil); err != nil {
			return state.State{}, err
		}
		source.Variables = before.OwnVariables(source.Variables)
	}
	said, err := instruct(before, source.Variables)
	if err != nil {
		return state.State{}, err
	}
	f := &fork{source: source.ID}
	if f.asked, err = s.askedBefore(ctx, source.ID); err != nil {
		return state.State{}, err
	}
	a, err := s.forkVersion(ctx, f, source, before, req)
	if err != nil {
		return state.State{}, err
	}
	if req.Turn == nil {
		f.fault("turn", "turn is missing: set it to the last turn that the new run shares; 0 shares the input only")
	} else if f.History, err = state.HistoryThrough(log, *req.Turn); err != nil {
		f.fault("turn", "%v", err)
	} else {
		f.change(req, said)
	}
	if err := f.err(); err != nil {
		return state.State{}, err
	}
	used := forkedAgent{source.Agent, a}
	if given := req.Instructions; given != nil && *given != a.Instructions {
		if used, err = s.forkDraft(ctx, source, a.Version, *given); err != nil {
			return state.State{}, err
		}
		f.changed = append(f.changed, "the instructions")
	}
	if values := given(req.Variables); len(req.Variables) > 0 && !bytes.Equal(values, source.Variables) {
		source.Variables = values
		f.changed = append(f.changed, "the variables")
	}
	instructions, err := instruct(used.Agent, source.Variables)
	if err != nil {
		return state.State{}, err
	}
	f.instruct(said, instructions)
	if used.name != source.Agent {
		source.Metadata = draftMetadata(source.Metadata, used.Name)
	}
	return s.forkedRun(ctx, c, source, used, f)
}

// forkVersion returns the version of the agent that a fork requests.
func (s *Submissions) forkVersion(ctx context.Context, f *fork, source state.State, before *agent.Agent, req api.ForkRequest) (*agent.Agent, error) {
	if req.AgentVersion == nil || *req.AgentVersion == before.Version {
		return before, nil
	}
	n := *req.AgentVersion
	if n < 1 {
		f.fault("agent_version", "agent_version %d is not valid: give a number from 1", n)
		return before, nil
	}
	a, err := s.defs.compiled(ctx, source.Tenant, source.Agent, n)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		detail := p.Detail
		if p.Code == api.CodeAgentNotFound {
			detail = fmt.Sprintf("agent %s has no version %d: name one from GET /v1/agents/%s/versions", source.Agent, n, source.Agent)
		}
		f.fault("agent_version", "agent_version: %s", detail)
		return before, nil
	}
	if err != nil {
		return nil, err
	}
	if a.Loop.Type == "single_call" {
		f.fault("agent_version", "agent_version: version %d of %s uses the loop single_call, which cannot continue a history: name a version with another loop", n, source.Agent)
	}
	f.changed = append(f.changed, fmt.Sprintf("version %d in place of %d", n, before.Version))
	return a, nil
}

// forkDraft stores a copy of the agent of a run with other instructions, as keepDraft does.
func (s *Submissions) forkDraft(ctx context.Context, source state.State, version int, instructions string) (forkedAgent, error) {
	record, err := s.defs.definition(ctx, source.Tenant, source.Agent, version)
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
	_, stored, err := s.defs.draftOf(ctx, source.Tenant, given)
	if err != nil {
		return forkedAgent{}, err
	}
	v, err := s.defs.keepDraft(ctx, source.Tenant, stored)
	if err != nil {
		return forkedAgent{}, err
	}
	a, err := s.defs.compiled(ctx, source.Tenant, v.Name, v.Version)
	return forkedAgent{v.Name, a}, err
}

func (s *Submissions) forkedRun(ctx context.Context, c access.Caller, source state.State, a forkedAgent, f *fork) (state.State, error) {
	now, err := s.clock.now(ctx)
	if err != nil {
		return state.State{}, err
	}
	run := state.State{
		Agent: a.name, AgentVersion: a.Version, Loop: a.Loop.Type, Tenant: source.Tenant, Priority: source.Priority,
		Metadata: source.Metadata, Stream: source.Stream, Limits: a.Tighten(state.Limits{}, now),
		Webhook: webhookOf(a.name, a.Agent), Facts: f.Facts, Turn: f.Turn, TurnBase: f.Turn, Variables: source.Variables,
	}
	if a.CheckOutput() == nil {
		run.OutputSchema = source.OutputSchema
	}
	if err := s.describe(ctx, source.Tenant, a.Agent, f.Messages, map[string]file.File{}, maxForkFiles); err != nil {
		return state.State{}, err
	}
	if run.ID, err = s.ids.next(now.Time, 1); err != nil {
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
	return run.Move(state.Forked, state.Entry{At: now, By: c.By(), Requesters: f.asked, Messages: f.Messages, Detail: detail, ForkedFrom: &state.ForkSource{RunID: source.ID, Turn: f.Turn, Changed: f.changed}})
}

// draftMetadata returns a copy of given in which the key metadataDraft has the name of the agent.
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
