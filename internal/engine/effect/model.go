package effect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// defaultModelTimeout bounds each try of a call of a model that sets no timeout.
const defaultModelTimeout = 10 * time.Minute

// Models configures the calls of models.
type Models struct {
	Providers  map[string]model.Provider // by name
	Mock       []model.Scripted          // if not nil, replace the model of every agent (K8)
	Prices     model.Prices
	RateLimits model.RateLimits
	Breakers   model.BreakerPolicy
	Prompt     int64 // maximum memory of the messages of a call in bytes; more is a prompt that is too long
	Output     int   // maximum bytes of a response; a longer one is a failed call

	Files  Files              // nil: no call has an uploaded file
	Memory *admission.Answers // for the contents of files

	Answers *admission.Answers // for long responses while they arrive; nil: they are not counted
}

// maxResponses bounds the responses that only this worker has: if it dies, other workers request them again.
const maxResponses = 128

// models calls models.
type models struct {
	*shared

	unsaved *admission.Unsaved // responses

	cfg      Models
	breakers *model.Breakers
	quotas   *quotas
	meters   *meters // nil: none
	gaps     gaps
}

// call makes the model call of a turn, with short retries inside it. effect is a loop.CallModel; as a value it would make
// the frames larger in which turns wait.
func (ms *models) call(ctx context.Context, t *Turn, effect loop.Effect) (ev loop.Event, err error) {
	c, ctx, ev, err := ms.prepare(ctx, t, effect)
	if c == nil {
		return ev, err
	}
	defer func() {
		c.unload() // again, in case the provider panicked
		ms.spans.endModel(c.span, ev)
	}()
	t.response.Saved() // no call of a turn waits for an earlier one of it
	if t.response = ms.unsaved.Start(ctx, 1); ctx.Err() != nil {
		return loop.Aborted{}, nil
	}
	began := time.Now()
	failure := model.Retry(ctx, model.RetryPolicy{}, c.try)
	c.unload()
	t.response.Returned()
	return c.outcome(ctx, failure, time.Since(began)), nil
}

// modelCall is a model call in flight, retries included. It has more fields than most types because turns spend most
// of their time in a model call: fields keep the data of the call off the stacks of turns.
type modelCall struct {
	*models

	t           *Turn
	span        trace.Span
	of          *agent.Model
	purpose     loop.Purpose
	provider    model.Provider
	req         model.Request
	reservation *reservation
	files       *admission.Reservation // of the contents that req has
	unloaded    []state.Message        // of the request, without those contents
	breaker     string                 // name of the breaker that guards it; "": none
	timeout     time.Duration
	asked       int // requests to this model before this call
	deltas      *deltaStream

	resp   model.Response // of the last try, like last, sent, blind and spent
	failed int
	last   error
	sent   bool        // the provider may have received the request
	blind  bool        // the provider was abandoned, so its answer is unknown
	spent  state.Usage // the cost of the failure
	lost   []loop.Lost // earlier failures that had a cost or a part of an answer
}

// prepare returns the call that an effect requests, and its context. If the call cannot be made, it is nil, and
// the event or the error says why.
func (ms *models) prepare(ctx context.Context, t *Turn, e loop.Effect) (*modelCall, context.Context, loop.Event, error) {
	called, ok := e.(loop.CallModel)
	if !ok {
		return nil, nil, nil, fmt.Errorf("%w: %T is no model call", ErrDrop, e)
	}
	effect := &called
	a, err := ms.agent(ctx, t)
	if err != nil {
		return nil, nil, nil, err
	}
	m := modelOf(a, t.Run)
	ctx, span := ms.spans.model(ctx, t, m, effect)
	c := &modelCall{models: ms, t: t, span: span, of: m, purpose: effect.Purpose, timeout: time.Duration(m.Timeout), asked: t.Run.ModelRequests - t.Run.FallbackBase}
	if c.provider, c.req, err = ms.request(ctx, t.Run.Tenant, m, effect); err != nil {
		if ctx.Err() != nil { // the lookup was cut short
			ev := loop.Aborted{}
			ms.spans.endModel(span, ev)
			return nil, nil, ev, nil
		}
		ev := loop.ModelFailed{At: ms.clock.Now(), Err: asModelError(err), Purpose: effect.Purpose}
		ms.spans.endModel(span, ev)
		return nil, nil, ev, nil
	}
	c.req.Run = t.Run.ID
	c.req.ProviderTools = ms.affordable(t.Run, m, c.req.ProviderTools)
	c.req.LongWait = ms.gaps.longWait(t.Run, ms.clock.Now().Time)
	if c.timeout == 0 {
		c.timeout = defaultModelTimeout
	}
	if t.Run.Stream == "deltas" && !effect.Quiet {
		c.deltas = &deltaStream{live: ms.live, t: t}
	}
	c.reservation = ms.reserve(t.Run, a, m, &c.req)
	// A scripted model says nothing about a provider's health, and failures of one tenant say nothing about another's
	// timeout, key and requests.
	if m.Provider != "scripted" {
		c.breaker = strings.Join([]string{t.Run.Tenant, m.Provider, m.BaseURL, m.Name}, " ")
	}
	return c, ctx, nil, nil
}

