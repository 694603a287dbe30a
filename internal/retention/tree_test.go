package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A deletion reads all pages of the children of a run.
func TestDeleteWideTree(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	root := d.run("a", nil, state.EndCompleted)
	const children = 450
	for i := range children {
		d.run("b", &state.Parent{RunID: root, CallID: fmt.Sprint("c", i), Depth: 1}, state.EndCompleted)
	}
	n, err := retention.New(d.store, d.bus, retention.Config{}).Delete(t.Context(), "default", root)
	if n != 1+children || err != nil {
		t.Errorf("Delete = %d, %v; want %d", n, err, 1+children)
	}
	if page, err := d.store.List(t.Context(), state.Filter{}); err != nil || len(page.Runs) > 0 {
		t.Errorf("%d runs are left, %v", len(page.Runs), err)
	}
}

// Events and dead letters that a worker publishes while their run is deleted are deleted as well.
func TestDeletionLeavesNothingOnTheBus(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	poisoned := d.run("a", nil, "")
	c, err := d.store.Claim(t.Context(), state.ClaimRequest{Run: poisoned, Version: 1, Token: "t", Worker: "w", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.State.Move(state.EndPoisoned, state.Entry{At: state.At(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	s.DeadLettered = true
	if _, err := d.store.Commit(t.Context(), c.Lease, state.Commit{ID: "c", State: &s, From: c.State.LogLen()}); err != nil {
		t.Fatal(err)
	}
	b := &between{Store: d.store, Intake: d.bus}
	b.remove = func(id state.RunID) {
		if err := d.bus.PublishEvents(t.Context(), "default", id, []bus.Event{{Seq: 1, Data: []byte(`{}`)}}); err != nil {
			t.Error(err)
		}
		if err := d.bus.DeadLetter(t.Context(), bus.DeadLetter{Kind: bus.DeadPoisoned, Tenant: "default", Run: id, Version: 1}); err != nil {
			t.Error(err)
		}
	}
	if _, err := retention.New(b, b, retention.Config{}).Delete(t.Context(), "default", poisoned); err != nil {
		t.Fatal(err)
	}
	if last, err := d.bus.LastEvent(t.Context(), "default", poisoned); err != nil || last != 0 {
		t.Errorf("the feed has events of the deleted run up to %d, %v", last, err)
	}
	if letters, err := d.bus.DeadLetters(t.Context(), "default", 0, 10); err != nil || len(letters) > 0 {
		t.Errorf("dead letters of the deleted run: %+v, %v", letters, err)
	}
}

// prevents is a store that calls the test before a creation is prevented.
type prevents struct {
	state.Store

	before func()
}

func (p prevents) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	p.before()
	return p.Store.PreventCreation(ctx, tenant, id)
}

// createChild stores a child of a run that has admitted it.
func (d *deployment) createChild(root, child state.RunID) {
	s := state.State{ID: child, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, Parent: &state.Parent{RunID: root, CallID: "c", Depth: 1}}
	s, err := s.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err == nil {
		_, err = d.store.Create(d.t.Context(), state.NewRun{State: s, RedeliveryDelay: time.Minute})
	}
	if err != nil {
		d.t.Error(err)
	}
}

// A run that is created at the last moment, before the deletion prevents it, makes the store refuse the
// deletion of its tree.
func TestRunThatIsCreatedDuringTheDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, "")
		child := root.Plus(1)
		if _, err := d.store.Admit(t.Context(), root, []state.RunID{child}, 9); err != nil {
			t.Fatal(err)
		}
		d.end(root, state.EndAbortedStreaming)
		time.Sleep(2 * time.Minute)
		create := func() { d.createChild(root, child) }
		_, err := retention.New(prevents{d.store, create}, d.bus, retention.Config{}).Delete(t.Context(), "default", root)
		if live, ok := errors.AsType[*state.NotEndedError](err); !ok || live.ID != child || !d.has(root) || !d.has(child) {
			t.Errorf("Delete = %v; the root exists: %t, its child: %t", err, d.has(root), d.has(child))
		}
		if err := d.say(root); err != nil {
			t.Errorf("after the refused deletion: %v", err)
		}
	})
}

// clinging is a store that once fails to remove a seal.
type clinging struct {
	prevents

	failed atomic.Bool
}

func (c *clinging) Unseal(ctx context.Context, id state.RunID, token string) error {
	if c.failed.CompareAndSwap(false, true) {
		return errPicky
	}
	return c.prevents.Unseal(ctx, id, token)
}

