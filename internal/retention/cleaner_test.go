package retention_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

type deployment struct {
	t     *testing.T
	store *memstore.Store
	bus   *membus.Bus
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	return &deployment{t, memstore.New(memstore.Config{}), membus.New()}
}

// run stores a run that is created now, and ends it with end unless that is "".
func (d *deployment) run(name string, parent *state.Parent, end state.Reason) state.RunID {
	d.t.Helper()
	return d.runOf(state.DefaultTenant, name, parent, end)
}

func (d *deployment) runOf(tenant, name string, parent *state.Parent, end state.Reason) state.RunID {
	d.t.Helper()
	now := state.At(time.Now())
	s := state.State{
		ID: state.RunID(state.RunPrefix + ulid.MustNew(ulid.Timestamp(now.Time), ulid.DefaultEntropy()).String()), Agent: name, AgentVersion: 1, Loop: "react", Tenant: tenant,
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, Parent: parent,
	}
	s, err := s.Move(state.Submitted, state.Entry{At: now, Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.store.Create(d.t.Context(), state.NewRun{State: s, RedeliveryDelay: time.Minute}); err != nil {
		d.t.Fatal(err)
	}
	if end != "" {
		d.end(s.ID, end)
	}
	return s.ID
}

func (d *deployment) end(id state.RunID, r state.Reason) {
	d.t.Helper()
	c, err := d.store.Claim(d.t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: "t" + string(id), Worker: "w", Lease: time.Minute})
	if err != nil || c.Outcome != state.Claimed {
		d.t.Fatal(c.Outcome, err)
	}
	s, err := c.State.Move(r, state.Entry{At: state.At(time.Now())})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.store.Commit(d.t.Context(), c.Lease, state.Commit{ID: "c" + string(id), State: &s, From: c.State.LogLen()}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployment) has(id state.RunID) bool {
	d.t.Helper()
	_, err := d.store.Load(d.t.Context(), id)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		d.t.Fatal(err)
	}
	return err == nil
}

// A tree is deleted as a whole, or not at all.
func TestDeleteTree(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	c := retention.New(d.store, d.bus, retention.Config{})
	root := d.run("a", nil, state.EndCompleted)
	child := d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndCompleted)
	grandchild := d.run("b", &state.Parent{RunID: child, CallID: "c1", Depth: 2}, "")
	other := d.run("a", nil, state.EndCompleted)

	var live *state.NotEndedError
	if n, err := c.Delete(t.Context(), "default", root); n != 0 || !errors.As(err, &live) || live.ID != grandchild {
		t.Fatalf("Delete = %d, %v; want an error with the run that has not ended", n, err)
	}
	if _, err := c.Delete(t.Context(), "default", child); !errors.Is(err, retention.ErrChild) {
		t.Errorf("Delete of a child run = %v", err)
	}
	for _, id := range []state.RunID{root, child, grandchild} {
		if !d.has(id) {
			t.Errorf("run %s is gone", id)
		}
	}
	d.end(grandchild, state.EndCompleted)
	if n, err := c.Delete(t.Context(), "default", root); n != 3 || err != nil {
		t.Errorf("Delete = %d, %v", n, err)
	}
	for _, id := range []state.RunID{root, child, grandchild} {
		if d.has(id) {
			t.Errorf("run %s exists", id)
		}
	}
	if !d.has(other) {
		t.Error("another run is gone")
	}
	if _, err := c.Delete(t.Context(), "default", root); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Delete again = %v", err)
	}
}

// Watchers are notified of each deleted run of a tree, and the tenant's last deletion is recorded. A refused
// deletion has neither effect.
func TestDeletionsAreTold(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	c := retention.New(d.store, d.bus, retention.Config{})
	told := map[state.RunID]string{}
	stop, err := d.bus.WatchDeleted(t.Context(), func(tenant string, run state.RunID) { told[run] = tenant })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	live := d.run("a", nil, "")
	if _, err := c.Delete(t.Context(), "default", live); err == nil {
		t.Error("a run in flight was deleted")
	}
	if at, err := retention.LastDeletion(t.Context(), d.store, "default"); !at.IsZero() || err != nil || len(told) > 0 {
		t.Errorf("nothing was deleted: %v, %v, notified of %v", at, err, told)
	}
	began := time.Now().Add(-retention.NotedEvery)
	root := d.run("a", nil, state.EndCompleted)
	child := d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndCompleted)
	if _, err := c.Delete(t.Context(), "default", root); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[root] != "default" || told[child] != "default" {
		t.Errorf("notified of %v, want %s and %s", told, root, child)
	}
	if at, err := retention.LastDeletion(t.Context(), d.store, "default"); !at.After(began) || err != nil {
		t.Errorf("the last deletion was at %v, %v", at, err)
	}
	if at, err := retention.LastDeletion(t.Context(), d.store, "other"); !at.IsZero() || err != nil {
		t.Errorf("another tenant's last deletion was at %v, %v", at, err)
	}
}

