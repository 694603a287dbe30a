package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// waiters are the runs of the store that wait for other runs: to start in their batch, or for children.
type waiters map[state.RunID]*waiter

type waiter struct {
	run      api.RestoreRun
	place    state.State   // with only the fields that InLane uses, of a run that is pending in its batch
	children []state.RunID // for which a parent waits
}

// note adds st if other runs can make it continue. A pending run with a later start does not start even if its batch
// lets it.
func (w waiters) note(st state.State, m *named) {
	switch {
	case st.PendingInBatch() && !st.ResumeAt.After(time.Now()):
		w[st.ID] = &waiter{run: entry(st, api.RestoreActive, m), place: state.State{ID: st.ID, Batch: st.Batch}}
	case st.Status == state.Waiting && st.Waiting != nil && st.Waiting.Reason == state.WaitingChild:
		w[st.ID] = &waiter{run: entry(st, api.RestoreActive, m), children: childrenOf(st)}
	}
}

func childrenOf(st state.State) []state.RunID {
	var ids []state.RunID
	for _, o := range st.Open {
		if o.Needs == state.NeedChild {
			ids = append(ids, o.Child)
		}
	}
	return ids
}

// addWaiters adds the waiters that may have continued since the copy was made, because a run that they wait for was
// found, has ended or is missing. If those were aborted and the waiters were not, they would continue for certain.
func (r *Review) addWaiters(ctx context.Context, w waiters, found map[state.RunID]api.RestoreRun) error {
	s := search{store: r.store, waiters: w, found: found, others: map[state.RunID]other{}}
	for again := true; again; {
		again = false
		for id, one := range w {
			if _, ok := found[id]; ok {
				continue
			}
			continued, err := s.mayHaveContinued(ctx, one)
			if err != nil {
				return err
			}
			if continued {
				found[id], again = one.run, true // others may wait for it
			}
		}
	}
	return nil
}

// search looks for the runs that waiters wait for.
type search struct {
	store   state.Runs
	waiters waiters
	found   map[state.RunID]api.RestoreRun
	others  map[state.RunID]other // loaded before
}

// other is a run that was not found.
type other struct {
	missing, ended    bool
	leftLane, skipped bool // see state.Batch
}

func (s *search) load(ctx context.Context, id state.RunID) (other, error) {
	if o, ok := s.others[id]; ok {
		return o, nil
	}
	st, err := s.store.Load(ctx, id)
	var o other
	switch {
	case errors.Is(err, state.ErrNotFound), errors.Is(err, state.ErrDeleted), errors.Is(err, state.ErrFormat):
		o.missing = true
	case err != nil:
		return o, fmt.Errorf("load run %s: %w", id, err)
	default:
		o = other{ended: st.Status.Terminal(), leftLane: st.LeftLane(), skipped: st.Batch != nil && st.Batch.Skipped}
	}
	s.others[id] = o
	return o, nil
}

func (s *search) mayHaveContinued(ctx context.Context, w *waiter) (bool, error) {
	if w.place.Batch != nil {
		return s.mayHaveStarted(ctx, w.place)
	}
	for _, child := range w.children {
		if _, ok := s.found[child]; ok {
			return true, nil
		}
		if s.waiters[child] != nil {
			continue
		}
		if o, err := s.load(ctx, child); err != nil || o.missing || o.ended {
			return err == nil, err
		}
	}
	return false, nil
}

// mayHaveStarted reports whether a run that is pending in the store may have started since the copy was made: unless a
// run before it is certain to be still in the lane. A run that has started shows that those before it have left.
func (s *search) mayHaveStarted(ctx context.Context, pending state.State) (bool, error) {
	for step := -1; ; step-- {
		id, ok := pending.InLane(step)
		if !ok {
			return true, nil
		}
		if _, ok := s.found[id]; ok {
			return true, nil
		}
		if w := s.waiters[id]; w != nil && w.place.Batch != nil {
			continue // waits for the same runs
		}
		o, err := s.load(ctx, id)
		switch {
		case err != nil:
			return false, err
		case o.missing:
		case !o.leftLane:
			return false, nil
		case !o.skipped:
			return true, nil
		}
	}
}
