package service

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/turnstile"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ids generates run ids that ascend, also within a millisecond. It is safe for concurrent use.
type ids struct {
	random io.Reader

	mu   sync.Mutex
	at   uint64      // time of the last id, in milliseconds
	last state.RunID // the last id that was returned, including those that follow in a batch
}

// next returns the first of n consecutive ids.
func (i *ids) next(now time.Time, n int) (state.RunID, error) {
	var random struct {
		Entropy [10]byte
		Step    uint32
	}
	if err := binary.Read(i.random, binary.BigEndian, &random); err != nil {
		return "", fmt.Errorf("generate run id: %w", err)
	}
	at := ulid.Timestamp(now)
	fresh, err := ulid.New(at, bytes.NewReader(random.Entropy[:]))
	if err != nil {
		return "", fmt.Errorf("generate run id: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	id := state.RunID(state.RunPrefix + fresh.String())
	if i.at == at && i.last != "" {
		id = i.last.Plus(1 + int(random.Step))
	}
	i.at, i.last = at, id.Plus(n-1)
	return id, nil
}

// Submission is a request for a run.
type Submission struct {
	Request api.SubmitRequest
	Body    []byte // the request as it was received; a repetition under a key must be the same
	Key     string // chosen by the caller, at most 255 bytes of any text; may be empty

	// Message is the id of the bus message with the request, or empty if the request was not a message. The bus
	// repeats a message until it is acknowledged, so the audit does not record failures of these requests.
	Message string

	ReplyTo string // the subject to which the result is published; may be empty
	Trace   string // a W3C traceparent from the submitter; may be empty
	Source  string // label of the metric of submissions: http or bus
}

// Submissions start runs. They have many methods because every way to start a run makes the same checks,
// one method each.
type Submissions struct {
	*core

	defs       *definitions
	largeForks *turnstile.Turnstile
}

// Submit stores a run and publishes its first turn, unless the run starts later. The run is durable when Submit returns
// nil; the outbox publishes the turn as soon as the bus accepts it. A submission with the key and the content of an
// earlier one returns the run of the earlier one, in its current state, even if a new run would be refused now, for
// example because its agent was deleted. But the caller must still have the right to make the submission. The store
// knows the key for at least a week, unless the earlier run is deleted before; then the submission starts another. The
// error is state.ErrIdempotencyConflict if the key was used with other content.
func (s *Submissions) Submit(ctx context.Context, c access.Caller, in Submission) (state.State, error) {
	if err := s.permit(ctx, c, Submit); err != nil {
		return state.State{}, err
	}
	err := bindSubmission(c, &in.Request)
	var st state.State
	if err == nil {
		st, err = s.submit(ctx, submission{caller: c, req: in.Request, body: in.Body, key: in.Key, message: in.Message, replyTo: in.ReplyTo, trace: in.Trace})
	}
	if err == nil {
		s.submitted.WithLabelValues(in.Source).Inc()
	}
	if err == nil || in.Message == "" {
		s.note(ctx, c, Submit, string(st.ID), err)
	}
	return st, err
}

// SubmitDraft starts a run of a definition that is not saved as an agent. The caller needs the roles author and
// submitter; a tenant that requires review refuses the request. The definition gets a generated name that no list
// shows, so it does not affect a saved agent with the name in the definition.
func (s *Submissions) SubmitDraft(ctx context.Context, c access.Caller, req api.DraftRequest, in Submission) (state.State, error) {
	if err := s.permit(ctx, c, SubmitDraft); err != nil {
		return state.State{}, err
	}
	st, err := s.submitDraft(ctx, c, req, in)
	s.note(ctx, c, SubmitDraft, string(st.ID), err)
	return st, err
}

func (s *Submissions) submitDraft(ctx context.Context, c access.Caller, req api.DraftRequest, in Submission) (state.State, error) {
	if !c.May(access.Submitter) {
		return state.State{}, forbidden(c, access.Submitter)
	}
	settings, err := s.tenants.Settings(ctx, c.Tenant)
	if err != nil {
		return state.State{}, err
	}
	if settings.Review {
		return state.State{}, problem(denied, api.CodeForbidden, "tenant %s requires a review of definitions before they run: save the definition as an agent, and ask an author or admin who has not saved it to publish it", c.Tenant)
	}
	if req.Agent != "" {
		return state.State{}, invalid("agent and definition are both given: remove one; POST /v1/runs runs a saved agent")
	}
	def, stored, err := s.defs.draftOf(ctx, c.Tenant, req.Definition)
	if err != nil {
		return state.State{}, err
	}
	v, err := s.defs.keepDraft(ctx, c.Tenant, stored)
	if err != nil {
		return state.State{}, err
	}
	req.SubmitRequest.Agent, req.Metadata = v.Name, draftMetadata(req.Metadata, def.Name)
	st, err := s.submit(ctx, submission{caller: c, req: req.SubmitRequest, version: v.Version, body: in.Body, key: in.Key, trace: in.Trace})
	if err == nil {
		s.submitted.WithLabelValues("draft").Inc()
	}
	return st, err
}

// Decode parses the submission in a message on the subject of an agent.
func (s *Submissions) Decode(body []byte, agent string) (req api.SubmitRequest, err error) {
	if int64(len(body)) > s.cfg.MaxBody {
		return req, problem(tooLarge, api.CodeBodyTooLarge, "the body has %d bytes, at most %d are allowed: send less; upload the files of a run first, and send their ids", len(body), s.cfg.MaxBody)
	}
	if err := api.Decode(body, &req); err != nil {
		return req, problem(badRequest, api.CodeInvalidJSON, "%v", err)
	}
	if req.Agent == "" {
		req.Agent = agent
	}
	if req.Agent != agent {
		return req, invalid("the body names agent %q, but the subject names %q: make them equal", req.Agent, agent)
	}
	return req, nil
}

// submission is a request for a run, from any source.
type submission struct {
	caller    access.Caller
	req       api.SubmitRequest
	version   int         // of the agent; 0 is the latest
	guard     string      // of that version, see state.NewRun
	body      []byte      // the request as it was received, for the fingerprint
	key       string      // chosen by the caller
	message   string      // the id of the bus message with the request
	source    state.RunID // the source run of a fork
	delivered string      // the receiver of the delivery, such as "hook triage"
	schedule  string      // the name of the schedule that fires
	id        state.RunID // the id of the run; empty: a new id
	replyTo   string
	trace     string               // a W3C traceparent from the submitter
	files     map[string]file.File // files that were read for other runs of a batch; may be nil
	schemas   *jsonschema.Batch    // of the runs of a batch; may be nil
}

// storeKey returns the submission's idempotency key in the store. Each source of keys (callers, users of tokens,
// hooks, triggers, schedules, forks, messages) has its own prefix, so no caller can choose a key that Turnpike
// generates. A message without a key is stored under its own id, because the bus may deliver it again after its run
// is stored. The result is empty if there is neither a key nor a message.
func (s submission) storeKey() string {
	switch {
	case s.key != "" && s.delivered != "": // a name has no spaces
		return s.delivered + " " + s.key
	case s.key != "" && s.schedule != "":
		return "schedule " + s.schedule + " " + s.key
	case s.key != "":
		key := "user " + s.key
		if b := s.caller.Principal.Bound; b != nil { // a user has no spaces
			key = "token " + b.User + " " + s.key
		}
		if s.source != "" {
			return "fork " + string(s.source) + " " + key
		}
		return key
	case s.message != "":
		return "message " + s.message
	default:
		return ""
	}
}

const (
	maxMessages = 2000
	maxMetadata = 64
	maxKey      = 255
	maxValue    = 4096
)

// submit stores a run and publishes its first turn. When it returns nil the run is durable, and
// the outbox publishes the turn as soon as the bus takes it.
func (s *Submissions) submit(ctx context.Context, sub submission) (state.State, error) {
	if err := s.checkHeaders(sub); err != nil {
		return state.State{}, err
	}
	st, err := s.submitRecent(ctx, &sub)
	if errors.Is(err, state.ErrChanged) {
		var run state.State
		if run, err = s.newRun(ctx, sub); err == nil {
			st, err = s.start(ctx, run, sub)
		}
	}
	if err != nil { // a file of the run may have been deleted since the check
		return s.earlier(ctx, sub, err)
	}
	return st, nil
}

// submitRecent submits a run of the latest version of its agent that this gateway has read, without reading it again.
// The error is state.ErrChanged if the caller must read the agent and try again: the agent is unknown here or has
// changed, the submission names a version, or the run could not be made from the version that this gateway has read,
// for whatever reason (any error of newRunOf). Once the run is made, submitRecent sets the id of sub to that of the
// run, even if storing it fails, so that the next attempt uses the same id: files may be recorded as used by it.
func (s *Submissions) submitRecent(ctx context.Context, sub *submission) (state.State, error) {
	a, ok := s.defs.lastRead(sub.caller.Tenant, sub.req.Agent)
	if !ok || cmp.Or(sub.version, sub.req.AgentVersion) != 0 {
		return state.State{}, state.ErrChanged
	}
	run, err := s.newRunOf(ctx, *sub, a.agent)
	if err != nil {
		return state.State{}, state.ErrChanged // the latest version may allow it
	}
	guarded := *sub
	guarded.guard, sub.id = a.guard, run.ID
	return s.start(ctx, run, guarded)
}

// earlier returns the run of an earlier submission with the key and the content of sub, although sub is refused now:
// the agent may have changed since, or the source of a fork may be gone. If that run has ended, earlier also sends it to
// the reply subject of sub. It returns the refusal if no such run exists, if sub has no key in the store, or if the
// refusal is neither an *api.Problem nor state.ErrNotFound. The error is state.ErrIdempotencyConflict if the key was
// used with other content.
func (s *Submissions) earlier(ctx context.Context, sub submission, refusal error) (state.State, error) {
	_, refused := errors.AsType[*api.Problem](refusal)
	if !refused && !errors.Is(refusal, state.ErrNotFound) || sub.storeKey() == "" {
		return state.State{}, refusal
	}
	st, err := s.store.LoadByKey(ctx, sub.caller.Tenant, sub.storeKey(), fingerprint(sub))
	if errors.Is(err, state.ErrNotFound) {
		return state.State{}, refusal
	}
	if err != nil {
		return state.State{}, err
	}
	s.replyEnded(ctx, st, sub.replyTo)
	return st, nil
}

// start stores and publishes the run of a submission.
func (s *Submissions) start(ctx context.Context, run state.State, sub submission) (st state.State, err error) {
	ctx, submit := s.traceSubmit(ctx, &run, sub.trace)
	defer func() { endSubmit(submit, run, st, err) }()
	made, err := s.create(ctx, state.NewRun{State: run, Key: sub.storeKey(), Fingerprint: fingerprint(sub), Guard: sub.guard})
	if err != nil {
		return state.State{}, err
	}
	st, existing := made.State, made.Existing
	if !existing {
		s.noisy.note(made)
		s.cfg.Changed(st.Tenant, st.ID)
	}
	if existing {
		s.replyEnded(ctx, st, sub.replyTo)
	}
	// An existing run may be one that this call has made, if the store client repeated the write, or one whose
	// publisher died. If the message was published before, the bus drops the second.
	if st.Status == state.Queued && (!existing || st.Version == run.Version) {
		first := firstTurn(made, run.TraceSpan)
		s.publish(ctx, func(ctx context.Context) error { return s.dispatch.Publish(ctx, first) })
	}
	return st, nil
}

// firstTurn returns the message of a new run's first turn.
func firstTurn(made state.Created, traceParent string) dispatch.Turn {
	st := made.State
	return dispatch.Turn{Run: st.ID, Version: st.Version, Priority: st.Priority, Tenant: st.Tenant, Noisy: made.Noisy, TraceParent: traceParent}
}

// replyEnded publishes a run that had ended before it was submitted again to the submitter's subject: no worker does.
func (s *Submissions) replyEnded(ctx context.Context, st state.State, subject string) {
	if subject != "" && st.Status.Terminal() {
		s.reply(ctx, st.Tenant, subject, api.RunOf(st, time.Now()))
	}
}

// reply publishes an answer to the subject that a submitter named. It ignores errors, because the
// submitter may no longer listen.
func (s *Submissions) reply(ctx context.Context, tenant, subject string, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = s.bus.Reply(ctx, tenant, subject, b)
	}
	if err != nil {
		s.log.Debug("reply", "error", err)
	}
}

// fingerprint identifies the content of a submission. If its body is a JSON object, white space and the order of fields
// do not matter, and the agent counts too, which a submission over the bus may name only in the subject. Any other
// body, such as that of a delivery or of a schedule's firing, is identified by its bytes alone, without the agent.
func fingerprint(sub submission) string {
	return fingerprintOf(sub.body, func(fields map[string]any) { fields["agent"] = sub.req.Agent })
}

// fingerprintOf identifies the body of a request, after adjust has changed its fields. It hashes a body that is not a JSON
// object unchanged.
func fingerprintOf(body []byte, adjust func(fields map[string]any)) string {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // large numbers that differ must not become one
	var fields map[string]any
	if dec.Decode(&fields) == nil && fields != nil {
		adjust(fields)
		if b, err := json.Marshal(fields); err == nil {
			body = b
		}
	}
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// checkHeaders checks the key and the reply subject of a submission. The caller must do this before earlier, which uses
// both.
func (s *Submissions) checkHeaders(sub submission) error {
	if err := checkKey(sub.key); err != nil {
		return err
	}
	if sub.replyTo != "" {
		if err := s.bus.CheckReply(sub.caller.Tenant, sub.replyTo); err != nil {
			return invalid("header Turnpike-Reply: %v", err)
		}
	}
	return nil
}

// newRun checks a submission and returns its run, with an id. It stores nothing.
func (s *Submissions) newRun(ctx context.Context, sub submission) (state.State, error) {
	req := sub.req
	if req.Agent == "" {
		return state.State{}, invalid("agent is missing: name an agent")
	}
	a, err := s.defs.compiled(ctx, sub.caller.Tenant, req.Agent, cmp.Or(sub.version, req.AgentVersion))
	if err != nil {
		return state.State{}, err
	}
	return s.newRunOf(ctx, sub, a)
}

// newRunOf is newRun with the agent of the submission.
func (s *Submissions) newRunOf(ctx context.Context, sub submission, a *agent.Agent) (state.State, error) {
	now, err := s.clock.now(ctx)
	if err != nil {
		return state.State{}, err
	}
	run, err := s.runOf(ctx, sub, a, instruct, now, nil)
	if err != nil {
		return state.State{}, err
	}
	if run.ID = sub.id; run.ID == "" {
		run.ID, err = s.ids.next(now.Time, 1)
	}
	return run, err
}

// webhookOf returns the webhook of an agent. Drafts have none, because a trial must not notify a receiver.
func webhookOf(name string, a *agent.Agent) *state.Webhook {
	if isDraft(name) {
		return nil
	}
	return a.Definition.Webhook
}

func checkKey(key string) error {
	if len(key) > maxKey {
		return invalid("the idempotency key has %d bytes, at most %d are allowed: use a shorter key", len(key), maxKey)
	}
	return nil
}

// runOf returns the initial run of a submission, without an id. batch is
// the place of the run in a batch, in which it may be pending, or nil.
func (s *Submissions) runOf(ctx context.Context, sub submission, a *agent.Agent, instruct instructor, now state.Time, batch *state.Batch) (state.State, error) {
	req := sub.req
	switch {
	case req.Delay < 0:
		return state.State{}, invalid("delay is %s, which is negative: set a positive delay, or omit it to start now", time.Duration(req.Delay))
	case req.Delay > 0 && req.StartAt != nil:
		return state.State{}, invalid("delay and start_at are both set: omit one of them")
	case req.Delay > 0:
		at := state.At(now.Add(time.Duration(req.Delay)))
		req.StartAt = &at
	}
	limits, err := limitsOf(req.Limits, now)
	if err != nil {
		return state.State{}, err
	}
	instructions, err := instruct(a, req.Variables)
	if err != nil {
		return state.State{}, err
	}
	messages, err := inputOf(req.Input, instructions)
	if err != nil {
		return state.State{}, err
	}
	if sub.files == nil {
		sub.files = map[string]file.File{}
	}
	if err := s.describe(ctx, sub.caller.Tenant, a, messages, sub.files, maxFileParts); err != nil {
		return state.State{}, err
	}
	if sub.schemas == nil {
		sub.schemas = jsonschema.NewBatch()
	}
	if string(req.OutputSchema) == "null" {
		req.OutputSchema = nil
	}
	run := state.State{
		Agent: req.Agent, AgentVersion: a.Version, Loop: a.Loop.Type, Tenant: sub.caller.Tenant, Priority: state.Priority(req.Priority),
		Metadata: req.Metadata, Limits: a.Tighten(limits, now), OutputSchema: req.OutputSchema, Variables: given(req.Variables), Stream: req.Stream, ReplyTo: sub.replyTo,
		Webhook: cmp.Or(req.Webhook, webhookOf(req.Agent, a)), Batch: batch, Facts: state.Facts{Confidence: req.Confidence},
	}
	if err := verify(&run, req, a, sub.schemas); err != nil {
		return state.State{}, err
	}
	if req.Webhook != nil {
		if err := s.permittedWebhook(ctx, run.Tenant, "webhook.", *req.Webhook); err != nil {
			return state.State{}, err
		}
	}
	for i := range messages {
		messages[i].ID, messages[i].At = fmt.Sprintf("msg_1_%d", i), now
	}
	submitted := state.Entry{At: now, Messages: messages, By: sub.caller.By(), Requesters: sub.caller.Requesters}
	if run, err = run.Move(state.Submitted, submitted); err != nil {
		return state.State{}, err
	}
	wait := &state.Wait{Reason: state.WaitingSchedule, Since: now, Calls: []state.WaitCall{}}
	later := req.StartAt != nil && req.StartAt.After(now.Time)
	if later {
		run.ResumeAt = *req.StartAt
	}
	switch {
	case batch != nil && batch.PendingInBatch:
		return run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: state.BatchDetail, Waiting: wait})
	case later:
		wait.ExpiresAt = *req.StartAt
		return run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: "start_at", Waiting: wait})
	default:
		return run, nil
	}
}