// crash is a bus whose process ends at one of its calls.
type crash struct {
	bus.Intake

	left atomic.Int64
}

func (c *crash) PurgeRun(ctx context.Context, tenant string, id state.RunID, letters bool) error {
	if c.left.Add(-1) < 0 {
		return errors.New("killed")
	}
	return c.Intake.PurgeRun(ctx, tenant, id, letters)
}

// A deletion that was interrupted at any point is continued by the next.
func TestInterruptedDelete(t *testing.T) {
	t.Parallel()
	for at := range 3 {
		d := newDeployment(t)
		root := d.run("a", nil, state.EndCompleted)
		ids := []state.RunID{root, d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndModelError), d.run("b", &state.Parent{RunID: root, CallID: "c2", Depth: 1}, state.EndCompleted)}
		killed := &crash{Intake: d.bus}
		killed.left.Store(int64(at))
		if _, err := retention.New(d.store, killed, retention.Config{}).Delete(t.Context(), "default", root); err == nil {
			t.Fatal("nothing was interrupted")
		}
		if !d.has(root) {
			t.Errorf("killed at %d, the root was deleted before its descendants", at)
		}
		if _, err := retention.New(d.store, d.bus, retention.Config{}).Delete(t.Context(), "default", root); err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if d.has(id) {
				t.Errorf("killed at %d, run %s is never deleted", at, id)
			}
		}
	}
}

// A deployment with a retention of a minute has the runs of the last minute, whatever its load. An agent may
// have a shorter retention than the deployment, and runs in flight are kept.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		def, err := json.Marshal(agent.Definition{Name: "brief", Retention: agent.Retention{Completed: agent.Period(time.Minute)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.store.PutAgent(t.Context(), state.DefaultTenant, "brief", def, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c := retention.New(d.store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(10 * time.Minute)}, Tenant: "default"})
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()

		going, failed := d.run("brief", nil, ""), d.run("brief", nil, state.EndModelError)
		var brief, long []state.RunID
		for range 120 { // ten of its periods
			brief = append(brief, d.run("brief", nil, state.EndCompleted))
			long = append(long, d.run("other", nil, state.EndAbortedQueued))
			time.Sleep(5 * time.Second)
		}
		count := func(ids []state.RunID) (n int) {
			for _, id := range ids {
				if d.has(id) {
					n++
				}
			}
			return n
		}
		if n := count(brief); n < 11 || n > 15 {
			t.Errorf("%d runs of the agent with a retention of a minute exist, one was created every five seconds", n)
		}
		if n := count(long); n != 120 {
			t.Errorf("%d of 120 runs of the other agent exist", n)
		}
		if !d.has(going) || !d.has(failed) {
			t.Error("a run in flight, or one of a kind that is kept forever, is gone")
		}
		time.Sleep(12 * time.Minute)
		if n := count(long) + count(brief); n != 0 {
			t.Errorf("%d runs exist after all periods", n)
		}
	})
}

// Retention counts from the end of a run: a run that took longer than its retention is kept for all of it after
// the end.
func TestPeriodCountsFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		c := retention.New(d.store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(10 * time.Minute), Failed: agent.Period(30 * time.Minute)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		ends := []state.Reason{state.EndCompleted, state.EndModelError, state.EndAbortedQueued}
		var runs []state.RunID
		for range ends {
			runs = append(runs, d.run("long", nil, ""))
		}
		time.Sleep(time.Hour)
		for i, end := range ends {
			d.end(runs[i], end)
		}
		ended := time.Now()
		for _, look := range []struct {
			after time.Duration
			has   []bool
		}{
			{9 * time.Minute, []bool{true, true, true}},
			{12 * time.Minute, []bool{false, true, false}},
			{29 * time.Minute, []bool{false, true, false}},
			{34 * time.Minute, []bool{false, false, false}},
		} {
			time.Sleep(time.Until(ended.Add(look.after)))
			for i, end := range ends {
				if got := d.has(runs[i]); got != look.has[i] {
					t.Errorf("%s after its end the store has the run that ended as %s: %t, want %t", look.after, end, got, look.has[i])
				}
			}
		}
	})
}

// lists counts the calls of List.
type lists struct {
	state.Store

	n atomic.Int64
}

func (l *lists) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	l.n.Add(1)
	return l.Store.List(ctx, f)
}

