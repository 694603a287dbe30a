package effect

import (
	"context"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Turn is a claimed turn as its effects see it. The code that took the turn sets the exported fields before the first
// effect, and calls End after the last one. Only the goroutine of the turn may change a Turn; the goroutines of its
// calls only read it.
type Turn struct {
	Run     *state.State // as the loop decided it last; effects only read it
	Attempt int
	Starts  map[string]state.Start // that earlier attempts have journaled, by call
	Journal Journal
	Lease   *upkeep.Lease

	answers *admission.Reservation // for the answers of its calls
	pending int64                  // bytes of it for calls that have not answered

	response *admission.Outcome // of the last model call
	results  *admission.Outcome // of the last batch of calls

	again  map[string]bool  // calls to start again; true if their idempotency keys are refused
	starts map[string]start // of calls whose tools have probes

	failure  *model.Error       // of the last model call; nil if it succeeded
	watchers *agent.Agent       // whose post_sampling hooks wait for the response to be journaled
	notes    <-chan hook.Answer // of these hooks
}

// Journal writes what effects must store of a turn before its commit. The comment of each method states what is durable
// when it returns nil. If a method returns an error, the caller must not start what the write had to precede. If the
// store has an abort or an interrupt for the turn, the method ends the context of the turn, and may return nil: callers
// check the context before they start anything (I7). log is the log of the run as the loop decided it last.
type Journal interface {
	// Response makes the whole log durable, and with it the response that ends it.
	Response(ctx context.Context, log []state.Entry) error

	// Starts makes the log and the start marks of the first calls durable.
	Starts(ctx context.Context, log []state.Entry, marks state.Record) error

	// Result makes the log and the last of results durable, with the start marks of the calls that follow it.
	// results are those of all calls so far, in the order of their return. It does not store a result that is
	// pending or asks a person a question. If the store has no capacity for the last one, Result replaces it in
	// results with an error result.
	Result(ctx context.Context, log []state.Entry, results []loop.ToolResult, marks state.Record) error

	// Hold leaves the last of results to the commit, and makes nothing durable. Unless the commit follows at once, the
	// code that took the turn writes the result before it does anything else for the turn.
	Hold(results []loop.ToolResult)

	// Keep makes nothing durable. After a failed write the results stay in memory, and the worker hands them in
	// together when the store answers again.
	Keep(results []loop.ToolResult)

	// Finding makes the result durable that a probe has found for a call of an earlier attempt. If the store
	// has no capacity for it, Finding replaces *r with an error result.
	Finding(ctx context.Context, log []state.Entry, r *loop.ToolResult) error
}

// End releases the memory and the admissions of the effects of the turn.
func (t *Turn) End() {
	t.answers.Release()
	t.saved()
}

// saved records that all outcomes of the turn are in the store, or lost.
func (t *Turn) saved() {
	t.response.Saved()
	t.results.Saved()
}

// WaitsForRecord reports whether post_sampling hooks wait for the response to be journaled.
func (t *Turn) WaitsForRecord() bool { return t.watchers != nil }

// Unwatch drops the post_sampling hooks that wait for the response: the turn was cut short, or the log has no
// response for them.
func (t *Turn) Unwatch() { t.watchers = nil }

// AwaitsNotes reports whether Notes would have to wait.
func (t *Turn) AwaitsNotes() bool { return t.notes != nil && len(t.notes) == 0 }

// Notes waits for the combined answer of the post_sampling hooks. ok is false if no hook was called, or ctx has
// ended.
func (t *Turn) Notes(ctx context.Context) (a hook.Answer, ok bool) {
	if t.notes == nil {
		return hook.Answer{}, false
	}
	select {
	case a := <-t.notes:
		return a, true
	case <-ctx.Done():
		return hook.Answer{}, false
	}
}
