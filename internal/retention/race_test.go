package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// between is a store and a bus that call the test at a step of a deletion.
type between struct {
	state.Store
	bus.Intake

	seal, remove, forget func(id state.RunID)

	mu        sync.Mutex // a deletion works on several runs at once
	forgotten []state.RunID
}

func (b *between) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	if b.seal != nil {
		b.seal(id)
	}
	return b.Store.Seal(ctx, id, token)
}

func (b *between) Delete(ctx context.Context, id state.RunID) error {
	if b.remove != nil {
		b.remove(id)
	}
	return b.Store.Delete(ctx, id)
}

func (b *between) PurgeRun(ctx context.Context, tenant string, id state.RunID, letters bool) error {
	if b.forget != nil {
		b.forget(id)
	}
	b.mu.Lock()
	b.forgotten = append(b.forgotten, id)
	b.mu.Unlock()
	return b.Intake.PurgeRun(ctx, tenant, id, letters)
}

func (d *deployment) say(id state.RunID) error {
	m := state.UserText("one more thing")
	_, err := d.store.Signal(d.t.Context(), id, state.Signal{ID: "s1", Message: &m, At: state.At(time.Now())}, time.Minute)
	return err
}

// If a message to any run of a tree arrives at any step of the tree's deletion, one of the two is refused:
// either all runs exist, or all are gone.
func TestMessageDuringADeletion(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"seal", "remove", "forget"} {
		for at := range 3 {
			for to := range 3 {
				d := newDeployment(t)
				root := d.run("a", nil, state.EndCompleted)
				child := d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndCompleted)
				ids := []state.RunID{root, child, d.run("b", &state.Parent{RunID: child, CallID: "c1", Depth: 2}, state.EndCompleted)}
				var said error
				b := &between{Store: d.store, Intake: d.bus}
				say := func(id state.RunID) {
					if id == ids[at] && said == nil {
						said = d.say(ids[to])
					}
				}
				*map[string]*func(state.RunID){"seal": &b.seal, "remove": &b.remove, "forget": &b.forget}[step] = say
				n, err := retention.New(b, b, retention.Config{}).Delete(t.Context(), "default", root)
				left := slices.DeleteFunc(slices.Clone(ids), func(id state.RunID) bool { return !d.has(id) })
				live, refused := errors.AsType[*state.NotEndedError](err)
				switch {
				case refused && (live.ID != ids[to] || len(left) != 3 || len(b.forgotten) > 0 || said != nil):
					t.Errorf("%s %d, message to %d: refused (%v), %d runs are left, events of %v are gone, the message: %v", step, at, to, err, len(left), b.forgotten, said)
				case !refused && (err != nil || n != 3 || len(left) > 0 || said == nil):
					t.Errorf("%s %d, message to %d: deleted %d, %v; %d runs are left, the message: %v", step, at, to, n, err, len(left), said)
				}
				for _, id := range left {
					if err := d.say(id); err != nil && id != ids[to] {
						t.Errorf("%s %d, message to %d: after the refused deletion a run rejects a message: %v", step, at, to, err)
					}
				}
			}
		}
	}
}

// A run that was admitted to a tree but not created yet prevents the tree's deletion. If it has not been
// created a minute after the end of the tree, it never will be.
func TestAdmittedRunRefusesTheDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, "")
		child := root.Plus(1)
		if _, err := d.store.Admit(t.Context(), root, []state.RunID{child}, 9); err != nil {
			t.Fatal(err)
		}
		d.end(root, state.EndAbortedStreaming)
		c := retention.New(d.store, d.bus, retention.Config{})
		_, err := c.Delete(t.Context(), "default", root)
		if early, ok := errors.AsType[*retention.NotCreatedError](err); !ok || early.ID != child || !d.has(root) {
			t.Fatalf("Delete = %v", err)
		}
		if err := d.say(root); err != nil {
			t.Errorf("after the refused deletion: %v", err)
		}
		other := d.run("a", nil, "")
		late := other.Plus(1)
		if _, err := d.store.Admit(t.Context(), other, []state.RunID{late}, 9); err != nil {
			t.Fatal(err)
		}
		d.end(other, state.EndAbortedStreaming)
		time.Sleep(2 * time.Minute)
		if n, err := c.Delete(t.Context(), "default", other); n != 1 || err != nil {
			t.Fatalf("Delete = %d, %v", n, err)
		}
		s := state.State{ID: late, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, Parent: &state.Parent{RunID: other, CallID: "c", Depth: 1}}
		s, err = s.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
		if err == nil {
			_, err = d.store.Create(t.Context(), state.NewRun{State: s})
		}
		if !errors.Is(err, state.ErrDeleted) {
			t.Errorf("the child of a deleted run was created: %v", err)
		}
	})
}

// A child that no list has yet is found through the runs that the root has admitted.
func TestUnlistedRunOfATree(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	root := d.run("a", nil, "")
	child := d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, "")
	if _, err := d.store.Admit(t.Context(), root, []state.RunID{child}, 9); err != nil {
		t.Fatal(err)
	}
	d.end(root, state.EndAbortedWaiting)
	c := retention.New(blind{d.store}, d.bus, retention.Config{})
	if _, err := c.Delete(t.Context(), "default", root); !errors.As(err, new(*state.NotEndedError)) || !d.has(root) || !d.has(child) {
		t.Errorf("Delete = %v; the child is live", err)
	}
	d.end(child, state.EndCompleted)
	if n, err := c.Delete(t.Context(), "default", root); n != 2 || err != nil || d.has(child) {
		t.Errorf("Delete = %d, %v", n, err)
	}
}

