package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lostLooks is how often in a row the store must lack a run that a client waits for, about a
// second or two apart, before it counts as lost: a store that was just promoted may lag behind.
const lostLooks = 3

// lostInBatch is how old a batch is when its runs that are missing count as lost. Until then they
// may be about to be stored: by a gateway that creates the batch, or by another to which the client
// sends it again under its key because the first has died.
const lostInBatch = batchTimeout + 4*time.Minute

// recordLost records that the store has lost a run, and returns the run as it stands: a store that
// has it again keeps it. The error is state.ErrDeleted if the run was deleted.
func (g *Gateway) recordLost(ctx context.Context, known state.State, detail string) (state.State, error) {
	lost, err := known.Lost(state.At(time.Now()), detail)
	if err != nil {
		return state.State{}, err
	}
	made, err := g.store.Create(ctx, state.NewRun{State: lost, RedeliveryDelay: g.cfg.RedeliveryDelay})
	if err != nil {
		return state.State{}, err
	}
	if !made.Existing {
		g.log.Error("the store has lost a run", "run_id", known.ID, "tenant", known.Tenant, "hint", "docs/how-to/troubleshoot.md#lost-runs")
		g.changes.changed(known.Tenant, known.ID)
	}
	return made.State, nil
}

// lostOfBatch records the runs of a batch that the store has lost, which are those that known does
// not report though the batch is old, and returns them.
func (g *Gateway) lostOfBatch(ctx context.Context, id string, origin state.BatchOrigin, known func(index int) bool) ([]state.State, error) {
	if time.Since(origin.CreatedAt.Time) < lostInBatch || g.cfg.Restore.Waiting() {
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
		group.Go(g.guarded(func() error {
			lost := head.LostInBatch(index)
			st, err := g.recordLost(ctx, lost, "its batch names it")
			if errors.Is(err, state.ErrDeleted) {
				return nil // since the batch was read: the next look counts it
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

// missing counts a look at the store that did not find the run of a stream. The last one ends the
// stream with the end of the run.
func (s *stream) missing(ctx context.Context, err error) error {
	if errors.Is(err, state.ErrDeleted) {
		return err
	}
	if s.g.cfg.Restore.Waiting() {
		s.lacking = 0 // what is lost shows after the decision
		return nil
	}
	if s.lacking++; s.lacking < lostLooks {
		return nil
	}
	if _, err := s.g.recordLost(ctx, s.known, "a client waits for it"); err != nil {
		return err
	}
	return s.endLost(ctx)
}

// endLost sends the end of a lost run. Its number is less than those that the reader has of the
// run before the loss.
func (s *stream) endLost(ctx context.Context) error {
	log, err := s.g.readLog(ctx, s.id, 0, 1)
	if err != nil {
		return err
	}
	if len(log) == 1 && log[0].Reason == state.EndLost {
		data, err := api.EncodeEvent(s.id, log[0])
		if err != nil {
			return err
		}
		if err := s.writeNow(frameOf(log[0].Seq, head{log[0].Type, log[0].Turn}, data)); err != nil {
			return err
		}
	}
	return errEnded
}