// modelOf returns the model that a run uses now.
func modelOf(a *agent.Agent, s *state.State) *agent.Model {
	if m := a.ModelAt(s.Fallback); m != nil {
		return m
	}
	return &a.Model
}

// try makes the call once.
func (c *modelCall) try(ctx context.Context) error {
	c.resp, c.sent, c.blind = model.Response{}, false, false
	if c.deltas != nil {
		c.deltas.restart()
	}
	if err := c.load(ctx); err != nil {
		return err
	}
	if err := c.admitted(ctx); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	memory := &responseMemory{of: c.cfg.Answers, tenant: c.t.Run.Tenant}
	returned := false
	defer func() {
		if !returned {
			memory.release()
			c.untried()
		}
	}()
	err := c.generate(model.WithReceipt(within, memory.grow))
	returned = true
	memory.release()
	failure := failureOf(err)
	if err != nil && ctx.Err() != nil {
		failure = &model.Error{Class: model.Cancelled} // the turn has ended, which says nothing about the provider
	}
	c.tried(within, err, failure)
	return err
}

// admitted returns nil if the call may be made now. It may wait for a rate limit.
func (c *modelCall) admitted(ctx context.Context) error {
	if c.breaker != "" {
		if refused := c.breakers.Allow(c.breaker); refused != nil {
			return c.refused(refused)
		}
	}
	if err := c.reservation.enter(ctx, c.failed > 0); err != nil {
		c.untried()
		if errors.Is(err, errNoCapacity) {
			err = c.last
		}
		return err
	}
	return nil
}

// untried reports to the breaker that a call that it allowed was not made, or ended in a panic of the provider.
func (c *modelCall) untried() {
	if c.breaker != "" {
		c.breakers.Done(c.breaker, &model.Error{Class: model.Cancelled})
	}
}

// generate asks the provider. Turns wait in it, so the rare cases are elsewhere: a waiting stack whose frames take more
// than a quarter of it stays as large as the turn has ever needed it.
func (c *modelCall) generate(ctx context.Context) error {
	c.req.Call, c.sent = c.asked+c.failed, ctx.Err() == nil
	if cancelable(c.provider) {
		return c.direct(ctx)
	}
	a := c.answer()
	if _, ok := timelimit.Call(ctx, c.calls, timelimit.Straggle, func() struct{} { a.ask(ctx); return struct{}{} }); !ok {
		return c.abandon(ctx, a)
	}
	return c.take(a)
}

// answer returns the answer to fill by a provider that may ignore the end of its context.
func (c *modelCall) answer() *answer {
	return &answer{provider: c.provider, req: c.req, stream: c.deltas}
}

// abandon drops an answer that has not arrived by the end of ctx.
func (c *modelCall) abandon(ctx context.Context, a *answer) error {
	a.abandoned()
	c.blind = true
	class, message := model.Cancelled, "the call was cancelled, but the provider's code did not stop: make it return when its context ends"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		class, message = model.Timeout, fmt.Sprintf("no answer within %s, and the provider's code did not stop then: make it return when its context ends", c.timeout)
	}
	return &model.Error{Class: class, Provider: c.of.Provider, Message: message, Err: ctx.Err()}
}

// take makes an answer that has arrived the response of the call.
func (c *modelCall) take(a *answer) error {
	if c.resp = a.resp; a.err != nil {
		return a.err
	}
	return tooLong(c.of.Provider, &c.resp, c.cfg.Output)
}