// A cleaner removes the seals of a refused deletion that could not remove them itself.
func TestSealsOfARefusedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, "")
		child := root.Plus(1)
		if _, err := d.store.Admit(t.Context(), root, []state.RunID{child}, 9); err != nil {
			t.Fatal(err)
		}
		d.end(root, state.EndAbortedStreaming)
		time.Sleep(2 * time.Minute)
		store := &clinging{prevents: prevents{d.store, func() { d.createChild(root, child) }}}
		c := retention.New(store, d.bus, retention.Config{})
		if _, err := c.Delete(t.Context(), "default", root); !errors.Is(err, errPicky) {
			t.Errorf("Delete = %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		time.Sleep(3 * time.Minute)
		cancel()
		<-done
		if err := d.say(root); err != nil {
			t.Errorf("after the refused deletion: %v", err)
		}
	})
}

// A gateway does not interfere with a deletion that another one has just begun.
func TestDeletionInProgressIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, state.EndCompleted)
		hold := make(chan struct{})
		mine := &between{Store: d.store, Intake: d.bus, forget: func(state.RunID) { <-hold }}
		var deleting sync.WaitGroup
		deleting.Go(func() {
			if _, err := retention.New(mine, mine, retention.Config{}).Delete(t.Context(), "default", root); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		other := &between{Store: d.store, Intake: d.bus}
		other.seal = func(id state.RunID) { t.Errorf("another gateway seals run %s, whose deletion is in progress", id) }
		ctx, cancel := context.WithCancel(t.Context())
		deleting.Go(func() { retention.New(other, other, retention.Config{}).Run(ctx) })
		synctest.Wait()
		cancel()
		close(hold)
		deleting.Wait()
		if d.has(root) {
			t.Error("the run is left")
		}
	})
}

// A tenant's last deletion is recorded before anything is deleted, and a long deletion updates the record: a
// reader at any moment can tell that runs may be missing.
func TestDeletionIsNotedBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, state.EndCompleted)
		noted := func() time.Time {
			t.Helper()
			at, err := retention.LastDeletion(t.Context(), d.store, "default")
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		var before time.Time
		b := &between{Store: d.store, Intake: d.bus}
		b.remove = func(state.RunID) {
			before = noted()
			time.Sleep(10 * time.Second)
		}
		if _, err := retention.New(b, b, retention.Config{}).Delete(t.Context(), "default", root); err != nil {
			t.Fatal(err)
		}
		if before.IsZero() {
			t.Error("a run was deleted without a recorded deletion")
		}
		if late := time.Since(noted()); late > retention.NotedEvery {
			t.Errorf("the record is %v behind the last deletion", late)
		}
	})
}

// Incomplete runs are kept as long as completed ones, and an agent whose definition this build cannot read does
// not keep other agents' runs.
func TestRulesOfAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		for name, keep := range map[string]string{"alien": `"until further notice"`, "brief": `{"completed":"10m"}`} {
			def := fmt.Appendf(nil, `{"name":%q,"retention":%s}`, name, keep)
			if _, err := d.store.PutAgent(t.Context(), state.DefaultTenant, name, json.RawMessage(def), false); err != nil {
				t.Fatal(err)
			}
		}
		c := retention.New(d.store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(time.Hour)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		brief, other := d.run("brief", nil, state.EndMaxTurns), d.run("alien", nil, state.EndMaxTurns)
		time.Sleep(15 * time.Minute)
		if d.has(brief) || !d.has(other) {
			t.Errorf("after a quarter of an hour the run with a retention of ten minutes exists: %t, the one with an hour: %t", d.has(brief), d.has(other))
		}
		time.Sleep(time.Hour)
		if d.has(other) {
			t.Error("the run with a retention of an hour exists after an hour and a quarter")
		}
	})
}

