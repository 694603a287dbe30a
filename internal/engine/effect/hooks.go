package effect

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/hook/hookcall"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hooks calls hooks.
type hooks struct {
	*shared

	kinds    hook.Kinds
	lifetime context.Context //nolint:containedctx // of the worker: it ends hooks that outlive their turns
	aside    *sync.WaitGroup // of these hooks
}

// ask returns the combined answer of the hooks of one point. It logs their failures; the answer says what a
// failure means for the run.
func (h *hooks) ask(ctx context.Context, a *agent.Agent, r hook.Request) hook.Answer {
	var bound []hookcall.Bound
	for _, d := range a.Hooks(r.Point) {
		if r.Call != nil && !d.Covers(r.Call.Tool) {
			continue
		}
		bound = append(bound, hookcall.Bound{Name: d.Title(), Hook: h.hook(d), Timeout: time.Duration(d.Timeout), Objects: d.Objects()})
	}
	answer, err := hookcall.Ask(ctx, h.calls, bound, r)
	if err != nil {
		h.log.Warn("hook failed", "error", err, "run_id", r.Run, "point", r.Point, "hint", "start or repair the hook; docs/how-to/hooks.md#five-points says how the run continues")
	}
	return answer
}

// hook returns the hook that a definition names. Its kind is registered, or the agent would not
// have compiled.
func (h *hooks) hook(d *agent.CompiledHook) hook.Hook {
	kind := h.kinds[d.Kind]
	return hook.Func(func(ctx context.Context, r hook.Request) (hook.Answer, error) { return kind.Call(ctx, d.Settings, r) })
}

// run calls the hooks of a turn, with one request for each user message or call of a tool, concurrently. It
// journals the response first, except at the input.
func (h *hooks) run(ctx context.Context, t *Turn, effect loop.RunHooks) (loop.Event, error) {
	a, err := h.agent(ctx, t)
	if err != nil {
		return nil, err
	}
	if effect.Point != hook.Input { // the store already has the messages that input hooks see
		// The response is journaled before a hook sees it (I3).
		if err := t.Journal.Response(ctx, t.Run.Log); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return loop.Aborted{}, nil // the write reported an abort (I7)
		}
	}
	req := requestOf(t, effect.Point)
	req.Output = effect.Output
	if effect.Point == hook.PreTool {
		req.Log = t.Run.Log
	}
	var requests []hook.Request
	for _, m := range effect.Messages {
		r := req
		r.Input = m.Text()
		requests = append(requests, r)
	}
	for _, c := range effect.Calls {
		r := req
		r.Call = &hook.Call{ID: c.ID, Tool: c.Name, Arguments: json.RawMessage(c.Arguments)}
		requests = append(requests, r)
	}
	if len(requests) == 0 {
		requests = append(requests, req)
	}
	ctx = rule.NewContext(ctx) // the expressions of one turn share a limit of cost
	answers := make([]hook.Answer, len(requests))
	var asked sync.WaitGroup
	panics := make([]*timelimit.Panic, len(requests))
	for i, r := range requests {
		asked.Go(func() {
			defer func() { panics[i] = timelimit.Caught(recover()) }()
			answers[i] = h.ask(ctx, a, r)
		})
	}
	asked.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	if ctx.Err() != nil {
		return loop.Aborted{}, nil
	}
	return loop.HooksAnswered{At: h.clock.Now(), Asked: effect, Answers: answers}, nil
}

func requestOf(t *Turn, p hook.Point) hook.Request {
	s := t.Run
	return hook.Request{Point: p, Run: s.ID, Agent: s.Definition().Name, Turn: s.Turn, Tenant: s.Tenant, Metadata: s.Metadata}
}

// observe records the outcome of a model call for hooks that only watch. Performer.Recorded calls the post_sampling
// hooks once the store has the response; a response for another purpose than the turn, such as a summary, has none.
// Performer.Failed calls the stop_failure hooks after the commit. The error is a *NotLoadedError.
func (h *hooks) observe(ctx context.Context, t *Turn, ev loop.Event) error {
	switch ev := ev.(type) {
	case loop.ModelFailed:
		t.failure = ev.Err
	case loop.ModelResponded:
		t.failure = nil
		if ev.Purpose != loop.ForTurn {
			return nil
		}
		a, err := h.agent(ctx, t)
		if err != nil || len(a.Hooks(hook.PostSampling)) == 0 {
			return err
		}
		t.watchers = a
	}
	return nil
}

// Recorded must be called after each successful write of the turn; log is what the store has. It starts the
// post_sampling hooks that wait for the response, with the latest response in log, and does not wait for them:
// Turn.Notes does. If ctx has ended, Recorded drops them instead. It also records that the outcomes of the turn's calls
// are stored.
func (p *Performer) Recorded(ctx context.Context, t *Turn, log []state.Entry) {
	t.saved()
	a := t.watchers
	t.watchers = nil
	if a == nil || ctx.Err() != nil {
		return
	}
	req := requestOf(t, hook.PostSampling)
	for _, e := range slices.Backward(log) {
		if e.Type != state.EntryModel || e.Message == nil {
			continue
		}
		req.Turn, req.Output = e.Turn, e.Message.Text()
		for _, c := range e.Message.Calls() {
			req.Calls = append(req.Calls, hook.Call{ID: c.ID, Tool: c.Name, Arguments: json.RawMessage(c.Arguments)})
		}
		break
	}
	notes := make(chan hook.Answer, 1)
	t.notes = notes
	h := &p.hooks
	h.detach(ctx, t.Run.ID, func(ctx context.Context) {
		defer close(notes)
		notes <- h.ask(ctx, a, req)
	})
}

// Failed starts the stop_failure hooks, and does not wait for them. The caller calls it after the commit of a turn;
// it has an effect only if the turn's last model call failed and the run has ended. The error is a *NotLoadedError.
func (p *Performer) Failed(ctx context.Context, t *Turn) error {
	if t.failure == nil || !t.Run.Status.Terminal() {
		return nil
	}
	h := &p.hooks
	a, err := h.agent(ctx, t)
	if err != nil || len(a.Hooks(hook.StopFailure)) == 0 {
		return err
	}
	req := requestOf(t, hook.StopFailure)
	req.Error = &state.Error{Code: string(t.failure.Class), Message: t.failure.Message}
	h.detach(ctx, t.Run.ID, func(ctx context.Context) { h.ask(ctx, a, req) })
	return nil
}

// detach runs f concurrently with the turn. f may outlive the turn. Its context ends when the worker's shutdown grace
// ends, and when an abort, a lost lease or another cause cuts the turn short (A5).
func (h *hooks) detach(ctx context.Context, run state.RunID, f func(context.Context)) {
	free, cancel := context.WithCancel(context.WithoutCancel(ctx))
	aborted := context.AfterFunc(ctx, func() {
		if context.Cause(ctx) != context.Canceled { //nolint:errorlint // the end of the turn has no cause
			cancel()
		}
	})
	shutDown := context.AfterFunc(h.lifetime, cancel)
	h.aside.Go(func() {
		defer upkeep.Survive(h.log, run)
		defer cancel()
		defer aborted()
		defer shutDown()
		f(free)
	})
}
