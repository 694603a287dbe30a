package turn

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

// takeTurn takes one run through one turn, in the order of durability: claim, decide, act, commit, publish,
// acknowledge. It is the whole protocol; its steps are in claim.go, act.go, commit.go and rest.go. The error is that
// of the answer to the message; the bus then redelivers the message. A turn that is dropped does not answer its
// message: the lease expires, or the sweeper finds the run due.
//
// load counts the turn as resting while it acts, because it then waits for models and tools, and as working
// otherwise.
func (k *Taker) takeTurn(ctx context.Context, d bus.TurnDelivery, load *admission.Turn) error {
	// Claim. From here to the commit the lease keeps every other worker out.
	t, ctx, err := k.claim(ctx, d)
	if t == nil {
		return err
	}
	defer t.end()
	t.load = load

	// Decide and act. The loop decides and the worker acts until the loop has made a transition.
	// Before anything visible to others starts, its cause is in the journal, and the turn waits for
	// nothing while a result is in memory only.
	load.Rest()
	if err := t.readView(ctx); err != nil {
		return t.giveUp(ctx, err)
	}
	acting, stop := k.untilDeadline(ctx, t.s.Limits)
	defer stop()
	next, err := t.open(ctx, acting)
	for next != nil && err == nil {
		next, err = t.perform(acting, next)
	}
	if err != nil {
		return t.giveUp(ctx, err)
	}
	t.takeNotes(ctx)
	load.Work(ctx)

	// From here on no abort may cut the turn short, and a shutdown only after its grace: only the commit
	// of the work is left.
	running := ctx
	ctx, cancel := k.outlive(ctx, k.cfg.Periods.Lease)
	defer cancel()

	// Commit. The children of a run that ends or is interrupted are aborted before: after a crash in
	// between, the next attempt aborts them again, and a commit leaves no next attempt.
	if err := t.abortChildren(ctx); err != nil {
		return t.giveUp(ctx, err)
	}
	done, err := t.commit(ctx)
	if err != nil {
		return t.giveUp(ctx, err)
	}
	k.debug(k.cfg.Effects.Failed(running, &t.effects), "run failure hooks")

	// Publish the next turn, or finalize a run at rest.
	if done.Status == state.Queued {
		t.view.Release() // for the next turn, which may begin before this one has ended
		err = t.publishNext(ctx, done)
	} else {
		err = t.finalize(ctx)
	}
	if err != nil {
		return t.leaveToSweeper(err)
	}

	// Ack. After a crash before it the message is delivered again, too late for the turn.
	return d.Ack()
}

// turn is one claimed turn on its way through the protocol. It has many methods because each step of the
// protocol is one.
type turn struct {
	taker    *Taker
	delivery bus.TurnDelivery
	lease    *upkeep.Lease
	claim    claimed
	started  time.Time
	span     trace.Span
	admitted func() // ends the admission by the quarantine
	load     *admission.Turn
	view     *admission.Reservation // nil: the view is small
	gaveUp   error                  // why the turn was given up
	sticky   bool                   // the next turn goes to this worker's own queue, if the commit has claimed it

	journal  Journal
	effects  effect.Turn
	children children

	loop loop.Loop
	s    *state.State // as the loop decided it last; become replaces it, because others share it
}

// claimed is the result of the claim without its copy of the state, which a turn need not hold while it waits
// for its model.
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

	LogOmitted bool // see state.Claim
}

// become replaces the state of the turn. The caller must not change it afterwards.
func (t *turn) become(s *state.State) { t.s, t.effects.Run = s, s }

// takeNotes adds the notes of post_sampling hooks to the end of the turn, for the next one.
func (t *turn) takeNotes(ctx context.Context) {
	if t.s.Status.Terminal() {
		return
	}
	if answer, ok := t.effects.Notes(ctx); ok {
		noted := loop.WithNotes(*t.s, answer.Notes)
		noted.Trouble.HookErrors += answer.Failures
		t.become(&noted)
	}
}

// publishNext publishes the turn that follows a commit.
func (t *turn) publishNext(ctx context.Context, done state.Committed) error {
	return t.taker.cfg.Dispatch.Publish(ctx, t.next(ctx, done))
}

// next returns the turn that follows a commit.
func (t *turn) next(ctx context.Context, done state.Committed) dispatch.Turn {
	next := dispatch.Turn{
		Run: t.s.ID, Version: done.Version, Priority: t.s.Priority, Tenant: t.s.Tenant, Noisy: done.Noisy, TraceParent: span.Carried(ctx, t.s.TraceSpan),
	}
	if t.sticky && done.Claimed && t.taker.cfg.MayStay(next.Tenant, next.Noisy) {
		next.Sticky = t.taker.cfg.Worker
	}
	return next
}
