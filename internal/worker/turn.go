package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// takeTurn takes one run through one turn, in the order of durability: claim, decide, act,
// commit, publish, ack. It is the whole protocol; what the steps do is in claim.go, act.go,
// commit.go and finalize.go. An error is that of an answer to the message, which is delivered
// again then. A turn that is dropped leaves its message: the lease runs out, or the sweeper
// finds the run due.
//
// load says when the turn works and when it rests: while it acts it waits for others.
func (w *Worker) takeTurn(ctx context.Context, d bus.TurnDelivery, load *admission.Turn) error {
	// Claim. From here to the commit the lease keeps every other worker out.
	t, ctx, err := w.claim(ctx, d)
	if t == nil {
		return err
	}
	defer t.end()

	// Decide and act. The loop says what to do, and the worker does it, until the loop has made
	// a transition. Nothing that others see starts before what led to it is journaled, and the
	// turn waits for nothing while a result is in memory only.
	load.Rest()
	acting, stop := t.untilDeadline(ctx)
	defer stop()
	effect, err := t.open(acting)
	for effect != nil && err == nil {
		effect, err = t.perform(acting, effect)
	}
	if err != nil {
		return t.giveUp(ctx, err)
	}
	t.takeNotes(ctx)
	load.Work(ctx)

	// From here on neither an abort nor a shutdown may cut the turn short: the work is
	// done, and only has to be written down.
	running := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.LeaseDuration)
	defer cancel()

	// Commit. Before it, children of a run that ends are aborted: after a crash here the next
	// attempt does it again, and nothing would after the commit.
	if err := t.abortChildren(ctx); err != nil {
		return t.giveUp(ctx, err)
	}
	done, err := t.commit(ctx)
	if err != nil {
		return t.giveUp(ctx, err)
	}
	t.runFailureHooks(running)

	// Publish what follows: the next turn, or what others wait for.
	if done.Status == state.Queued {
		err = w.dispatch.Publish(ctx, t.next(ctx, done))
	} else {
		err = t.finalize(ctx)
	}
	if err != nil {
		return t.leaveToSweeper(err)
	}

	// Ack. A crash before it has the message delivered again, too late for the turn.
	return t.ack()
}

// turn is one claimed turn on its way through the protocol.
type turn struct {
	w        *Worker
	delivery bus.TurnDelivery
	lease    *upkeep.Lease
	claim    claimed
	started  time.Time
	span     trace.Span
	admitted func() // ends what the quarantine has admitted
	gaveUp   error  // why the turn was given up

	journal journal
	effects effect.Turn

	aborted bool             // the children of the run were aborted
	missing []state.OpenCall // those that did not exist then

	loop loop.Loop
	s    state.State // as the loop last decided
}

// claimed is what a claim says beside the state. A turn that waits for its model holds
// no second copy of that.
type claimed struct {
	Attempt int
	Paused  int
	Version int64
	Base    int64 // entries of the log that were committed

	FinalizedSeq int64 // see state.Schedule; 0 if the store did not look

	Journal state.Journal
	Signals []state.Signal
	Abort   *state.Abort

	Open  []state.OpenCall // of the state
	Usage state.Usage      // of the state
}

// take takes a turn, and survives it. A turn that panics every time ends poisoned: the
// lease runs out and the attempt counts.
func (w *Worker) take(ctx context.Context, d bus.TurnDelivery, load *admission.Turn) {
	defer upkeep.Survive(w.log, d.Turn().Run)
	w.check(w.takeTurn(ctx, d, load), "answer turn message")
}

// takeNotes adds the notes of the hooks after the response to the end of the turn, for the
// next one.
func (t *turn) takeNotes(ctx context.Context) {
	if t.s.Status.Terminal() {
		return
	}
	if notes, ok := t.effects.Notes(ctx); ok {
		t.s = loop.WithNotes(t.s, notes)
	}
}

// runFailureHooks calls the failure hooks if the model has ended the run, after the commit.
func (t *turn) runFailureHooks(ctx context.Context) {
	t.w.check(t.w.effects.Failed(ctx, &t.effects), "run failure hooks")
}

// next is the turn that follows a commit.
func (t *turn) next(ctx context.Context, done state.Committed) dispatch.Turn {
	return dispatch.Turn{
		Run: t.s.ID, Version: done.Version, Priority: t.s.Priority, Tenant: t.s.Tenant, Noisy: done.Noisy, TraceParent: span.Carried(ctx, t.s.TraceSpan),
	}
}
