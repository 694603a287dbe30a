package worker

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/hook/hookcall"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ask returns what the hooks of one point say together. What goes wrong with them
// is for the log; what it means is in the answer.
func (w *Worker) ask(ctx context.Context, a *agent.Agent, r hook.Request) hook.Answer {
	var bound []hookcall.Bound
	for _, h := range a.Hooks(r.Point) {
		if r.Call != nil && !h.Covers(r.Call.Tool) {
			continue
		}
		bound = append(bound, hookcall.Bound{Name: h.Title(), Hook: w.hook(h), Timeout: time.Duration(h.Timeout), Objects: h.Objects()})
	}
	answer, err := hookcall.Ask(ctx, w.calls, bound, r)
	if err != nil {
		w.log.Warn("hook failed", "error", err, "run_id", r.Run, "point", r.Point, "hint", "docs/how-to/hooks.md#rules")
	}
	return answer
}

// hook returns the hook that a definition names. Its kind is there, or the agent would
// not have been compiled.
func (w *Worker) hook(h *agent.CompiledHook) hook.Hook {
	kind := w.cfg.Hooks[h.Kind]
	return hook.Func(func(ctx context.Context, r hook.Request) (hook.Answer, error) { return kind.Call(ctx, h.Settings, r) })
}

// runHooks asks the hooks of a turn, one request for each call.
func (t *turn) runHooks(ctx context.Context, effect loop.RunHooks) (loop.Event, error) {
	a, err := t.agent(ctx)
	if err != nil {
		return nil, err
	}
	// The response is journaled before a hook sees it (I3).
	if err := t.journal.Response(ctx, t.s.Log); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return t.interrupted(ctx, loop.Aborted{}) // the write reported an abort (I7)
	}
	req := t.hookRequest(effect.Point)
	req.Output = effect.Output
	if effect.Point == hook.PreTool {
		req.Log = t.s.Log
	}
	answers := make([]hook.Answer, max(1, len(effect.Calls)))
	if len(effect.Calls) == 0 {
		answers[0] = t.w.ask(ctx, a, req)
	}
	var asked sync.WaitGroup
	panics := make([]*timelimit.Panic, len(answers))
	for i, c := range effect.Calls {
		r := req
		r.Call = hookCall(c)
		asked.Go(func() {
			defer func() { panics[i] = timelimit.Caught(recover()) }()
			answers[i] = t.w.ask(ctx, a, r)
		})
	}
	asked.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	if ctx.Err() != nil {
		return t.interrupted(ctx, loop.Aborted{})
	}
	return loop.HooksAnswered{At: t.w.clock.Now(), Asked: effect, Answers: answers}, nil
}

func (t *turn) hookRequest(p hook.Point) hook.Request {
	return hook.Request{Point: p, Run: t.s.ID, Agent: t.s.Agent, Turn: t.s.Turn, Tenant: t.s.Tenant, Metadata: t.s.Metadata}
}

func hookCall(c state.OpenCall) *hook.Call {
	return &hook.Call{ID: c.ID, Tool: c.Name, Arguments: json.RawMessage(c.Arguments)}
}

// observeModel notes what the model did for the hooks that only watch (A9, A13). They are called
// once the store has the response.
func (t *turn) observeModel(ctx context.Context, ev loop.Event) error {
	switch ev := ev.(type) {
	case loop.ModelFailed:
		t.failure = ev.Err
	case loop.ModelResponded:
		t.failure = nil
		if ev.Purpose != loop.ForTurn {
			return nil
		}
		a, err := t.agent(ctx)
		if err != nil || len(a.Hooks(hook.PostSampling)) == 0 {
			return err
		}
		t.watchers = a
	}
	return nil
}

// showResponse calls the post_sampling hooks with the last response, as the log has it. The turn
// continues beside them; at its end it waits for their notes, within their timeouts. A turn
// that was cut short calls none.
func (t *turn) showResponse(ctx context.Context) {
	a := t.watchers
	t.watchers = nil
	if a == nil || ctx.Err() != nil {
		return
	}
	req := t.hookRequest(hook.PostSampling)
	for _, e := range slices.Backward(t.s.Log[:t.journal.length]) {
		if e.Type != state.EntryModel || e.Message == nil {
			continue
		}
		req.Turn, req.Output = e.Turn, e.Message.Text()
		for _, c := range e.Message.Calls() {
			req.Calls = append(req.Calls, hook.Call{ID: c.ID, Tool: c.Name, Arguments: json.RawMessage(c.Arguments)})
		}
		break
	}
	notes := make(chan []string, 1)
	t.notes = notes
	t.w.aside(ctx, t.s.ID, func(ctx context.Context) {
		defer close(notes)
		notes <- t.w.ask(ctx, a, req).Notes
	})
}

// aside runs f beside the turn: it outlives it, but not an abort of it (A5), nor the shutdown
// grace of the worker.
func (w *Worker) aside(ctx context.Context, run state.RunID, f func(context.Context)) {
	free, cancel := context.WithCancel(context.WithoutCancel(ctx))
	aborted := context.AfterFunc(ctx, func() {
		if context.Cause(ctx) != context.Canceled { //nolint:errorlint // the end of the turn has no cause
			cancel()
		}
	})
	shutDown := context.AfterFunc(w.lifetime, cancel)
	w.turns.Go(func() {
		defer upkeep.Survive(w.log, run)
		defer cancel()
		defer aborted()
		defer shutDown()
		f(free)
	})
}

// awaitsNotes reports whether takeNotes would wait.
func (t *turn) awaitsNotes() bool {
	return t.notes != nil && len(t.notes) == 0 && !t.s.Status.Terminal()
}

// takeNotes adds the notes of the hooks after the response to the end of the turn, for the
// next one.
func (t *turn) takeNotes(ctx context.Context) {
	if t.notes == nil || t.s.Status.Terminal() {
		return
	}
	select {
	case notes := <-t.notes:
		t.s = loop.WithNotes(t.s, notes)
	case <-ctx.Done():
	}
}

// runFailureHooks calls the failure hooks if the model has ended the run, after the commit.
func (t *turn) runFailureHooks(ctx context.Context) {
	if t.failure == nil || !t.s.Status.Terminal() {
		return
	}
	a, err := t.agent(ctx)
	if err != nil || len(a.Hooks(hook.StopFailure)) == 0 {
		return
	}
	req := t.hookRequest(hook.StopFailure)
	req.Error = &state.Error{Code: string(t.failure.Class), Message: t.failure.Message}
	t.w.aside(ctx, t.s.ID, func(ctx context.Context) { t.w.ask(ctx, a, req) })
}
