package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// outside records effects that no crash undoes: those of tools.
type outside struct {
	mu      sync.Mutex
	made    int // number of ids of calls
	effects []effect
	seen    map[*process]map[state.RunID]bool // aborts that a process has received
	spoken  map[state.RunID]bool              // runs that a person continued, even after an abort
	late    []string                          // calls that began after that
	odd     []string                          // other violations
	refused map[string]bool                   // idempotency keys that a probe has refused
	asked   []hook.Request                    // hook requests
	results []result                          // tool results
	heard   []heard                           // responses of the model
	callers map[state.RunID][]caller          // processes that called the model for a run
	answers map[string]state.RunID            // the run that the model gave a response to, by its nonce
	tried   map[string][]*try                 // calls of the model frail, by the breaker that permitted them
}

// result is a tool's result, returned to a process without faults for a while before and after.
type result struct {
	Run     state.RunID
	Call    string
	Tool    string
	Content string
}

// heard is a response of the model, returned to a process without faults from a while before the call to a while after
// it.
type heard struct {
	Run   state.RunID
	Nonce string
}

// caller is a process that called the model, and when.
type caller struct {
	process *process
	at      time.Time
}

// effect is one effect of a tool.
type effect struct {
	Run       state.RunID
	Call      string
	Tool      string
	Arguments string
	Key       string
	Began     time.Time // when the worker started the call
}

func newOutside() *outside {
	return &outside{seen: map[*process]map[state.RunID]bool{}, spoken: map[state.RunID]bool{}, refused: map[string]bool{}, answers: map[string]state.RunID{}, tried: map[string][]*try{}, callers: map[state.RunID][]caller{}}
}

func (o *outside) saw(p *process, run state.RunID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen[p] == nil {
		o.seen[p] = map[state.RunID]bool{}
	}
	o.seen[p][run] = true
}

func (o *outside) speak(run state.RunID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spoken[run] = true
}

// begins records a call that a process starts, unless its context has already ended.
func (o *outside) begins(ctx context.Context, p *process, run state.RunID, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.deployment.note("", "%s: %s: %s begins", p.name, run, what)
	if o.seen[p][run] && !o.spoken[run] && ctx.Err() == nil {
		o.late = append(o.late, fmt.Sprintf("%s of %s on %s", what, run, p.name))
	}
}

// act executes a call that a worker started at began, unless a probe refused its key, and reports
// whether it did.
func (o *outside) act(c tool.Call, began time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused[c.IdempotencyKey] {
		return false
	}
	o.effects = append(o.effects, effect{c.Run, c.ID, c.Name, string(c.Arguments), c.IdempotencyKey, began})
	return true
}

// probe returns the outcome of a call, and refuses its key if it was not done.
func (o *outside) probe(c tool.Call) tool.Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.effects {
		if e.Key == c.IdempotencyKey {
			return tool.ProbeDone(tool.Result{Content: said(e.Tool, e.Arguments)})
		}
	}
	o.refused[c.IdempotencyKey] = true
	return tool.ProbeNotDone(true)
}

// said returns the answer of a tool.
func said(name, arguments string) string { return name + " " + arguments }

func (o *outside) callID() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made++
	return fmt.Sprintf("call_%d", o.made)
}

// brain is a model as one process reaches it. It returns a different response at each call.
type brain struct {
	p    *process
	dice *dice
}

// wait lets time pass for a caller, unless its process is dead or its context ends.
func wait(ctx context.Context, p *process, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		p.rest()
		if !p.alive() {
			return errDead
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return errDead
	}
}

// partial is the piece of a response that arrives before the rest.
const partial = "…"

