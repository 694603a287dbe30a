package turn

import (
	"context"
	"errors"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// CheckpointBytes is the default of Config.CheckpointBytes.
const CheckpointBytes = 1 << 20

// checkpoint journals a checkpoint of the history, before the turn decides anything, if the log from its last
// checkpoint on has become large and loop.Checkpoint allows one. The checkpoint is a write of its own: if the store has
// no capacity for it, the turn continues without it. Only the first attempt at a turn makes a checkpoint, before it
// journals anything else, and only without a pending abort. The error is that of Journal.Response, except a
// *state.TooLargeError.
func (t *turn) checkpoint(ctx context.Context, a *agent.Agent) error {
	if t.claim.Attempt > 1 || t.claim.Abort != nil || t.s.LogLen() != t.claim.Base || !t.outgrown() {
		return nil
	}
	return t.fold(ctx, a)
}

// fold journals a checkpoint of the history if loop.Checkpoint allows one.
func (t *turn) fold(ctx context.Context, a *agent.Agent) error {
	next, ok := loop.Checkpoint(*t.s, a, t.taker.cfg.Clock.Now())
	if !ok {
		return nil
	}
	before := t.s
	t.become(&next)
	err := t.journal.Response(ctx, t.s.Log)
	if _, full := errors.AsType[*state.TooLargeError](err); full {
		t.become(before)
		return nil
	}
	return err
}

// outgrown reports whether the log without its checkpoint takes more memory than CheckpointBytes and the checkpoint
// together: a checkpoint writes the view again.
func (t *turn) outgrown() bool {
	if t.s.LogBytes <= t.taker.cfg.CheckpointBytes {
		return false // without weighing the view, in each turn of most runs
	}
	view := int64(0)
	if state.CheckpointOf(t.s.Log) != nil {
		view = t.s.Log[0].Weight()
	}
	return t.s.LogBytes-view > t.taker.cfg.CheckpointBytes+view
}