// direct calls a provider that returns soon after its context has ended.
func (c *modelCall) direct(ctx context.Context) (err error) {
	var onDelta func(model.Delta)
	if c.deltas != nil {
		onDelta = c.deltas.add
	}
	if c.resp, err = c.provider.Generate(ctx, c.req, onDelta); err != nil {
		return err
	}
	return tooLong(c.of.Provider, &c.resp, c.cfg.Output)
}

// cancelable reports whether p returns soon after its context has ended. A provider that the
// worker has wrapped counts like the provider inside.
func cancelable(p model.Provider) bool {
	if r, ok := p.(redacting); ok {
		p = r.Provider
	}
	return model.IsCancelable(p)
}

// answer is the answer of a provider that may ignore the end of its context. abandoned drops all later deltas.
type answer struct {
	provider model.Provider
	req      model.Request
	stream   *deltaStream // nil: none
	resp     model.Response
	err      error

	mu   sync.Mutex
	over bool
}

func (a *answer) ask(ctx context.Context) {
	var onDelta func(model.Delta)
	if a.stream != nil {
		onDelta = a.add
	}
	a.resp, a.err = a.provider.Generate(ctx, a.req, onDelta)
}

// MaxCalls is the maximum number of tool calls in one response. The loop's work for each call grows with their number.
const MaxCalls = 1000

// maxCallName is the maximum length of the id and of the name of a call in bytes. Both become parts of results, waits
// and errors.
const maxCallName = 1 << 10

// tooLong returns the error of a response that has more bytes than limit, or too many calls of tools.
func tooLong(provider string, resp *model.Response, limit int) error {
	n, calls, longest := 0, 0, 0
	for _, p := range resp.Parts {
		n += len(p.ID) + len(p.Name) + len(p.Text) + len(p.Arguments) + len(p.Content) + len(p.Data) + len(p.Opaque)
		if p.Type == state.PartToolCall {
			calls++
			longest = max(longest, len(p.ID), len(p.Name))
		}
	}
	switch {
	case n > limit:
		return &model.Error{Class: model.InvalidRequest, Provider: provider, Message: fmt.Sprintf("the model's response has %d bytes, and at most %d are allowed: lower model.max_output_tokens of the agent", n, limit)}
	case calls > MaxCalls:
		return &model.Error{Class: model.InvalidRequest, Provider: provider, Message: fmt.Sprintf("the model's response has %d calls of tools, and at most %d are allowed: tell the model to make fewer at once", calls, MaxCalls)}
	case longest > maxCallName:
		return &model.Error{Class: model.InvalidRequest, Provider: provider, Message: fmt.Sprintf("the model's response calls a tool by an id or a name of %d bytes, and at most %d are allowed: check that base_url is the address of a model", longest, maxCallName)}
	}
	return nil
}

func (a *answer) add(d model.Delta) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.stream.add(d)
	}
}

func (a *answer) abandoned() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// tried records the outcome of a try. failure is what it says about the provider; nil if it has succeeded.
func (c *modelCall) tried(ctx context.Context, err error, failure *model.Error) {
	if err != nil {
		c.lose()
		c.failed++
		c.last, c.spent = err, c.wasted(asModelError(err))
		traceFailure(ctx, asModelError(err), c.failed)
	}
	if c.breaker != "" {
		c.breakers.Done(c.breaker, failure)
	}
	c.debug(c.reservation.done(ctx, c.resp.Usage, failureOf(err)), "rate limit")
}

// refused returns the error of a call that an open breaker refuses with e. That is e, except if the breaker only waits
// for the trial call of another run, this call has not failed before, and the run cannot switch to another model. Then
// it is a *delayedError: with e, a long trial would end many runs.
func (c *modelCall) refused(e *model.Error) error {
	if c.failed > 0 || c.reservation.elsewhere || !errors.Is(e, model.ErrTrial) {
		return e
	}
	return c.reservation.delayed(e.RetryAfter, c.reservation.at, c.reservation.who+" failed a moment ago, another run is testing whether it works again")
}

