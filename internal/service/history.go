package service

import (
	"context"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxView is the maximum memory of the part of a run's log that a turn needs, in bytes, if a request forks or
	// continues the run: what the model sees, and the entries since the last checkpoint. A worker holds all of it
	// during a turn.
	maxView = 32 << 20

	// mostPage bounds the number of log entries in one read, and pageWeight their size, in bytes: one read holds at
	// most that and one entry.
	mostPage   = 256
	pageWeight = 2 << 20
)

// eachPage reads the entries of a run's log with numbers above after. It calls visit with each page and its
// approximate memory in bytes, until the log ends or visit returns true or an error. It returns the error of visit or
// of the store.
func (k *core) eachPage(ctx context.Context, id state.RunID, after int64, visit func(page []state.Entry, weight int64) (enough bool, err error)) error {
	for more := true; more; {
		page, err := k.store.LogPage(ctx, id, after, mostPage, pageWeight)
		if err != nil {
			return err
		}
		weight := int64(0)
		for i := range page.Entries {
			weight += page.Entries[i].Weight()
		}
		if enough, err := visit(page.Entries, weight); err != nil || enough {
			return err
		}
		if more = page.More; more {
			after = page.Entries[len(page.Entries)-1].Seq
		}
	}
	return nil
}

// checkView returns an error if the part of a run's log that its next turn needs takes more memory than maxView.
func checkView(st state.State) error {
	if st.LogBytes > maxView {
		return viewTooLarge(st.ID, st.LogBytes)
	}
	return nil
}

func viewTooLarge(id state.RunID, size int64) error {
	return problem(tooLarge, api.CodeBodyTooLarge, "the messages of run %s that the model sees have %d bytes or more, at most %d are allowed for a fork or a continuation: submit a new run with the parts that matter, and let the agent compact its history", id, size, maxView)
}

// tail returns the end of a run's log from its last response or its last transition on, whichever is earlier.
func (k *core) tail(ctx context.Context, st state.State) (log []state.Entry, err error) {
	err = k.InTurn(ctx, func() error {
		return k.eachPage(ctx, st.ID, st.Checkpoint-1, func(page []state.Entry, _ int64) (bool, error) {
			log = append(log, page...)
			from, response, moved := 0, false, false
			for i := len(log) - 1; i >= 0 && !(response && moved); i-- {
				_, moves := log[i].Reason.Status()
				from, response, moved = i, response || log[i].Type == state.EntryModel, moved || moves
			}
			log = append(log[:0:0], log[from:]...) // what was before becomes free
			return false, nil
		})
	})
	return log, err
}

// through returns a part of the log of a run: from the last checkpoint before a turn, or else the beginning, to the
// first response of a later turn, or else the end. That response shows that the run has reached a later turn. The error
// is a problem if the part takes more memory than maxView. through waits while many others read.
func (k *core) through(ctx context.Context, st state.State, turn int) (log []state.Entry, err error) {
	err = k.InTurn(ctx, func() error {
		from, err := k.checkpointBefore(ctx, st, turn)
		if err != nil {
			return err
		}
		size := int64(0)
		return k.eachPage(ctx, st.ID, from-1, func(page []state.Entry, weight int64) (bool, error) {
			if size += weight; size > maxView {
				return false, viewTooLarge(st.ID, size)
			}
			for i := range page {
				if e := &page[i]; e.Type == state.EntryModel && e.Turn > turn {
					log = append(log, page[:i+1]...) // that the run has reached a later turn counts
					return true, nil
				}
			}
			log = append(log, page...)
			return false, nil
		})
	})
	return log, err
}

// checkpointBefore returns the number of the last checkpoint of a run before a turn, or 0.
func (k *core) checkpointBefore(ctx context.Context, st state.State, turn int) (int64, error) {
	at := st.Checkpoint
	for at > 0 {
		found, err := k.store.Log(ctx, st.ID, at-1, 1)
		if err != nil {
			return 0, err
		}
		if len(found) == 0 || found[0].Checkpoint == nil {
			return 0, fmt.Errorf("run %s: entry %d of its log must be a checkpoint and is not, so the stored data is damaged: restore the store from a backup", st.ID, at)
		}
		if found[0].Turn < turn {
			break
		}
		at = found[0].Checkpoint.Previous
	}
	return at, nil
}