// Generate implements model.Provider.
func (b brain) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (out model.Response, err error) {
	began := time.Now()
	b.p.deployment.outside.begins(ctx, b.p, r.Run, "model call")
	b.p.deployment.outside.calls(r.Run, b.p)
	fail := func(class model.Class, after time.Duration) (model.Response, error) {
		return model.Response{}, &model.Error{Class: class, Provider: "openai", RetryAfter: after, Message: "simulated"}
	}
	if r.Model == "broken" {
		return fail(model.InvalidRequest, 0)
	}
	tenant := b.p.deployment.tenantOf(r.Run)
	if r.Model == frail {
		end := b.p.deployment.outside.tries(ctx, b.p, tenant)
		defer func() { end(err) }()
	}
	if r.Model == frail && b.p.deployment.outside.failing(b.p.deployment, tenant) {
		if err := wait(ctx, b.p, b.dice.between(50*time.Millisecond, 2*time.Second)); err != nil {
			return model.Response{}, model.Interrupted("openai", err)
		}
		return fail(model.Overloaded, 0)
	}
	took := b.dice.between(50*time.Millisecond, 20*time.Second)
	reliable := r.Model == frail || r.Model == spare
	if b.dice.chance(0.01) && !reliable {
		took = time.Hour // it hangs
	}
	if err := wait(ctx, b.p, took); err != nil {
		return model.Response{}, model.Interrupted("openai", err)
	}
	switch {
	case reliable:
	case b.dice.chance(0.02):
		return fail(model.Overloaded, 0)
	case b.dice.chance(0.02):
		return fail(model.RateLimited, b.dice.between(time.Second, 2*time.Minute))
	case b.dice.chance(0.01):
		return fail(model.Transport, 0)
	}
	if onDelta != nil {
		onDelta(model.Delta{Text: partial})
	}
	said := 0
	for _, m := range r.Messages {
		if m.Role == state.RoleAssistant {
			said++
		}
	}
	out = model.Response{Stop: model.StopEnd, Provider: "openai", Model: r.Model, Usage: state.Usage{InputTokens: int64(100 * len(r.Messages)), OutputTokens: 50}}
	defer func() {
		b.p.deployment.outside.answered(r.Run, out)
		b.p.deployment.hears(ctx, b.p, r.Run, began, out)
	}()
	if r.Model == wordy {
		out.Parts = append(out.Parts, state.Part{Type: state.PartText, Text: manyWords})
	}
	if len(r.Tools) > 0 && b.dice.n(8) >= said {
		for range 1 + b.dice.n(3) {
			t := r.Tools[b.dice.n(len(r.Tools))]
			arguments, err := json.Marshal(map[string]any{"n": b.dice.n(1_000_000), "question": "sure?", "input": "do it"})
			if err != nil {
				return model.Response{}, err
			}
			out.Parts = append(out.Parts, state.Part{Type: state.PartToolCall, ID: b.p.deployment.outside.callID(), Name: t.Name, Arguments: string(arguments)})
		}
		out.Stop = model.StopToolCalls
		return out, nil
	}
	out.Parts = append(out.Parts, state.Part{Type: state.PartText, Text: fmt.Sprintf("done after %d (%s)", said, b.p.deployment.outside.callID())})
	return out, nil
}

// tools returns the tools of one process.
func (s *Deployment) tools(p *process) map[string]tool.Tool {
	d := newDice(s.cfg.Seed, p.name+" tools")
	deed := func(from, to time.Duration) tool.Tool {
		return tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
			began := time.Now()
			s.outside.begins(ctx, p, c.Run, "tool "+c.Name)
			s.starts(p, c)
			// It may be cut off before or after its effect.
			if err := wait(ctx, p, d.between(from, to)); err != nil {
				return tool.Result{}, err
			}
			if !s.outside.act(c, began) {
				return tool.Error("this key is refused"), nil
			}
			if err := wait(ctx, p, d.between(from, to)); err != nil {
				return tool.Result{}, err
			}
			if d.chance(0.05) {
				return tool.Error("out of stock"), nil
			}
			r := tool.Result{Content: said(c.Name, string(c.Arguments))}
			s.returned(p, c, r)
			return r, nil
		})
	}
	pay := deed(0, 3*time.Second)
	return map[string]tool.Tool{
		"pay":  pay,
		"look": deed(0, time.Second),
		"cook": deed(10*time.Second, 70*time.Second), // longer than a lease
		"wipe": deed(0, time.Second),
		"ship": deed(0, 3*time.Second),
		"ship_probe": tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if err := wait(ctx, p, d.between(0, time.Second)); err != nil {
				return tool.Result{}, err
			}
			return s.outside.probe(c), nil
		}),
		"consult": tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) { return s.consult(ctx, pay, c) }),
		"render": tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
			r, err := pay.Call(ctx, c)
			if err == nil && !r.IsError {
				s.wg.Go(func() { s.render(c, d.between(0, time.Minute)) })
				r.Pending = true
			}
			return r, err
		}),
	}
}