func invalid(format string, args ...any) error {
	return problem(badRequest, api.CodeInvalidRequest, format, args...)
}

// verify checks the fields of a submission that do not depend on the input.
func verify(run *state.State, req api.SubmitRequest, a *agent.Agent, schemas *jsonschema.Batch) error {
	if run.Priority == "" {
		run.Priority = state.Normal
	}
	if !slices.Contains(state.Priorities(), run.Priority) {
		return invalid("priority is %q: use high, normal or low", req.Priority)
	}
	if !slices.Contains([]string{"", "turns", "deltas"}, req.Stream) {
		return invalid("stream is %q: use turns or deltas, or omit stream", req.Stream)
	}
	if len(req.OutputSchema) > 0 {
		if err := a.CheckOutput(); err != nil {
			return invalid("output_schema: %v", err)
		}
		if err := schemas.Check(req.OutputSchema); err != nil {
			return invalid("output_schema: %v", err)
		}
	}
	if c := req.Confidence; c != nil && !(*c >= 0 && *c <= 1) {
		return invalid("confidence %v is not between 0 and 1: send a number in that range", *c)
	}
	if req.Webhook != nil {
		if err := req.Webhook.Check(); err != nil {
			return invalid("webhook.%v", err)
		}
	}
	if len(req.Metadata) > maxMetadata {
		return invalid("metadata has %d entries, at most %d are allowed: remove some", len(req.Metadata), maxMetadata)
	}
	for k, v := range req.Metadata {
		if k == "" || len(k) > maxKey || len(v) > maxValue {
			return invalid("metadata %.40q: the key has %d bytes and the value %d: use 1 to %d bytes for a key, and at most %d for a value", k, len(k), len(v), maxKey, maxValue)
		}
	}
	if run.Limits.CostUSD > 0 {
		if err := a.CheckCostLimit(); err != nil {
			return invalid("limits.cost_usd: %v", err)
		}
	}
	for i, d := range a.Definition.Tools {
		t := a.Tool(d.Name)
		if t == nil || t.Metadata == "" {
			continue
		}
		switch value := req.Metadata[t.Metadata]; {
		case value == "":
			return invalid("metadata.%s is missing or empty, and tools[%d] of the agent, %q, keeps one memory for each of its values: set it", t.Metadata, i, d.Name)
		case len(value) > memory.MaxValue:
			return invalid("metadata.%s has %d bytes, and tools[%d] of the agent, %q, keeps one memory for each of its values, of at most %d bytes: set a shorter value", t.Metadata, len(value), i, d.Name, memory.MaxValue)
		}
	}
	if at, end := req.StartAt, run.Limits.DeadlineAt; at != nil && !end.IsZero() && !at.Before(end.Time) {
		return invalid("the run would start at %s, but its deadline is %s: set an earlier start_at or a shorter delay, or a later deadline in limits of the request and of the agent", at.Format(time.RFC3339), end.Format(time.RFC3339))
	}
	return nil
}