// If a gateway dies anywhere in a deletion, another one completes it and leaves nothing on the bus, including
// events that workers published after the first purge of a run.
func TestCompletedDeletionLeavesNothingOnTheBus(t *testing.T) {
	for at := range 4 {
		synctest.Test(t, func(t *testing.T) {
			d := newDeployment(t)
			root := d.run("a", nil, "")
			child := root.Plus(1)
			if _, err := d.store.Admit(t.Context(), root, []state.RunID{child}, 9); err != nil {
				t.Fatal(err)
			}
			d.child(root, child)
			d.end(root, state.EndCompleted)
			killed := &crash{Intake: d.bus}
			killed.left.Store(int64(at))
			b := &between{Store: d.store, Intake: killed}
			b.remove = func(id state.RunID) {
				if err := d.bus.PublishEvents(t.Context(), "default", id, []bus.Event{{Seq: 1, Data: []byte(`{}`)}}); err != nil {
					t.Error(err)
				}
			}
			if _, err := retention.New(b, b, retention.Config{}).Delete(t.Context(), "default", root); err == nil {
				t.Fatal("nothing was interrupted")
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { retention.New(d.store, d.bus, retention.Config{}).Run(ctx); close(done) }()
			time.Sleep(10 * time.Minute)
			cancel()
			<-done
			for _, id := range []state.RunID{root, child} {
				last, err := d.bus.LastEvent(t.Context(), "default", id)
				if err != nil || last != 0 || d.has(id) {
					t.Errorf("killed at purge %d: run %s exists: %t, and the feed has events of it up to %d, %v", at+1, id, d.has(id), last, err)
				}
			}
		})
	}
}

// halfway is a store in which the first deletion of a run breaks off after its marker.
type halfway struct {
	state.Store

	of state.RunID

	mu        sync.Mutex
	deletions int // of this run
}

func (h *halfway) Delete(ctx context.Context, id state.RunID) error {
	err := h.Store.Delete(ctx, id)
	if id != h.of {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deletions++; h.deletions == 1 {
		return errors.New("killed")
	}
	return err
}

// A gateway that dies while the store deletes a run may leave part of the run behind its marker: the gateway
// that completes the deletion calls the store again.
func TestCompletedDeletionLeavesNothingInTheStore(t *testing.T) {
	for _, below := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			d := newDeployment(t)
			root := d.run("a", nil, "")
			child := root.Plus(1)
			if _, err := d.store.Admit(t.Context(), root, []state.RunID{child}, 9); err != nil {
				t.Fatal(err)
			}
			d.child(root, child)
			d.end(root, state.EndCompleted)
			store := &halfway{Store: d.store, of: root.Plus(below)}
			if _, err := retention.New(store, d.bus, retention.Config{}).Delete(t.Context(), "default", root); err == nil {
				t.Fatal("nothing was interrupted")
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { retention.New(store, d.bus, retention.Config{}).Run(ctx); close(done) }()
			time.Sleep(10 * time.Minute) // the bubble's clock
			cancel()
			<-done
			if d.has(root) || d.has(child) || store.deletions < 2 {
				t.Errorf("level %d: the root exists: %t, the child: %t; the store was called %d times to delete the run", below, d.has(root), d.has(child), store.deletions)
			}
		})
	}
}

// A second deletion removes what a failure of the first one left, although the run is marked as deleted.
func TestSecondDeletionLeavesNothingInTheStore(t *testing.T) {
	d := newDeployment(t)
	root := d.run("a", nil, state.EndCompleted)
	store := &halfway{Store: d.store, of: root}
	cleaner := retention.New(store, d.bus, retention.Config{})
	if _, err := cleaner.Delete(t.Context(), "default", root); err == nil {
		t.Fatal("the deletion did not fail")
	}
	if n, err := cleaner.Delete(t.Context(), "default", root); n != 0 || !errors.Is(err, state.ErrDeleted) || store.deletions != 2 {
		t.Errorf("second deletion: %d runs, %v after %d deletions in the store, want none, ErrDeleted, 2", n, err, store.deletions)
	}
}

// A second deletion also removes a dead letter that was stored after the marker of the run.
func TestSecondDeletionLeavesNoLetters(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	root := d.run("a", nil, state.EndCompleted)
	cleaner := retention.New(&halfway{Store: d.store, of: root}, d.bus, retention.Config{})
	if _, err := cleaner.Delete(t.Context(), "default", root); err == nil {
		t.Fatal("the deletion did not fail")
	}
	if err := d.bus.DeadLetter(t.Context(), bus.DeadLetter{Kind: bus.DeadPoisoned, Tenant: "default", Run: root, Version: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := cleaner.Delete(t.Context(), "default", root); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("second deletion: %v", err)
	}
	if letters, err := d.bus.DeadLetters(t.Context(), "default", 0, 10); err != nil || len(letters) > 0 {
		t.Errorf("dead letters of the deleted run: %+v, %v", letters, err)
	}
}

// caller is a store whose changes of documents fail when their caller is gone.
type caller struct{ state.Store }

func (c caller) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Store.DeleteDocument(ctx, kind, name)
}

// A client that disconnects as the last run is deleted leaves no deletion for others to complete.
func TestDeletionWithoutItsClient(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	root := d.run("a", nil, state.EndCompleted)
	ctx, gone := context.WithCancel(t.Context())
	defer gone()
	b := &between{Store: caller{d.store}, Intake: d.bus}
	b.remove = func(state.RunID) { gone() }
	if n, err := retention.New(b, b, retention.Config{}).Delete(ctx, "default", root); n != 1 || err != nil {
		t.Errorf("Delete = %d, %v", n, err)
	}
	if left, err := d.store.Documents(t.Context(), state.DeletionDocument); err != nil || len(left) > 0 {
		t.Errorf("deletions in progress: %s, %v", left, err)
	}
}

// child stores a child of an ended run.
func (d *deployment) child(parent, id state.RunID) {
	d.t.Helper()
	s := state.State{ID: id, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, Parent: &state.Parent{RunID: parent, CallID: "c", Depth: 1}}
	s, err := s.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err == nil {
		_, err = d.store.Create(d.t.Context(), state.NewRun{State: s, RedeliveryDelay: time.Minute})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.end(id, state.EndCompleted)
}
