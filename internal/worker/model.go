package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// defaultModelTimeout bounds one model call.
const defaultModelTimeout = 10 * time.Minute

// callModel makes the model call of a turn, with short retries inside it.
func (t *turn) callModel(ctx context.Context, effect *loop.CallModel) (ev loop.Event, err error) {
	var c *modelCall
	t.w.executor.Run(func() { c, ctx, ev, err = t.prepare(ctx, *effect) })
	if c == nil {
		return ev, err
	}
	defer func() { t.endModel(c.span, ev) }()
	began := time.Now()
	failure := model.Retry(ctx, model.RetryPolicy{}, c.try)
	var cut *loop.Aborted
	t.w.executor.Run(func() { ev, cut = c.outcome(ctx, failure, time.Since(began)) })
	if cut != nil {
		return t.cutModel(ctx, *cut) // not on the executor: it asks the store
	}
	return ev, nil
}

// modelCall is a model call in flight, retries included. Turns wait in it for longest,
// so what it needs is here and not on the stack.
type modelCall struct {
	t           *turn
	span        trace.Span
	of          *agent.Model
	purpose     loop.Purpose
	provider    model.Provider
	req         model.Request
	reservation *reservation
	breaker     string // name of the breaker that guards it; "": none
	timeout     time.Duration
	asked       int // of this model, before this turn
	deltas      *deltaStream

	resp   model.Response // to the last try, like its failure
	failed int
	last   error
	sent   bool        // the provider has got it
	blind  bool        // the provider was abandoned, so nobody knows what it has answered
	spent  state.Usage // by the last failure
	lost   []loop.Lost // the failures before it that came to something
}

// prepare returns the call that an effect asks for, and its context; nil if it cannot
// be made, with what that means.
func (t *turn) prepare(ctx context.Context, effect loop.CallModel) (*modelCall, context.Context, loop.Event, error) {
	a, err := t.agent(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	m := a.ModelAt(t.s.Fallback)
	if m == nil {
		m = &a.Model
	}
	ctx, span := t.traceModel(ctx, *m, effect)
	c := &modelCall{t: t, span: span, of: m, purpose: effect.Purpose, timeout: time.Duration(m.Timeout), asked: t.s.ModelRequests - t.s.FallbackBase}
	if c.provider, c.req, err = t.w.request(ctx, t.s.Tenant, *m, effect); err != nil {
		ev := loop.ModelFailed{At: t.w.clock.Now(), Err: asModelError(err), Purpose: effect.Purpose}
		t.endModel(span, ev)
		return nil, nil, ev, nil
	}
	c.req.Run = t.s.ID
	if c.timeout == 0 {
		c.timeout = defaultModelTimeout
	}
	if t.s.Stream == "deltas" && !effect.Quiet {
		c.deltas = &deltaStream{t: t}
	}
	c.reservation = t.reservation(a, *m, c.req)
	// What a script says is no sign of a provider's health.
	if m.Provider != "scripted" {
		c.breaker = strings.TrimSpace(m.Provider + " " + m.BaseURL + " " + m.Name)
	}
	return c, ctx, nil, nil
}

// try makes the call once.
func (c *modelCall) try(ctx context.Context) error {
	c.resp, c.sent, c.blind = model.Response{}, false, false
	if err := c.admitted(ctx); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.generate(within)
	c.tried(within, err)
	return err
}

// admitted returns nil if the call may be made now.
func (c *modelCall) admitted(ctx context.Context) error {
	t := c.t
	if c.breaker != "" {
		if refused := t.w.breakers.Allow(c.breaker); refused != nil {
			return c.refused(refused)
		}
	}
	if err := c.reservation.enter(ctx, c.failed > 0); err != nil {
		if c.breaker != "" {
			t.w.breakers.Done(c.breaker, &model.Error{Class: model.Cancelled})
		}
		if errors.Is(err, errNoCapacity) {
			err = c.last
		}
		return err
	}
	return nil
}

// generate has a small frame, as everything has that waits for a model: a stack of 4
// KiB is enough then.
func (c *modelCall) generate(ctx context.Context) error {
	c.req.Call, c.sent = c.asked+c.failed, ctx.Err() == nil
	if cancelable(c.provider) {
		return c.direct(ctx)
	}
	a := &answer{provider: c.provider, req: c.req, stream: c.deltas}
	if _, ok := timelimit.Call(ctx, c.t.w.calls, timelimit.Straggle, func() struct{} { a.ask(ctx); return struct{}{} }); !ok {
		a.abandoned()
		c.blind = true
		class := model.Cancelled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			class = model.Timeout
		}
		return &model.Error{Class: class, Provider: c.of.Provider, Message: fmt.Sprintf("no answer within %s, and the provider ignores that its time is over", c.timeout), Err: ctx.Err()}
	}
	if c.resp = a.resp; a.err != nil {
		return a.err
	}
	return tooLong(c.of.Provider, c.resp, c.t.w.cfg.ModelOutput)
}

