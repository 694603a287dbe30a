package service

import (
	"context"
	"errors"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// asked returns a run in which a principal has asked for something: the run itself, or one
// above it, which had it started.
func (k *core) asked(ctx context.Context, principal string, id state.RunID) (in state.RunID, err error) {
	err = k.eachLog(ctx, id, func(id state.RunID, log []state.Entry) bool {
		if slices.Contains(state.Askers(nil, log), principal) {
			in = id
		}
		return in == ""
	})
	return in, err
}

// askedBefore returns who has asked for something in a run with a log, or above it.
func (k *core) askedBefore(ctx context.Context, st state.State, log []state.Entry) ([]string, error) {
	all := state.Askers(nil, log)
	if st.Parent == nil {
		return all, nil
	}
	err := k.eachLog(ctx, st.Parent.RunID, func(_ state.RunID, log []state.Entry) bool {
		all = state.Askers(all, log)
		return true
	})
	return all, err
}

// eachLog goes through the log of a run and of those above it, as far as retention has left
// them, until more says that it is enough.
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
		err = k.eachPage(ctx, id, func(page []state.Entry, _ int64) (bool, error) {
			enough = !more(id, page)
			return enough, nil
		})
		if err != nil || enough || st.Parent == nil {
			return err
		}
		id = st.Parent.RunID
	}
}
