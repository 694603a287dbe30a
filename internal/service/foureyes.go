package service

import (
	"context"
	"errors"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// asked returns the run in which a principal has requested something: the run with the id, or the nearest ancestor, or
// "".
func (k *core) asked(ctx context.Context, principal string, id state.RunID) (in state.RunID, err error) {
	err = k.eachLog(ctx, id, func(id state.RunID, log []state.Entry) bool {
		if slices.Contains(state.Askers(nil, log), principal) {
			in = id
		}
		return in == ""
	})
	return in, err
}

// askedBefore returns the principals who have requested something in a run or in its ancestors.
func (k *core) askedBefore(ctx context.Context, id state.RunID) (all []string, err error) {
	err = k.eachLog(ctx, id, func(_ state.RunID, log []state.Entry) bool {
		all = state.Askers(all, log)
		return true
	})
	return all, err
}

// eachLog calls more with pages of the log of a run, then of the logs of its ancestors, until more returns false. It
// reads each log from its last checkpoint on. It ends without an error at a run that does not exist, for example an
// ancestor that was deleted.
func (k *core) eachLog(ctx context.Context, id state.RunID, more func(id state.RunID, log []state.Entry) bool) error {
	for {
		st, err := k.store.Load(ctx, id)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		enough := false
		err = k.eachPage(ctx, id, st.Checkpoint-1, func(page []state.Entry, _ int64) (bool, error) {
			enough = !more(id, page)
			return enough, nil
		})
		if err != nil || enough || st.Parent == nil {
			return err
		}
		id = st.Parent.RunID
	}
}
