package worker

import (
	"context"
	"errors"
	"fmt"
)

// Ready returns nil if the worker can take turns now: the store and the bus answer, the deployment does not wait for
// a decision about its store, and at most MaxAbandoned calls still run after their time limits. Otherwise the error
// names each cause.
func (w *Worker) Ready(ctx context.Context) error {
	var errs []error
	if err := w.store.Ready(ctx); err != nil {
		errs = append(errs, fmt.Errorf("store: %w", err))
	}
	if err := w.bus.Ready(ctx); err != nil {
		errs = append(errs, fmt.Errorf("bus: %w", err))
	}
	if err := w.cfg.Restore.Err(); err != nil {
		errs = append(errs, err)
	}
	if n := w.calls.Abandoned(); n > int64(w.cfg.MaxAbandoned) {
		errs = append(errs, fmt.Errorf("%d calls of tools, hooks or models still run after their timeout, and at most %d may: fix the code that ignores cancellation, and restart the worker", n, w.cfg.MaxAbandoned))
	}
	return errors.Join(errs...)
}
