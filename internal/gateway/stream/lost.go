package stream

import (
	"context"
	"errors"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lostLooks is the number of consecutive reads of the store that must not find a
// run before it counts as lost: a store that was just promoted may lag behind. The
// reads are about a second or two apart, or less if notices arrive in between.
const lostLooks = 3

// missing handles the error err of a read of the store that did not find the run. It returns err if the run was
// deleted, and nil for the first lostLooks-1 of such reads in a row. At the next one it records the run as lost, sends
// the end of the run, and returns errEnded; if the store then has the run after all, it does not send that event. While
// the deployment waits for the decision about restored data, no read counts.
func (r *Reader) missing(ctx context.Context, err error) error {
	if errors.Is(err, state.ErrDeleted) {
		return err
	}
	if r.events.restore.Waiting() {
		r.lacking = 0 // only the decision shows which runs are lost
		return nil
	}
	if r.lacking++; r.lacking < lostLooks {
		return nil
	}
	if _, err := r.events.runs.Lose(ctx, r.known); err != nil {
		return err
	}
	return r.endLost(ctx)
}

// endLost sends the end of a lost run, whose number is lower than those that the reader got before the loss, and
// returns errEnded.
func (r *Reader) endLost(ctx context.Context) error {
	page, err := r.events.runs.Follow(ctx, r.id, 0, 1, readerBytes)
	if err != nil {
		return err
	}
	if log := page.Entries; len(log) == 1 && log[0].Reason == state.EndLost {
		data, err := api.EncodeEvent(r.id, log[0])
		if err != nil {
			return err
		}
		if err := r.sendNow(newEvent(log[0].Seq, head{log[0].Type, log[0].Turn}, data)); err != nil {
			return err
		}
	}
	return errEnded
}
