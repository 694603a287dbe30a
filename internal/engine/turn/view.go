package turn

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
)

const (
	// smallView is the maximum memory of a log, from its last checkpoint on, that a turn reads with its claim and
	// without a reservation.
	smallView = 256 << 10

	// copiesOfView is the number of times that a large view is in memory: in the log, and in what is encoded from
	// it, which is a checkpoint or the request to a model.
	copiesOfView = 2
)

// readView reserves the memory for a large view, and then reads the log if the claim has omitted it. The turn waits in
// line for the memory, with its lease and its slot. If too many turns of its tenant wait already, readView returns an
// *effect.PostponedError instead: waiting turns would fill the slots, and another worker may have the memory. Errors
// wrap effect.ErrRelease or effect.ErrDrop.
//
// The turn holds no other reservation yet, and no turn waits for this memory while it holds another one. So turns that
// wait for memory never wait for each other.
func (t *turn) readView(ctx context.Context) error {
	size := t.viewBytes()
	if size <= smallView && !t.claim.LogOmitted {
		return nil
	}
	k, tenant := t.taker, t.s.Tenant
	var err error
	if t.view, err = k.cfg.Views.Reserve(ctx, tenant, copiesOfView*size, func() error {
		if k.cfg.Views.Waiting(tenant) <= k.cfg.WaitForViews {
			return nil
		}
		return k.noMemory(size)
	}); err != nil {
		if cause := context.Cause(ctx); cause != nil && upkeep.LeaseOver(cause) {
			return fmt.Errorf("%w: %w", effect.ErrDrop, cause)
		}
		if errors.Is(err, effect.ErrRelease) {
			return err
		}
		return fmt.Errorf("%w: wait for memory: %w", effect.ErrRelease, err)
	}
	if !t.claim.LogOmitted {
		return nil
	}
	c, err := k.claimAgain(ctx, t.lease.Lease, 0)
	if err != nil {
		return err
	}
	trace := t.s.TraceSpan
	t.replay(c)
	if t.s.TraceSpan != trace {
		t.join(trace)
	}
	t.claim.Journal, t.claim.Signals, t.claim.Abort = c.Journal, c.Signals, c.Abort
	t.effects.Starts = c.Journal.Starts
	return nil
}

// growView reserves memory for a response that has made the view large, before the turn waits for tools or hooks with
// it. The turn must not wait for memory while it has some. If the memory is not free, growView journals the response,
// which has been paid for, and returns an *effect.PostponedError, or nil if ctx has ended. The next attempt has the
// memory for all of it before it begins.
func (t *turn) growView(ctx context.Context) error {
	size := t.s.LogBytes
	if size <= smallView {
		return nil
	}
	if t.view == nil {
		t.view = t.taker.cfg.Views.Empty(t.s.Tenant)
	}
	if t.view.GrowTo(copiesOfView * size) {
		return nil
	}
	if err := t.journal.Response(ctx, t.s.Log); err != nil || ctx.Err() != nil {
		return err // act reports why ctx has ended
	}
	return t.taker.noMemory(size)
}

// noMemory is the error of a turn that another attempt must take because there is no memory for the run's view.
func (k *Taker) noMemory(size int64) error {
	return &effect.PostponedError{Delay: k.cfg.Periods.RedeliveryDelay, Reason: fmt.Sprintf("the run's history needs %d KiB of memory, and other turns use too much of the %d KiB for histories, of which one tenant may use half; nothing to do, a worker continues the run when memory is free. If this repeats, raise TURNPIKE_VIEWS_MIB or add workers", copiesOfView*size>>10, k.cfg.Views.Limit()>>10)}
}

// viewBytes estimates the memory of the log of a turn, of its pending signals and of the results in its journal.
func (t *turn) viewBytes() int64 {
	n := t.s.LogBytes
	for i := range t.claim.Signals {
		n += t.claim.Signals[i].Weight()
	}
	for _, e := range t.claim.Journal.Results {
		n += e.Weight()
	}
	return n
}
