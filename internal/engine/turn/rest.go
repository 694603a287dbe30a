package turn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// children records the abort of the runs that answer open calls of a run which ends, or is interrupted.
type children struct {
	aborted bool             // all that existed
	missing []state.OpenCall // calls whose runs did not exist then
}

// finalize finalizes the run, which waits or has ended.
func (t *turn) finalize(ctx context.Context) error {
	// Again: a worker that was only paused may have started a child since.
	if err := t.abortChildren(ctx); err != nil {
		return err
	}
	return t.taker.cfg.Upkeep.Finalizer.Finalize(ctx, *t.s, t.claim.FinalizedSeq, t.s.LogLen(), t.claim.startedBefore())
}

// startedBefore returns the calls whose child runs are known to have been started before this turn: all that were open
// then if the run was finalized, and else none. So a turn that begins with one result of many does not start the other
// children again. If the store loses them, the sweeper finds that.
func (c *claimed) startedBefore() []state.OpenCall {
	if c.FinalizedSeq < c.Base {
		return nil
	}
	return c.Open
}

// orphaned returns the abort of a child run that begins although its parent has ended or no longer waits for
// it, else the pending abort. The worker that ended or interrupted the parent found nothing to abort if the
// worker that had to start this run was paused. The error wraps effect.ErrRelease.
func (k *Taker) orphaned(ctx context.Context, s *state.State, c *claimed) (*state.Abort, error) {
	if s.Parent == nil || c.Version != 1 || c.Abort != nil {
		return c.Abort, nil
	}
	parent, err := k.store.Load(ctx, s.Parent.RunID)
	switch {
	case errors.Is(err, state.ErrDeleted):
		return &state.Abort{Reason: upkeep.ParentEnded}, nil // it had ended
	case errors.Is(err, state.ErrNotFound):
		return nil, nil //nolint:nilnil // the store has lost it, and may have it again
	case err != nil:
		return nil, fmt.Errorf("%w: load parent run: %w", effect.ErrRelease, err)
	case parent.Status.Terminal() || !slices.ContainsFunc(parent.Open, func(o state.OpenCall) bool { return o.Child == s.ID }):
		return &state.Abort{Reason: upkeep.ParentEnded}, nil
	default:
		return nil, nil //nolint:nilnil // the parent has not ended
	}
}

// dropsCalls reports whether the turn answers all open calls itself, including those of child runs: it ends the
// run, or a message interrupts it.
func (t *turn) dropsCalls() bool {
	return t.s.Status.Terminal() || t.s.Transition.Reason == state.Interrupted
}

// abortChildren aborts the runs that answer open calls of a run which ends or is interrupted: no run waits for them any
// more (I7). After a call without an error, another one concerns only the runs that were missing at that call.
func (t *turn) abortChildren(ctx context.Context) (err error) {
	if !t.dropsCalls() {
		return nil
	}
	calls, c := t.claim.Open, &t.children
	if c.aborted {
		calls = c.missing
	}
	c.missing, err = t.taker.cfg.Upkeep.Finalizer.AbortChildren(ctx, t.s.Tenant, calls)
	c.aborted = err == nil
	return err
}
