package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Ready returns nil if nothing hinders the worker in taking turns: the store and the bus are ready, the deployment does
// not wait for a decision about its store, as far as this process knows, and at most MaxAbandoned calls continue
// although they were cancelled. Otherwise the error names each cause. Ready does not check whether Run runs.
func (w *Worker) Ready(ctx context.Context) error {
	var store, queue error
	var probes sync.WaitGroup // at once, so that one that does not answer leaves the other its time
	probes.Go(func() { store = w.store.Ready(ctx) })
	probes.Go(func() { queue = w.bus.Ready(ctx) })
	probes.Wait()
	var errs []error
	if store != nil {
		errs = append(errs, fmt.Errorf("store: %w", store))
	}
	if queue != nil {
		errs = append(errs, fmt.Errorf("bus: %w", queue))
	}
	if err := w.cfg.Restore.Err(); err != nil {
		errs = append(errs, err)
	}
	if n := w.calls.Abandoned(); n > int64(w.cfg.MaxAbandoned) {
		errs = append(errs, fmt.Errorf("%d calls of tools, hooks or models continue although they were cancelled, and at most %d may: fix the code that ignores cancellation, and restart the worker", n, w.cfg.MaxAbandoned))
	}
	return errors.Join(errs...)
}