func limitsOf(l *api.SubmitLimits, now state.Time) (state.Limits, error) {
	if l == nil {
		return state.Limits{}, nil
	}
	for _, limit := range []struct {
		name     string
		negative bool
		value    any
	}{
		{"max_turns", l.MaxTurns < 0, l.MaxTurns}, {"output_tokens", l.OutputTokens < 0, l.OutputTokens}, {"total_tokens", l.TotalTokens < 0, l.TotalTokens},
		{"cost_usd", l.CostUSD < 0, float64(l.CostUSD) / 1e6}, {"wait", l.Wait < 0, time.Duration(l.Wait)}, {"runs", l.Runs < 0, l.Runs},
	} {
		if limit.negative {
			return state.Limits{}, invalid("limits.%s is %v: send 0 or more; without it the agent's limit applies", limit.name, limit.value)
		}
	}
	if l.MaxTurns > agent.MaxMaxTurns {
		return state.Limits{}, invalid("limits.max_turns: %d is above the maximum of %d: send a smaller number", l.MaxTurns, agent.MaxMaxTurns)
	}
	out := state.Limits{
		MaxTurns: l.MaxTurns, OutputTokens: l.OutputTokens, TotalTokens: l.TotalTokens, CostUSD: l.CostUSD, WaitMS: time.Duration(l.Wait).Milliseconds(), Runs: l.Runs,
	}
	if d := l.Deadline; d != nil {
		out.DeadlineAt = d.At
		if d.At.IsZero() {
			if d.In <= 0 {
				return state.Limits{}, invalid("limits.deadline is %s: send a positive duration, or a time in the future", d.In)
			}
			out.DeadlineAt = state.At(now.Add(d.In))
		}
	}
	return out, nil
}
