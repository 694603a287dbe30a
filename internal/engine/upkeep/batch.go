package upkeep

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// startNext starts the next run of a batch after a change of s. A batch has up to MaxParallel lanes, and the runs of a
// lane start one after the other. If s is pending and every predecessor has left the lane, startNext starts s; if s has
// left the lane, it starts the successor of s. In place of a run that has ended or was deleted or lost it starts the
// next one. It may be called at any time and any number of times. A run that is not stored yet starts on its own: the
// sweeper checks each new run once.
//
// If s was cancelled while it was pending, other runs may still be in front of it. Then startNext starts nothing, and
// the run before s starts the successor of s when it leaves the lane.
func (f *Finalizer) startNext(ctx context.Context, s state.State) error {
	if s.Batch == nil || !s.PendingInBatch() && !s.LeftLane() {
		return nil
	}
	l := lane{f: f, s: s}
	if s.PendingInBatch() || s.Batch.Skipped {
		if free, err := l.free(ctx); err != nil || !free {
			return err
		}
	}
	step := 1
	if s.PendingInBatch() {
		step = 0
	}
	for ; ; step++ {
		id, ok := s.InLane(step)
		if !ok {
			return nil
		}
		if ended, err := l.start(ctx, id, step); err != nil || !ended {
			return err
		}
	}
}

// lane is the lane of a run of a batch.
type lane struct {
	f       *Finalizer
	s       state.State
	deleted *state.DeletedBatch // nil: not read yet
}

// gone reports whether the run that is step places after l.s in its lane was deleted; a negative step counts places
// before it. A missing run that was not deleted was lost, or is not stored yet. err is the store's error for the
// missing run: ErrDeleted or ErrNotFound. For ErrNotFound, gone reads the record of the batch, which names deleted
// runs for longer than their markers last. It keeps the record in l, and returns an error only if it cannot read it.
func (l *lane) gone(ctx context.Context, err error, step int) (bool, error) {
	if errors.Is(err, state.ErrDeleted) {
		return true, nil
	}
	if l.deleted == nil {
		first, _, _ := l.s.BatchOrigin()
		b, err := l.f.store.DeletedOfBatch(ctx, first)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return false, err
		}
		l.deleted = &b
	}
	_, gone := l.deleted.Deleted[l.s.Batch.Index+step*l.s.Batch.MaxParallel]
	return gone, nil
}

// free reports whether every run before s has left its lane. If the closest predecessor has left the lane after it
// had started, so have all before it. A deleted, lost or skipped predecessor does not show that, so free then looks
// further back. It records the loss of each lost predecessor that it comes across.
func (l *lane) free(ctx context.Context) (bool, error) {
	for step := -1; ; step-- {
		id, ok := l.s.InLane(step)
		if !ok {
			return true, nil
		}
		before, err := l.f.store.Load(ctx, id)
		switch {
		case errors.Is(err, state.ErrNotFound):
			gone, err := l.gone(ctx, err, step)
			if err != nil {
				return false, err
			}
			if !gone { // it was stored before s
				if err := l.recordLost(ctx, step); err != nil {
					return false, err
				}
			}
		case err != nil:
			return false, fmt.Errorf("load the run that precedes %s in its batch: %w", l.s.ID, err)
		case !before.LeftLane():
			return false, nil
		case before.Batch == nil || !before.Batch.Skipped:
			return true, nil
		}
	}
}

// start starts a pending run. It reports whether the run has ended, in which case its successor
// may start instead.
func (l *lane) start(ctx context.Context, id state.RunID, step int) (ended bool, err error) {
	f := l.f
	wake, err := f.store.Signal(ctx, id, state.Signal{ID: "start:" + string(id), Start: true, At: f.cfg.Clock.Now()}, f.cfg.RedeliveryDelay)
	if closed, ok := errors.AsType[*state.NotWaitingError](err); ok {
		return closed.Status.Terminal(), nil
	}
	if errors.Is(err, state.ErrNotFound) {
		gone, err := l.gone(ctx, err, step)
		if err != nil || gone {
			return gone, err
		}
		return l.lost(ctx, id, step)
	}
	if err != nil {
		return false, fmt.Errorf("start run %s: %w", id, err)
	}
	if err := f.cfg.Dispatch.Wake(ctx, id, wake, ""); err != nil {
		return false, fmt.Errorf("publish turn of run %s: %w", id, err)
	}
	return false, nil
}

// lost handles a run that the store does not have and that was not deleted, step places after l.s in its lane. If any
// later run of the lane is stored, the run was lost, because runs are stored in the order of their lane: lost records
// that, and returns true. Otherwise the run may not be stored yet, and lost returns false.
func (l *lane) lost(ctx context.Context, id state.RunID, step int) (bool, error) {
	for behind := step + 1; ; behind++ {
		next, ok := l.s.InLane(behind)
		if !ok {
			return false, nil
		}
		switch _, err := l.f.store.Load(ctx, next); {
		case err == nil:
			return true, l.recordLost(ctx, step)
		case !errors.Is(err, state.ErrNotFound):
			return false, fmt.Errorf("load the run that follows %s in its batch: %w", id, err)
		}
	}
}

// recordLost records that the store has lost the run that is step places after l.s in its lane, or before it if step
// is negative.
func (l *lane) recordLost(ctx context.Context, step int) error {
	known := l.s.LostInBatch(l.s.Batch.Index + step*l.s.Batch.MaxParallel)
	_, err := l.f.recordLost(ctx, known, l.lostDetail(step))
	return err
}

// lostDetail explains how the worker knows of the run that is step places after l.s in its lane, or before it if step is
// negative.
func (l *lane) lostDetail(step int) string {
	order := "before"
	if step < 0 {
		order = "after"
	}
	return "the run " + string(l.s.ID) + " of its batch comes " + order + " it, but the store does not have it"
}
