package retention_test

import (
	"context"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// failing cannot seal one run: its client has disconnected.
type failing struct {
	state.Store

	run state.RunID
}

func (f *failing) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	if id == f.run {
		return nil, context.Canceled
	}
	return f.Store.Seal(ctx, id, token)
}

// A deletion that fails keeps the seals of a concurrent deletion of the same tree: no run whose child is gone
// accepts a message.
func TestFailedDeletionLeavesSeals(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	root := d.run("a", nil, state.EndCompleted)
	child := d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndCompleted)
	b := &between{Store: d.store, Intake: d.bus}
	var second, said error
	var once sync.Once
	b.forget = func(state.RunID) {
		once.Do(func() { // the first deletion has sealed all runs
			_, second = retention.New(&failing{d.store, child}, d.bus, retention.Config{}).Delete(t.Context(), "default", root)
			said = d.say(root)
		})
	}
	n, err := retention.New(b, b, retention.Config{}).Delete(t.Context(), "default", root)
	if n != 2 || err != nil || second == nil || said == nil {
		t.Errorf("first deletion: %d runs, %v; second: %v; message: %v; want 2 runs deleted, the second and the message refused", n, err, second, said)
	}
	if d.has(root) || d.has(child) {
		t.Error("a run is left")
	}
}
