package gateway

import (
	"context"
	"errors"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lostLooks is how often in a row the store must lack a run that a client waits for, about a
// second or two apart, before it counts as lost: a store that was just promoted may lag behind.
const lostLooks = 3

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
	if _, err := s.g.service.Runs.Lose(ctx, s.known); err != nil {
		return err
	}
	return s.endLost(ctx)
}

// endLost sends the end of a lost run. Its number is less than those that the reader has of the
// run before the loss.
func (s *stream) endLost(ctx context.Context) error {
	log, err := s.g.service.Runs.Follow(ctx, s.id, 0, 1)
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
