package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/secret"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// defaultModelTimeout bounds one model call.
const defaultModelTimeout = 10 * time.Minute

// callModel makes the model call of a turn, with short retries inside it.
func (t *turn) callModel(ctx context.Context, effect loop.CallModel) (ev loop.Event, err error) {
	a, err := t.agent(ctx)
	if err != nil {
		return nil, err
	}
	m := a.ModelAt(t.s.Fallback)
	if m == nil {
		m = &a.Model
	}
	ctx, span := t.traceModel(ctx, *m, effect)
	defer func() { t.endModel(span, ev) }()
	provider, req, err := t.w.request(*m, effect)
	if err != nil {
		return loop.ModelFailed{At: now(), Err: asModelError(err), Purpose: effect.Purpose}, nil
	}
	req.Run = t.s.ID
	asked := t.s.Asked - t.s.FallbackBase

	timeout := time.Duration(m.Timeout)
	if timeout == 0 {
		timeout = defaultModelTimeout
	}
	var deltas *deltaStream
	var onDelta func(model.Delta)
	if t.s.Stream == "deltas" && !effect.Quiet {
		deltas = &deltaStream{t: t}
		onDelta = deltas.add
	}
	pass := t.pass(a, *m, req)
	failed := 0
	var last error
	began := time.Now()
	resp, err := model.Retry(ctx, model.RetryPolicy{}, func(ctx context.Context) (model.Response, error) {
		// What a script says is no sign of a provider's health.
		name := ""
		if m.Provider != "scripted" {
			name = strings.TrimSpace(m.Provider + " " + m.BaseURL + " " + m.Name)
			if refused := t.w.breakers.Allow(name); refused != nil {
				return model.Response{}, refused
			}
		}
		if err := pass.enter(ctx, failed > 0); err != nil {
			if name != "" {
				t.w.breakers.Done(name, &model.Error{Class: model.Cancelled})
			}
			if errors.Is(err, errNoRoom) {
				err = last
			}
			return model.Response{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		req.Call = asked + failed
		resp, err := provider.Generate(ctx, req, onDelta)
		if err != nil {
			failed++
			last = err
			traceFailure(ctx, asModelError(err), failed)
		}
		if name != "" {
			t.w.breakers.Done(name, failureOf(err))
		}
		t.w.check(pass.done(ctx, resp.Usage, failureOf(err)), "rate limit")
		return resp, err
	})
	if deltas != nil {
		deltas.flush()
	}
	if delayed, ok := errors.AsType[*delayedError](err); ok && ctx.Err() == nil {
		return modelDelayed(delayed, effect.Purpose), nil
	}
	t.w.metrics.modelSeconds.Observe(time.Since(began).Seconds())

	if err != nil && ctx.Err() != nil {
		ev := loop.Aborted{Failed: failed}
		if len(resp.Parts) > 0 {
			ev.Response = &resp
		}
		return interrupted(ctx, ev)
	}
	if err != nil {
		e := asModelError(err)
		t.w.metrics.modelErrors.WithLabelValues(string(e.Class)).Inc()
		return loop.ModelFailed{At: now(), Err: e, Failed: failed, Purpose: effect.Purpose}, nil
	}
	resp.Usage.CostUSD = t.w.cfg.Prices.Cost(resp.Model, resp.Usage)
	t.w.metrics.tokens.WithLabelValues("input").Add(float64(resp.Usage.InputTokens))
	t.w.metrics.tokens.WithLabelValues("output").Add(float64(resp.Usage.OutputTokens))
	return loop.ModelResponded{At: now(), Attempt: t.claim.Attempt, Response: resp, Failed: failed, Purpose: effect.Purpose}, nil
}

// request completes what the loop asks for with what only the worker knows.
func (w *Worker) request(m agent.Model, effect loop.CallModel) (model.Provider, model.Request, error) {
	req := model.Request{
		Model: m.Name, Messages: effect.Messages, Tools: effect.Tools, OutputSchema: effect.Schema,
		MaxOutputTokens: m.MaxOutputTokens, Reasoning: m.Reasoning, API: m.API, BaseURL: m.BaseURL, Responses: m.Responses,
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
		key, err := w.modelKey(m)
		if err != nil {
			return nil, model.Request{}, &model.Error{Class: model.Auth, Provider: name, Message: err.Error()}
		}
		if key != "" {
			req.APIKey = key
			provider = hiding{provider, secret.New(key)}
		}
	}
	return provider, req, nil
}

// modelKey returns the key that a model names, or else the worker's own for its
// provider, which goes to the provider's own address only and must be there then.
// Other addresses may want none.
func (w *Worker) modelKey(m agent.Model) (string, error) {
	if m.APIKey != "" {
		return w.secret(m.APIKey)
	}
	ref := w.cfg.Keys[m.Provider]
	if ref == "" || m.BaseURL != "" {
		return "", nil
	}
	key, err := w.secret(ref)
	if err != nil {
		return "", fmt.Errorf("the model names no api_key: %w", err)
	}
	return key, nil
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
