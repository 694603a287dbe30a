package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lostInBatch is the minimum age of a batch whose missing runs count as lost. The runs of a younger batch may not all
// be stored yet: the gateway that creates the batch may still store them, or another gateway if the first one died
// and the client retried with the same key.
const lostInBatch = batchTimeout + 4*time.Minute

// recordLost stores a run as lost, and returns the stored run. If the store has the run after all, it keeps and returns
// that. The error is state.ErrDeleted if the run was deleted, and onestore.ErrDiffers while a process has another
// store.
func (k *core) recordLost(ctx context.Context, known state.State, detail string) (state.State, error) {
	lost, err := known.Lost(state.At(time.Now()), detail)
	if err != nil {
		return state.State{}, err
	}
	made, err := k.create(ctx, state.NewRun{State: lost})
	if err != nil {
		return state.State{}, err
	}
	if !made.Existing {
		k.log.Error("the store has lost a run, which is now marked as failed", "run_id", known.ID, "tenant", known.Tenant, "hint", "submit the input of the run again, and check that the store keeps acknowledged writes: docs/how-to/troubleshoot.md#lost-runs")
		k.cfg.Changed(known.Tenant, known.ID)
	}
	return made.State, nil
}

// lostOfBatch records the runs of a batch that the store has lost, and returns them: runs that known does not report,
// if the batch is older than lostInBatch. While another process has another store, it returns none.
func (k *core) lostOfBatch(ctx context.Context, id string, origin state.BatchOrigin, known func(index int) bool) ([]state.State, error) {
	if time.Since(origin.CreatedAt.Time) < lostInBatch || k.cfg.Restore.Waiting() {
		return nil, nil
	}
	first, err := state.ParseBatchID(id)
	if err != nil {
		return nil, err
	}
	head := state.State{
		ID: first, Tenant: origin.Tenant, CreatedAt: origin.CreatedAt,
		Batch: &state.Batch{Size: origin.Size, MaxParallel: origin.MaxParallel, CountWaiting: origin.CountWaiting},
	}
	found := make([]state.State, origin.Size)
	var group errgroup.Group
	group.SetLimit(concurrentCreates)
	for index := range origin.Size {
		if known(index) {
			continue
		}
		group.Go(k.guarded(func() error {
			lost := head.LostInBatch(index)
			st, err := k.recordLost(ctx, lost, "the batch of the run names it, but the store does not have it")
			if errors.Is(err, state.ErrDeleted) || errors.Is(err, onestore.ErrDiffers) {
				return nil // it was deleted after the batch was read, or may be in another store: a later request counts it
			}
			if st.Batch == nil {
				st.Batch = lost.Batch // a worker recorded it for its turn message, which names no batch
			}
			found[index] = st
			return err
		}))
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(st state.State) bool { return st.ID == "" }), nil
}
