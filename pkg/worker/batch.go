package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// startNext starts the run of a batch whose turn has come now that s stands as it
// does: the one behind s in its lane if s has ended, and s itself if it is held and
// nobody is before it any more (L8). It may be called at any time and any number of
// times. A run that is not stored yet starts by itself: the sweeper looks at each
// new run once.
//
// A run that was cancelled while it was held has freed nothing. Whoever ends before
// it starts the one behind it; it does so itself only if that has happened already.
func (w *Worker) startNext(ctx context.Context, s state.State) error {
	if s.Batch == nil || !s.PendingInBatch() && !s.Status.Terminal() {
		return nil
	}
	if s.PendingInBatch() || s.Batch.Skipped {
		if free, err := w.laneFree(ctx, s); err != nil || !free {
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
		if ended, err := w.startPending(ctx, id); err != nil || !ended {
			return err
		}
	}
}

// laneFree reports whether every run before s in its lane has ended. One that had
// started proves it of those before it.
func (w *Worker) laneFree(ctx context.Context, s state.State) (bool, error) {
	for step := -1; ; step-- {
		id, ok := s.InLane(step)
		if !ok {
			return true, nil
		}
		before, err := w.store.Load(ctx, id)
		switch {
		case errors.Is(err, state.ErrNotFound):
			return true, nil // the store has lost it, and nobody else will come
		case err != nil:
			return false, fmt.Errorf("load the run before %s in its batch: %w", s.ID, err)
		case !before.Status.Terminal():
			return false, nil
		case before.Batch == nil || !before.Batch.Skipped:
			return true, nil
		}
	}
}

// startPending lets a held run go, and reports whether it has ended, so that the one
// behind it may start instead.
func (w *Worker) startPending(ctx context.Context, id state.RunID) (ended bool, err error) {
	wake, err := w.store.Signal(ctx, id, state.Signal{ID: "start:" + string(id), Start: true, At: w.clock.now()}, w.cfg.RedeliveryDelay)
	if closed, ok := errors.AsType[*state.NotWaitingError](err); ok {
		return closed.Status.Terminal(), nil
	}
	if errors.Is(err, state.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("start run %s: %w", id, err)
	}
	if err := w.dispatch.Wake(ctx, id, wake, ""); err != nil {
		return false, fmt.Errorf("publish turn of run %s: %w", id, err)
	}
	return false, nil
}
