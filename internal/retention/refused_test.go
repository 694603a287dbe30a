package retention_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// An expired run with a run below it that has not ended is not in the backlog: it cannot be deleted yet.
func TestBacklogWithoutLiveTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, state.EndCompleted)
		child := d.run("b", &state.Parent{RunID: root, CallID: "c", Depth: 1}, "")
		time.Sleep(time.Hour)
		c := retention.New(d.store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(10 * time.Minute)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		synctest.Wait()
		if s := c.Stats(); s != (retention.Stats{}) || !d.has(root) {
			t.Errorf("after a pass: %+v; the root exists: %t", s, d.has(root))
		}
		d.end(child, state.EndCompleted)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := c.Stats(); s != (retention.Stats{Deleted: 2}) || d.has(root) || d.has(child) {
			t.Errorf("after a pass behind the end: %+v; the root exists: %t, its child: %t", s, d.has(root), d.has(child))
		}
		cancel()
		<-done
	})
}

// A deletion is noted for the tenant of its runs, and for no other.
func TestDeletionIsNotedForItsTenant(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	id := d.runOf("acme", "a", nil, state.EndCompleted)
	if _, err := retention.New(d.store, d.bus, retention.Config{}).Delete(t.Context(), "acme", id); err != nil {
		t.Fatal(err)
	}
	for tenant, noted := range map[string]bool{"acme": true, state.DefaultTenant: false} {
		if at, err := retention.LastDeletion(t.Context(), d.store, tenant); err != nil || at.IsZero() == noted {
			t.Errorf("the last deletion of %s is %s, %v", tenant, at, err)
		}
	}
}

// A run below one that only a newer build can read is refused as a child: it goes with that run, and a pass does not
// report it as a failure.
func TestParentOfANewerBuild(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	parent := state.State{Format: state.Format + 1, ID: newID(), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}}
	parent, err := parent.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err == nil {
		_, err = d.store.Create(t.Context(), state.NewRun{State: parent, RedeliveryDelay: time.Minute})
	}
	if err != nil {
		t.Fatal(err)
	}
	child := d.run("b", &state.Parent{RunID: parent.ID, CallID: "c", Depth: 1}, state.EndCompleted)
	if _, err := retention.New(d.store, d.bus, retention.Config{}).Delete(t.Context(), state.DefaultTenant, child); !errors.Is(err, retention.ErrChild) || !errors.Is(err, state.ErrFormat) || !d.has(child) {
		t.Errorf("Delete = %v; the child exists: %t", err, d.has(child))
	}
}

func newID() state.RunID { return state.RunID(state.RunPrefix + ulid.Make().String()) }
