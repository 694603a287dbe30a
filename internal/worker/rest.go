package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// finalize does what follows when the turn has brought its run to rest.
func (t *turn) finalize(ctx context.Context) error {
	// Again: a worker that was only paused may have started a child meanwhile.
	if err := t.abortChildren(ctx); err != nil {
		return err
	}
	return t.w.finalizer.Finalize(ctx, t.s, t.s.LogLen(), t.startedBefore())
}

// startedBefore returns the calls whose child runs an earlier rest of the run has started: all
// that were open then, if it was finalized. A turn that begins with one result of many leaves
// the other children alone. If the store loses them, the sweeper finds that.
func (t *turn) startedBefore() []state.OpenCall {
	if t.claim.FinalizedSeq < t.claim.Base {
		return nil
	}
	return t.claim.Open
}

// orphaned returns the abort of a run that begins although the one which waited for it
// has ended. Whoever ended that found nothing to abort if the worker that was to start
// this one slept meanwhile.
func (t *turn) orphaned(ctx context.Context) (*state.Abort, error) {
	if t.s.Parent == nil || t.claim.Version != 1 || t.claim.Abort != nil {
		return t.claim.Abort, nil
	}
	parent, err := t.w.store.Load(ctx, t.s.Parent.RunID)
	switch {
	case errors.Is(err, state.ErrDeleted):
		return &state.Abort{Reason: upkeep.ParentEnded}, nil // it had ended
	case errors.Is(err, state.ErrNotFound):
		return nil, nil //nolint:nilnil // the store has lost it, and may have it again
	case err != nil:
		return nil, fmt.Errorf("%w: load parent run: %w", effect.ErrRelease, err)
	case parent.Status.Terminal():
		return &state.Abort{Reason: upkeep.ParentEnded}, nil
	default:
		return nil, nil //nolint:nilnil // it goes on
	}
}

// abortChildren ends the runs that answer open calls of a run which ends: nothing waits for
// them any more (I7). A second call concerns only the runs that were missing at the first one.
func (t *turn) abortChildren(ctx context.Context) (err error) {
	if !t.s.Status.Terminal() {
		return nil
	}
	calls := t.claim.Open
	if t.aborted {
		calls = t.missing
	}
	t.missing, err = t.w.finalizer.AbortChildren(ctx, t.s.Tenant, calls)
	t.aborted = err == nil
	return err
}
