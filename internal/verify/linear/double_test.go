package linear

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// bug is a way to implement a store incorrectly.
type bug string

const (
	none           bug = "none"
	lostUpdate     bug = "a signal is acknowledged and lost"
	doubleCommit   bug = "a repeated commit is applied again"
	noFence        bug = "a commit without the lease"
	staleRead      bug = "a read that is older than an acknowledged write"
	earlyTakeover  bug = "a lease is taken before its end"
	forgottenClaim bug = "a repeated claim counts again"
	twiceHeard     bug = "a repeated signal is heard again"
	tornCommit     bug = "a commit whose entries come later"
	deafAbort      bug = "an abort is acknowledged and lost"
)

var bugs = []bug{lostUpdate, doubleCommit, noFence, staleRead, earlyTakeover, forgottenClaim, twiceHeard, tornCommit, deafAbort}

var errNoReply = errors.New("connection reset by peer")

// double is a store of one run in memory, correct except for its bug. Replies get lost.
type double struct {
	state.Store // methods that the test does not call

	bug bug

	mu     sync.Mutex
	run    *record.Record
	log    []state.Entry
	before *record.Record // the previous version
	late   []state.Entry  // of a torn commit
}

// lose drops one reply in ten.
func lose[T any](v T, err error) (T, error) {
	if rand.IntN(10) == 0 {
		var zero T
		return zero, errNoReply
	}
	return v, err
}

// change applies fn to a copy, because a store swaps the whole record.
func (d *double) change(fn func(r *record.Record) error) error {
	if d.run == nil {
		return state.ErrNotFound
	}
	r := *d.run
	if err := fn(&r); err != nil {
		return err
	}
	d.before, d.run = d.run, &r
	return nil
}

func (d *double) lock() func() {
	d.mu.Lock()
	return d.mu.Unlock
}

func (d *double) Create(_ context.Context, n state.NewRun) (state.Created, error) {
	defer d.lock()()
	existing := d.run != nil
	if !existing {
		r := record.New(n.State, time.Now(), n.RedeliveryDelay)
		d.run, d.before, d.log = &r, &r, n.State.Log
	}
	st := d.run.Read()
	if _, err := lose(0, nil); err != nil {
		return state.Created{}, err
	}
	return state.Created{State: st, Existing: existing}, nil
}

func (d *double) Load(context.Context, state.RunID) (state.State, error) {
	defer d.lock()()
	if d.run == nil {
		return state.State{}, state.ErrNotFound
	}
	if d.bug == staleRead && rand.IntN(3) == 0 {
		return lose(d.before.Read(), nil)
	}
	return lose(d.run.Read(), nil)
}

func (d *double) LoadByKey(ctx context.Context, _, _, _ string) (state.State, error) {
	return d.Load(ctx, "")
}

func (d *double) Log(context.Context, state.RunID, int64, int) ([]state.Entry, error) {
	defer d.lock()()
	if d.run == nil {
		return nil, state.ErrNotFound
	}
	return lose(d.log, nil)
}

func (d *double) Claim(_ context.Context, q state.ClaimRequest) (*state.Claim, error) {
	defer d.lock()()
	if d.run == nil {
		return &state.Claim{Outcome: state.ClaimMissing}, nil
	}
	d.log, d.late = append(d.log[:len(d.log):len(d.log)], d.late...), nil
	c := new(state.Claim)
	err := d.change(func(r *record.Record) error {
		now := time.Now()
		if d.bug == earlyTakeover {
			r.LeaseEnd = state.At(now)
		}
		if d.bug == forgottenClaim && r.Token == q.Token {
			r.Attempts++
		}
		if c = r.Claim(q, now); c.State != nil {
			c.State.Log = d.log
		}
		return nil
	})
	return lose(c, err)
}

func (d *double) Record(_ context.Context, l state.Lease, j state.Record) (abort *state.Abort, err error) {
	defer d.lock()()
	err = d.change(func(r *record.Record) error {
		entries, err := r.Record(l, j)
		d.log = append(d.log[:len(d.log):len(d.log)], entries...)
		abort = r.Abort
		return err
	})
	return lose(abort, err)
}

func (d *double) Commit(_ context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	defer d.lock()()
	var done state.Committed
	err := d.change(func(r *record.Record) error {
		switch {
		case d.bug == doubleCommit && r.CommitID == c.ID:
			c.From = min(c.From, c.State.LogLen())
			d.log = append(d.log[:len(d.log):len(d.log)], c.State.Log[c.From:]...)
			r.LogLen = int64(len(d.log))
		case d.bug == noFence && r.CommitID != c.ID:
			r.Token, r.Version, r.Status, r.LogLen = l.Token, l.Version, state.Running, c.From
			d.log = d.log[:min(c.From, int64(len(d.log)))]
		}
		entries, answer, err := r.Commit(l, c, time.Now())
		done = answer
		if d.bug == tornCommit {
			d.late = entries
			return err
		}
		d.log = append(d.log[:len(d.log):len(d.log)], entries...)
		return err
	})
	return lose(done, err)
}

func (d *double) Release(_ context.Context, l state.Lease, delay time.Duration) error {
	defer d.lock()()
	_, err := lose(0, d.change(func(r *record.Record) error { return r.Release(l, time.Now(), delay) }))
	return err
}

func (d *double) Signal(_ context.Context, id state.RunID, s state.Signal, delay time.Duration) (state.Wake, error) {
	defer d.lock()()
	var w state.Wake
	err := d.change(func(r *record.Record) error {
		if d.bug == twiceHeard {
			r.Seen = nil
		}
		inbox := r.Inbox
		var err error
		w, err = r.Signal(id, s, time.Now(), delay)
		if d.bug == lostUpdate && rand.IntN(3) == 0 {
			r.Inbox = inbox
		}
		return err
	})
	return lose(w, err)
}

func (d *double) Abort(_ context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	defer d.lock()()
	var w state.Wake
	err := d.change(func(r *record.Record) error {
		before := r.Abort
		var err error
		w, err = r.RequestAbort(id, abort, time.Now(), delay)
		if d.bug == deafAbort {
			r.Abort = before
		}
		return err
	})
	return lose(w, err)
}
