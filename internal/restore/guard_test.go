package restore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// calls is a store and a bus that record their calls.
type calls struct {
	state.Store
	bus.Bus

	made    []string
	behind  bool // the store refuses claims
	backlog state.Backlog
	next    func() bus.TurnDelivery
}

// Ready implements both.
func (c *calls) Ready(context.Context) error { return nil }

func (c *calls) note(what string) { c.made = append(c.made, what) }

func (c *calls) Claim(context.Context, state.ClaimRequest) (*state.Claim, error) {
	c.note("claim")
	if c.behind {
		return &state.Claim{Outcome: state.ClaimBehind}, nil
	}
	return &state.Claim{Outcome: state.Claimed}, nil
}

func (c *calls) Record(context.Context, state.Lease, state.Record) (*state.Abort, error) {
	c.note("record")
	return nil, nil //nolint:nilnil // no abort is pending
}

func (c *calls) Commit(context.Context, state.Lease, state.Commit) (state.Committed, error) {
	c.note("commit")
	return state.Committed{}, nil
}

func (c *calls) Sweep(_ context.Context, _ int, _ time.Duration, backlog state.Backlog) ([]state.Due, error) {
	c.note("sweep")
	c.backlog = backlog
	return nil, nil
}

func (c *calls) Evict(context.Context, string, int, time.Duration) ([]state.Due, error) {
	c.note("evict")
	return nil, nil
}

func (c *calls) Create(context.Context, state.NewRun) (state.Created, error) {
	c.note("create")
	return state.Created{}, nil
}

func (c *calls) Seal(context.Context, state.RunID, string) ([]state.RunID, error) {
	c.note("seal")
	return nil, nil
}

func (c *calls) StickyTurns(ctx context.Context, _ string) (bus.TurnQueue, error) {
	return c.Turns(ctx, bus.QueueKey{})
}

func (c *calls) Turns(context.Context, bus.QueueKey) (bus.TurnQueue, error) {
	return &turns{calls: c}, nil
}

type turns struct {
	bus.TurnQueue

	calls *calls
}

func (q *turns) SetPrefetch(n int) {
	if n == 0 {
		q.calls.note("no prefetch")
	}
}

func (q *turns) Next(context.Context) (bus.TurnDelivery, error) { return q.calls.next(), nil }

type delivered struct {
	bus.TurnDelivery

	calls *calls
	delay time.Duration
}

func (d *delivered) Nak(delay time.Duration) error {
	d.calls.note("nak")
	d.delay = delay
	return nil
}

// behind makes a process wait for a decision; the function that it returns ends the wait.
func (d *deployment) behind(w *restore.Watch) (resume func()) {
	d.t.Helper()
	newest := d.store.marks
	d.store.marks = [2]int64{}
	d.look(w, 2)
	d.waits(w, true)
	return func() {
		d.store.marks = newest
		d.look(w, 2)
		d.waits(w, false)
	}
}

// While a deployment waits, a process starts and ends no turn, but keeps the results of calls that were made, and
// takes new runs. Afterwards everything reaches the store again.
func TestStoreDuringAWait(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	lost := state.State{Transition: state.Transition{Reason: state.EndLost}}
	c := &calls{}
	d := newDeployment(t)
	w := d.process()
	s := w.Store(c)
	d.look(w, 20)
	steps := map[string]func() error{
		"commit": func() error { _, err := s.Commit(ctx, state.Lease{}, state.Commit{}); return err },
		"seal":   func() error { _, err := s.Seal(ctx, "r", "t"); return err },
		"lost":   func() error { _, err := s.Create(ctx, state.NewRun{State: lost}); return err },
		"entries": func() error {
			_, err := s.Record(ctx, state.Lease{}, state.Record{Entries: make([]state.Entry, 1)})
			return err
		},
		"starts": func() error {
			_, err := s.Record(ctx, state.Lease{}, state.Record{Started: make([]string, 1)})
			return err
		},
		"awaits": func() error {
			_, err := s.Record(ctx, state.Lease{}, state.Record{Awaits: make([]string, 1)})
			return err
		},
	}
	resume := d.behind(w)
	for what, step := range steps {
		if err := step(); !errors.Is(err, restore.ErrWaiting) {
			t.Errorf("%s during the wait: %v", what, err)
		}
	}
	claim, err := s.Claim(ctx, state.ClaimRequest{})
	if err != nil || claim.Outcome != state.ClaimBehind {
		t.Errorf("a claim during the wait: %v, %v", claim.Outcome, err)
	}
	_, swept := s.Sweep(ctx, 1, time.Second, nil)
	_, evicted := s.Evict(ctx, "w", 1, time.Second)
	if err := errors.Join(swept, evicted); err != nil || len(c.made) > 0 {
		t.Errorf("the store was called during the wait: %v, %v", c.made, err)
	}
	_, recorded := s.Record(ctx, state.Lease{}, state.Record{})
	_, created := s.Create(ctx, state.NewRun{})
	if err := errors.Join(recorded, created); err != nil || !slices.Equal(c.made, []string{"record", "create"}) {
		t.Errorf("the results of a call and a new run: %v, calls of the store: %v", err, c.made)
	}
	resume()
	c.made = nil
	for what, step := range steps {
		if err := step(); err != nil {
			t.Errorf("%s after the wait: %v", what, err)
		}
	}
	if claim, err := s.Claim(ctx, state.ClaimRequest{}); err != nil || claim.Outcome != state.Claimed {
		t.Errorf("a claim after the wait: %v, %v", claim.Outcome, err)
	}
}