// direct asks a provider that heeds its time limit.
func (c *modelCall) direct(ctx context.Context) (err error) {
	var onDelta func(model.Delta)
	if c.deltas != nil {
		onDelta = c.deltas.add
	}
	if c.resp, err = c.provider.Generate(ctx, c.req, onDelta); err != nil {
		return err
	}
	return tooLong(c.of.Provider, c.resp, c.t.w.cfg.ModelOutput)
}

// cancelable reports whether p returns soon after its context has ended. A provider that the
// worker has wrapped counts like the provider inside.
func cancelable(p model.Provider) bool {
	if r, ok := p.(redacting); ok {
		p = r.Provider
	}
	return model.IsCancelable(p)
}

// answer is what a provider answers with. One that was abandoned streams to nobody.
type answer struct {
	provider model.Provider
	req      model.Request
	stream   *deltaStream // nil: nobody wants it
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

// tooLong returns the error of a response that has more bytes than a worker takes.
func tooLong(provider string, resp model.Response, limit int) error {
	n := 0
	for _, p := range resp.Parts {
		n += len(p.Text) + len(p.Arguments) + len(p.Content) + len(p.Data) + len(p.Opaque)
	}
	if n <= limit {
		return nil
	}
	return &model.Error{Class: model.InvalidRequest, Provider: provider, Message: fmt.Sprintf("the response has %d bytes, at most %d are allowed", n, limit)}
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

// tried notes what came of a call.
func (c *modelCall) tried(ctx context.Context, err error) {
	t := c.t
	if err != nil {
		c.lose()
		c.failed++
		c.last, c.spent = err, c.wasted(asModelError(err))
		traceFailure(ctx, asModelError(err), c.failed)
	}
	if c.breaker != "" {
		t.w.breakers.Done(c.breaker, failureOf(err))
	}
	t.w.check(c.reservation.done(ctx, c.resp.Usage, failureOf(err)), "rate limit")
}

// refused says what follows from an open breaker. To wait for the trial of another run
// is a delay and no failure, or many runs would end while one gets a long answer; a
// run that has another model goes on with that one.
func (c *modelCall) refused(e *model.Error) error {
	if c.failed > 0 || c.reservation.elsewhere || !errors.Is(e, model.ErrTrial) {
		return e
	}
	return c.reservation.delayed(e.RetryAfter, c.reservation.at, c.reservation.who+" has failed, and another run tries it")
}

// outcome is the event that a call has become, or how it was cut short.
func (c *modelCall) outcome(ctx context.Context, err error, took time.Duration) (loop.Event, *loop.Aborted) {
	t, resp := c.t, c.resp
	if c.deltas != nil {
		c.deltas.flush()
	}
	if delayed, ok := errors.AsType[*delayedError](err); ok && ctx.Err() == nil {
		return t.modelDelayed(delayed, c.purpose), nil
	}
	t.w.metrics.modelSeconds.Observe(took.Seconds())

	if err != nil && ctx.Err() != nil {
		ev := &loop.Aborted{Failed: c.failed, Lost: c.lost, Partial: c.said(), Spent: c.spent}
		if len(resp.Parts) > 0 {
			ev.Response = &resp
		}
		t.w.meters.failed(ctx, t.s.Tenant, c.of, took, model.Cancelled)
		return nil, ev
	}
	if err != nil {
		e := asModelError(err)
		t.w.metrics.modelErrors.WithLabelValues(string(e.Class)).Inc()
		t.w.meters.failed(ctx, t.s.Tenant, c.of, took, e.Class)
		if c.failed > 0 && e != asModelError(c.last) {
			c.lose() // refused before it was made
		}
		return loop.ModelFailed{At: t.w.clock.Now(), Err: e, Failed: c.failed, Lost: c.lost, Spent: c.spent, Purpose: c.purpose}, nil
	}
	c.lose()
	resp.Usage.CostUSD = t.w.cfg.Prices.Cost(resp.Model, resp.Usage)
	t.w.meters.responded(ctx, t.s.Tenant, c.of, took, resp.Usage)
	t.w.metrics.spent(resp.Usage)
	return loop.ModelResponded{At: t.w.clock.Now(), Attempt: t.claim.Attempt, Response: resp, Failed: c.failed, Lost: c.lost, Purpose: c.purpose}, nil
}

// request completes what the loop asks for with what only the worker knows.
func (w *Worker) request(ctx context.Context, tenant string, m agent.Model, effect loop.CallModel) (model.Provider, model.Request, error) {
	req := model.Request{
		Model: m.Name, Messages: effect.Messages, Shared: effect.Shared, Tools: effect.Tools, OutputSchema: effect.Schema,
		MaxOutputTokens: m.MaxOutputTokens, Reasoning: m.Reasoning, API: m.API, BaseURL: m.BaseURL, Responses: m.Responses,
		Settings: m.Settings,
	}
	req.ToolChoice = effect.ToolChoice // the loop knows which call it is
	if effect.Purpose == loop.ForSummary {
		req.Stop = nil // it would cut the summary
	}
	name := m.Provider
	if w.cfg.MockResponses != nil {
		name, req.Responses = "scripted", w.cfg.MockResponses
	}
	provider := w.cfg.Providers[name]
	if provider == nil {
		return nil, model.Request{}, &model.Error{
			Class: model.InvalidRequest, Provider: name, Message: fmt.Sprintf("this worker has no model provider %q", name),
		}
	}
	if w.cfg.MockResponses == nil {
		if err := w.agents.PermittedModel(ctx, tenant, m); err != nil {
			class := model.Transport // of the store
			if _, refused := errors.AsType[*policy.RefusedError](err); refused {
				class = model.InvalidRequest
			}
			return nil, model.Request{}, &model.Error{Class: class, Provider: name, Message: err.Error()}
		}
		key, err := w.agents.ModelKey(tenant, m)
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

// deltaEvery bounds live deltas to 20 a second.
const deltaEvery = 50 * time.Millisecond

// deltaStream joins the pieces of a response into live events.
type deltaStream struct {
	t    *turn
	last time.Time
	have bool
	d    model.Delta
}

func (s *deltaStream) add(d model.Delta) {
	call := d.CallID != "" || d.Name != "" || d.Arguments != ""
	was := s.d.CallID != "" || s.d.Name != "" || s.d.Arguments != ""
	if s.have && (call != was || call && (d.Index != s.d.Index || d.CallID != "")) {
		s.flush()
	}
	s.have = true
	s.d.Text += d.Text
	s.d.Thinking += d.Thinking
	s.d.Index = d.Index
	s.d.CallID += d.CallID
	s.d.Name += d.Name
	s.d.Arguments += d.Arguments
	if time.Since(s.last) >= deltaEvery {
		s.flush()
	}
}

func (s *deltaStream) flush() {
	if !s.have {
		return
	}
	l := s.t.liveEvent(state.LiveModelDelta)
	d := s.d
	l.Delta = &d
	s.t.live(l)
	s.have, s.d, s.last = false, model.Delta{}, time.Now()
}