// outcome returns the event of a call: a loop.Aborted without a cause if the end of ctx cut it short.
func (c *modelCall) outcome(ctx context.Context, err error, took time.Duration) loop.Event {
	t, resp := c.t, c.resp
	if c.deltas != nil {
		c.deltas.flush()
	}
	if delayed, ok := errors.AsType[*delayedError](err); ok && ctx.Err() == nil {
		return loop.ModelDelayed{At: c.clock.Now(), Wait: delayed.wait, Reservation: delayed.at, Detail: delayed.detail, Purpose: c.purpose}
	}
	c.metrics.modelSeconds.Observe(took.Seconds())

	if err != nil && ctx.Err() != nil {
		ev := loop.Aborted{Failed: c.failed, Lost: c.lost, Partial: c.said(), Spent: c.spent}
		if len(resp.Parts) > 0 {
			ev.Response = &resp
		}
		c.meters.failed(ctx, t.Run.Tenant, c.of, took, model.Cancelled)
		return ev
	}
	if err != nil {
		e := asModelError(err)
		c.metrics.modelErrors.WithLabelValues(string(e.Class)).Inc()
		c.meters.failed(ctx, t.Run.Tenant, c.of, took, e.Class)
		if c.failed > 0 && e != asModelError(c.last) {
			c.lose() // a breaker or a quota refused this try
		}
		return loop.ModelFailed{At: c.clock.Now(), Err: e, Failed: c.failed, Lost: c.lost, Spent: c.spent, Purpose: c.purpose}
	}
	c.lose()
	resp.Usage = c.priced(resp.Model, resp.Usage)
	c.meters.responded(ctx, t.Run.Tenant, c.of, took, resp.Usage)
	c.metrics.spent(resp.Usage)
	return loop.ModelResponded{At: c.clock.Now(), Attempt: t.Attempt, Response: resp, Failed: c.failed, Lost: c.lost, Purpose: c.purpose, Duration: took}
}

// request returns the provider and the request of an effect, with the settings and the key of the model. The
// error is a *model.Error.
func (ms *models) request(ctx context.Context, tenant string, m *agent.Model, effect *loop.CallModel) (model.Provider, model.Request, error) {
	if n := state.Weight(effect.Messages); n > ms.cfg.Prompt {
		return nil, model.Request{}, &model.Error{
			Class: model.PromptTooLong, Provider: m.Provider, Message: fmt.Sprintf("the messages for the model take %d bytes, and at most %d are allowed: shorten them, lower max_result of the tools, or set compaction", n, ms.cfg.Prompt),
		}
	}
	req := model.Request{
		Model: m.Name, Messages: effect.Messages, Shared: effect.Shared, Tools: effect.Tools, ProviderTools: effect.ProviderTools, OutputSchema: effect.Schema,
		MaxOutputTokens: m.MaxOutputTokens, Reasoning: m.Reasoning, API: m.API, BaseURL: m.BaseURL, Responses: m.Responses,
		Settings: m.Settings,
	}
	req.ToolChoice = effect.ToolChoice // the loop knows which call it is
	if effect.Purpose == loop.ForSummary {
		req.Stop = nil // it would cut the summary
	}
	name := m.Provider
	if ms.cfg.Mock != nil {
		name, req.Responses = "scripted", ms.cfg.Mock
	}
	provider := ms.cfg.Providers[name]
	if provider == nil {
		return nil, model.Request{}, &model.Error{
			Class: model.InvalidRequest, Provider: name, Message: fmt.Sprintf("this worker has no model provider %q: register it with every worker, or upgrade this one", name),
		}
	}
	if ms.cfg.Mock == nil {
		if err := ms.agents.PermittedModel(ctx, tenant, *m, req.ProviderTools); err != nil {
			class := model.Transport // of the store
			if _, refused := errors.AsType[*policy.RefusedError](err); refused {
				class = model.InvalidRequest
			}
			return nil, model.Request{}, &model.Error{Class: class, Provider: name, Message: err.Error()}
		}
		key, err := ms.agents.ModelKey(tenant, *m)
		if err != nil {
			return nil, model.Request{}, &model.Error{Class: model.Auth, Provider: name, Message: err.Error()}
		}
		if key != "" {
			req.APIKey = key
			provider = redacting{provider, secret.New(key)}
		}
	}
	return provider, req, nil
}

func failureOf(err error) *model.Error {
	if err == nil {
		return nil
	}
	return asModelError(err)
}

func asModelError(err error) *model.Error {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e
	}
	return &model.Error{Class: model.Transport, Message: err.Error(), Err: err}
}