// consult asks a person before its effect.
func (s *Deployment) consult(ctx context.Context, do tool.Tool, c tool.Call) (tool.Result, error) {
	if c.Resume == nil {
		return tool.Result{Ask: &tool.Ask{Question: "may I?", State: c.Arguments}}, nil
	}
	if string(tool.Canonical(c.Resume.State)) != string(tool.Canonical(c.Arguments)) || c.Resume.Answer != "yes" {
		s.outside.mu.Lock()
		s.outside.odd = append(s.outside.odd, fmt.Sprintf("I3: %s of %s goes on with %s and %q", c.ID, c.Run, c.Resume.State, c.Resume.Answer))
		s.outside.mu.Unlock()
	}
	return do.Call(ctx, c)
}

// render delivers the result of an asynchronous call after a while.
func (s *Deployment) render(c tool.Call, after time.Duration) {
	time.Sleep(after)
	r := api.SignalRequest{SignalID: "render-" + c.ID, ToolResults: []api.ToolResult{{CallID: c.ID, Content: json.RawMessage(`"rendered"`)}}}
	for !s.ended() {
		if _, err := s.clients[c.Tenant].Signal(context.Background(), string(c.Run), r); err == nil || refused(err) {
			return
		}
		time.Sleep(every)
	}
}

// agents are the agents of the users' runs.
var agents = map[string]string{
	"helper": `{model: {provider: openai, name: m}, tools: [{name: pay}, {name: look, idempotent: true, reuse: false}], limits: {wait: 30m}}`,
	"errand": `{model: {provider: openai, name: m, timeout: 1m}, loop: {max_turns: 12}, limits: {wait: 30m}, tools: [
		{name: pay, concurrency: serial}, {name: look, idempotent: true, reuse: false}, {name: cook, idempotent: true, reuse: false, timeout: 3m},
		{name: wipe, approval: always}, {name: consult}, {name: render, async: true, timeout: 2m}, {name: pick, kind: client, schema: {type: object}}, {name: ask_user, kind: human},
		{name: helper, kind: agent, agent: helper}, {name: over, kind: handoff, agent: helper}]}`,
	"answer": `{model: {provider: openai, name: m}, loop: {type: single_call}}`,
	"watched": `{model: {provider: openai, name: m}, loop: {max_turns: 8}, limits: {wait: 30m},
		tools: [{name: pay, concurrency: serial}, {name: look, idempotent: true, reuse: false}, {name: wipe, approval: always}, {name: ship, probe: {}}],
		hooks: {input: [{kind: go, name: watcher, timeout: 1m, on_error: allow}], pre_tool: [{kind: go, name: watcher, timeout: 1m, on_error: allow}], post_sampling: [{kind: go, name: watcher, timeout: 1m}], stop: [{kind: go, name: watcher, timeout: 1m}]}}`,
	"broken": `{model: {provider: openai, name: broken}, hooks: {stop_failure: [{kind: go, name: watcher, timeout: 1m}]}}`,
	"brief":  `{model: {provider: openai, name: m}, loop: {max_turns: 4}, tools: [{name: look, idempotent: true, reuse: false}], retention: {completed: 3m, failed: 3m}}`,
	"backed": `{model: {provider: openai, name: frail, fallback: [{provider: openai, name: spare}]}, loop: {max_turns: 6}, tools: [{name: pay}, {name: look, idempotent: true, reuse: false}]}`,
	"frail":  `{model: {provider: openai, name: frail}, loop: {max_turns: 6}, tools: [{name: pay}, {name: look, idempotent: true, reuse: false}]}`,
	wordy:    `{model: {provider: openai, name: wordy}, loop: {max_turns: 6}, limits: {wait: 30m}, tools: [{name: pay}, {name: look, idempotent: true, reuse: false}]}`,
	"quick":  `{model: {provider: openai, name: m}, tools: [{name: pay}, {name: look, idempotent: true}]}`,
}