// The messages of the backlog are of turns that the store has lost: for a while after a wait, sweeps publish the turns
// of all runs that are due.
func TestSweepAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{}
		d := newDeployment(t)
		w := d.process()
		s := w.Store(c)
		d.look(w, 20)
		sweep := func() state.Backlog {
			t.Helper()
			if _, err := s.Sweep(t.Context(), 1, time.Second, state.Backlog{state.Normal: time.Now()}); err != nil {
				t.Fatal(err)
			}
			return c.backlog
		}
		if len(sweep()) == 0 {
			t.Error("a sweep before the wait ignores the backlog")
		}
		d.behind(w)()
		if backlog := sweep(); len(backlog) > 0 {
			t.Errorf("a sweep after the wait trusts the backlog %v", backlog)
		}
		time.Sleep(time.Minute) // the bubble's clock
		if len(sweep()) == 0 {
			t.Error("a sweep long after the wait ignores the backlog")
		}
	})
}

// A claim that the store refuses makes the process compare the marks at once, although another process has found the
// store in order.
func TestRefusedClaimIsExamined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{behind: true}
		d := newDeployment(t)
		w, other := d.process(), d.process()
		d.look(w, 20)
		d.look(other, 3)
		d.look(w, 2)
		d.look(other, 1) // the mark on the bus has moved since w looked
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { w.Run(ctx); close(ran) }()
		d.store.marks = [2]int64{}
		if claim, err := w.Store(c).Claim(t.Context(), state.ClaimRequest{}); err != nil || claim.Outcome != state.ClaimBehind {
			t.Errorf("claim: %v, %v", claim.Outcome, err)
		}
		synctest.Wait()
		d.waits(w, true)
		cancel()
		<-ran
	})
}

// A turn that arrives as a wait begins goes back to the queue, which keeps none for later; Next returns the first turn
// after the wait.
func TestQueueDuringAWait(t *testing.T) {
	for name, open := range map[string]func(b bus.Bus) (bus.TurnQueue, error){
		"lane":   func(b bus.Bus) (bus.TurnQueue, error) { return b.Turns(t.Context(), bus.QueueKey{}) },
		"sticky": func(b bus.Bus) (bus.TurnQueue, error) { return b.StickyTurns(t.Context(), "w1") },
	} {
		t.Run(name, func(t *testing.T) { queueDuringAWait(t, open) })
	}
}

func queueDuringAWait(t *testing.T, open func(b bus.Bus) (bus.TurnQueue, error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &calls{}
		d := newDeployment(t)
		w := d.process()
		d.look(w, 20)
		var resume func()
		first, second := &delivered{calls: c}, &delivered{calls: c}
		c.next = func() bus.TurnDelivery {
			if resume == nil {
				resume = d.behind(w)
				return first
			}
			return second
		}
		q, err := open(w.Bus(c))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan bus.TurnDelivery, 1)
		go func() {
			next, err := q.Next(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		synctest.Wait()
		if len(got) > 0 || first.delay <= 0 || !slices.Equal(c.made, []string{"nak", "no prefetch"}) {
			t.Errorf("during the wait: %d turns, calls of the bus: %v, redelivered after %s", len(got), c.made, first.delay)
		}
		resume()
		if next := <-got; next != second {
			t.Errorf("after the wait Next returned %+v", next)
		}
	})
}