// blind is a store whose lists lag behind.
type blind struct{ state.Store }

func (blind) List(context.Context, state.Filter) (state.RunPage, error) { return state.RunPage{}, nil }

// If a gateway dies anywhere in a deletion, another one completes it without a further request, or removes the
// seals.
func TestDeletionIsCompleted(t *testing.T) {
	for _, live := range []bool{false, true} {
		for at := range 8 {
			synctest.Test(t, func(t *testing.T) {
				d := newDeployment(t)
				root := d.run("a", nil, state.EndCompleted)
				children := []state.RunID{
					d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndCompleted),
					d.run("b", &state.Parent{RunID: root, CallID: "c2", Depth: 1}, state.EndCompleted),
				}
				dead := &dying{Store: d.store, left: at}
				ctx, cancel := context.WithCancel(t.Context())
				dead.die = cancel
				if live {
					dead.sealed = func() { _ = d.say(children[1]) }
				}
				_, err := retention.New(dead, d.bus, retention.Config{}).Delete(ctx, "default", root)
				if err == nil && dead.dead() {
					t.Fatalf("killed at %d, and the deletion returned", at)
				}
				ctx, cancel = context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					retention.New(d.store, d.bus, retention.Config{}).Run(ctx)
					close(done)
				}()
				time.Sleep(10 * time.Minute)
				cancel()
				<-done
				left := slices.DeleteFunc(append([]state.RunID{root}, children...), func(id state.RunID) bool { return !d.has(id) })
				if len(left) != 0 && len(left) != 3 {
					t.Errorf("killed at %d, %d of 3 runs are left", at, len(left))
				}
				for _, id := range left {
					if err := d.say(id); err != nil {
						t.Errorf("killed at %d, a remaining run rejects a message: %v", at, err)
					}
				}
				if open, err := d.store.Documents(t.Context(), state.DeletionDocument); err != nil || len(open) > 0 {
					t.Errorf("killed at %d, intents are left: %v, %v", at, open, err)
				}
			})
		}
	}
}

// A deletion that is refused because the deployment waits for a decision about an older copy of the store is carried out
// after the decision.
func TestDeletionDuringRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		root := d.run("a", nil, state.EndCompleted)
		waiting := &waits{Store: d.store}
		waiting.on.Store(true)
		c := retention.New(waiting, d.bus, retention.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			c.Run(ctx)
			close(done)
		}()
		if _, err := c.Delete(t.Context(), "default", root); !errors.Is(err, restore.ErrWaiting) {
			t.Errorf("the deletion returned %v, want ErrWaiting", err)
		}
		time.Sleep(10 * time.Minute)
		if !d.has(root) {
			t.Error("the run is deleted before the decision")
		}
		waiting.on.Store(false)
		time.Sleep(10 * time.Minute)
		if d.has(root) {
			t.Error("the run exists after the decision")
		}
		cancel()
		<-done
	})
}

// waits is the store of a deployment that waits for the decision while on.
type waits struct {
	state.Store

	on atomic.Bool
}

func (w *waits) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	if w.on.Load() {
		return nil, restore.ErrWaiting
	}
	return w.Store.Seal(ctx, id, token)
}

// dying is the store of a process that ends after some writes.
type dying struct {
	state.Store

	die    func()
	sealed func() // after the first seal; called once

	mu   sync.Mutex // a deletion works on several runs at once
	left int
}

var errDead = errors.New("killed")

func (d *dying) step() error {
	d.mu.Lock()
	d.left--
	d.mu.Unlock()
	if d.dead() {
		d.die()
		return errDead
	}
	return nil
}

func (d *dying) dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left < 0
}

func (d *dying) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	admitted, err := d.Store.Seal(ctx, id, token)
	d.mu.Lock()
	sealed := d.sealed
	d.sealed = nil
	d.mu.Unlock()
	if sealed != nil {
		sealed()
	}
	return admitted, err
}

func (d *dying) Unseal(ctx context.Context, id state.RunID, token string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Store.Unseal(ctx, id, token)
}

func (d *dying) Delete(ctx context.Context, id state.RunID) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Store.Delete(ctx, id)
}

func (d *dying) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	if d.dead() {
		return errDead
	}
	return d.Store.PutDocument(ctx, kind, name, data)
}

func (d *dying) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	if d.dead() {
		return errDead
	}
	return d.Store.DeleteDocument(ctx, kind, name)
}

// The backlog is the number of runs that a pass found and did not delete, and its age that of the oldest one.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		for range 5 {
			d.run("a", nil, state.EndCompleted)
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Hour)
		b := &between{Store: d.store, Intake: d.bus}
		c := retention.New(b, b, retention.Config{Keep: agent.Retention{Completed: agent.Period(10 * time.Minute)}})
		hold := make(chan struct{})
		b.seal = func(state.RunID) { <-hold }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		synctest.Wait()
		if s := c.Stats(); s.Backlog != 5 || s.Age != 55*time.Minute || s.Deleted != 0 {
			t.Errorf("during the pass: %+v", s)
		}
		close(hold)
		synctest.Wait()
		if s := c.Stats(); s != (retention.Stats{Deleted: 5}) {
			t.Errorf("after the pass: %+v", s)
		}
		cancel()
		<-done
	})
}