// Runs that are deleted together are listed together: a page of runs, and each level of their descendants.
func TestListsOfAPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		const runs = 600
		for n := range runs {
			id := d.run("a", nil, state.EndCompleted)
			for i := range n % 100 / 98 * 3 {
				child := d.run("b", &state.Parent{RunID: id, CallID: string(rune('a' + i)), Depth: 1}, state.EndCompleted)
				d.run("c", &state.Parent{RunID: child, CallID: "c", Depth: 2}, state.EndCompleted)
			}
		}
		time.Sleep(time.Hour)
		store := &lists{Store: d.store}
		c := retention.New(store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(time.Minute)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		time.Sleep(2 * time.Second) // the pass has ended, and no other has begun
		cancel()
		<-done
		left, err := d.store.List(t.Context(), state.Filter{})
		if err != nil || len(left.Runs) != 0 {
			t.Errorf("%d runs are left, %v", len(left.Runs), err)
		}
		if n := store.n.Load(); n > runs/20 {
			t.Errorf("%d lists to delete %d runs", n, runs)
		}
	})
}

// A run is deleted although all runs of the page before it are kept: they are as old, and have just ended.
func TestPassReadsOnAfterKeptRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		old := d.run("a", nil, state.EndCompleted)
		var kept []state.RunID
		for range 250 {
			kept = append(kept, d.run("a", nil, ""))
		}
		time.Sleep(time.Hour)
		for _, id := range kept {
			d.end(id, state.EndCompleted)
		}
		c := retention.New(d.store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(time.Minute)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		time.Sleep(2 * time.Second) // the pass has ended, and no other has begun
		cancel()
		<-done
		if d.has(old) {
			t.Error("the run that ended an hour ago is there")
		}
		if left, err := d.store.List(t.Context(), state.Filter{Limit: 1000}); err != nil || len(left.Runs) != len(kept) {
			t.Errorf("%d runs are left, %v; want the %d that have just ended", len(left.Runs), err, len(kept))
		}
	})
}

// picky is a store and a bus that cannot delete some runs, each for a different reason.
type picky struct {
	state.Store
	bus.Intake

	newer, kept, below, poisoned state.RunID
	unbounded                    atomic.Int64 // lists that could have any number of bytes
}

var errPicky = errors.New("this run cannot be processed")

func (p *picky) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if id == p.newer {
		return state.State{}, state.ErrFormat
	}
	return p.Store.Load(ctx, id)
}

func (p *picky) Delete(ctx context.Context, id state.RunID) error {
	if id == p.kept {
		return errPicky
	}
	return p.Store.Delete(ctx, id)
}

func (p *picky) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	if f.Bytes == 0 {
		p.unbounded.Add(1)
	}
	if slices.Contains(f.Parents, p.below) {
		return state.RunPage{}, errPicky
	}
	return p.Store.List(ctx, f)
}

func (p *picky) PurgeRun(ctx context.Context, tenant string, id state.RunID, letters bool) error {
	if id == p.poisoned {
		return errPicky
	}
	return p.Intake.PurgeRun(ctx, tenant, id, letters)
}

// A run that cannot be deleted, for any reason, does not block others, and is named in the log.
func TestFailedDeletionsKeepNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		if err := d.store.PutDocument(t.Context(), state.TenantDocument, "zoo", json.RawMessage(`{"name":"zoo"}`)); err != nil {
			t.Fatal(err)
		}
		if err := d.store.PutDocument(t.Context(), state.DeletedTenantDocument, "deleted", json.RawMessage(`{}`)); err != nil {
			t.Fatal(err)
		}
		ids := []state.RunID{d.runOf("zoo", "a", nil, state.EndCompleted), d.runOf("deleted", "a", nil, state.EndCompleted)}
		above := d.run("a", nil, "")
		for range 8 {
			ids = append(ids, d.run("a", nil, state.EndCompleted))
		}
		child := d.run("a", &state.Parent{RunID: above, CallID: "c1", Depth: 1}, state.EndCompleted)
		p := &picky{Store: d.store, Intake: d.bus, newer: above, kept: ids[8], below: ids[6], poisoned: ids[4]}
		time.Sleep(time.Hour)
		var log bytes.Buffer
		c := retention.New(p, p, retention.Config{Keep: agent.Retention{Completed: agent.Period(time.Minute)}, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		synctest.Wait() // the pass has ended
		cancel()
		<-done
		for i, id := range ids {
			bad := slices.Contains([]state.RunID{p.kept, p.below, p.poisoned}, id)
			if d.has(id) != bad {
				t.Errorf("run %d exists: %v", i, !bad)
			}
			if bad && !strings.Contains(log.String(), string(id)) {
				t.Errorf("the log does not name run %d: %s", i, log.String())
			}
		}
		if !d.has(child) {
			t.Error("the child of a run of a newer build is gone")
		}
		if !strings.Contains(log.String(), `"tenant":"default"`) || p.unbounded.Load() > 0 {
			t.Errorf("%d lists of any size; log %s", p.unbounded.Load(), log.String())
		}
	})
}
