package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Load is the load on a run.
type Load struct {
	Workers, People, Readers int
	Turns                    int           // the number that each worker tries to take
	Lease                    time.Duration // some workers sleep longer
	Timeout                  time.Duration // of one operation
	Tries                    int           // of an operation without an answer
	Seed                     uint64
}

// client is one of the clients of a run.
type client struct {
	h     *History
	n     int
	store state.Store
	load  Load
	id    state.RunID
	rng   *rand.Rand
}

// Work makes many clients work on a new run at once, over these stores in turn, and returns the run's id when
// all are done. As the protocol requires, each client repeats operations without an answer, with the same ids.
func Work(ctx context.Context, h *History, id state.RunID, stores []state.Store, load Load) {
	var all sync.WaitGroup
	n := 0
	start := func(work func(c *client)) {
		c := &client{h: h, n: n, store: stores[n%len(stores)], load: load, id: id, rng: rand.New(rand.NewPCG(load.Seed, uint64(n)))} //nolint:gosec // not a secret
		n++
		all.Go(func() { work(c) })
	}
	first, err := newRun(id)
	if err != nil {
		panic(err) // a move from nothing is legal
	}
	created := state.NewRun{State: first, Key: "key " + string(id), Fingerprint: "f", RedeliveryDelay: time.Second}
	for range 2 {
		start(func(c *client) { c.do(ctx, Call{Create: &created}) })
	}
	for range load.Workers {
		start(func(c *client) { c.work(ctx) })
	}
	for range load.People {
		start(func(c *client) { c.talk(ctx) })
	}
	for range load.Readers {
		start(func(c *client) { c.read(ctx, &created) })
	}
	all.Wait()
}

func newRun(id state.RunID) (state.State, error) {
	at := state.At(time.Now())
	m := state.UserText("go")
	m.ID, m.At = "msg_1_0", at
	s := state.State{Format: state.Format, ID: id, Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal, Limits: state.Limits{MaxTurns: 1000}}
	return s.Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{m}})
}

// do repeats a call until there is an answer.
func (c *client) do(ctx context.Context, call Call) Answer {
	call.Run = c.id
	var a Answer
	for range max(1, c.load.Tries) {
		once, cancel := context.WithTimeout(ctx, c.load.Timeout)
		a = c.h.Do(once, c.n, c.store, call)
		cancel()
		if !a.Unknown || ctx.Err() != nil {
			return a
		}
		c.pause(ctx, 40*time.Millisecond)
	}
	return a
}

func (c *client) chance(oneIn int) bool { return c.rng.IntN(oneIn) == 0 }

func (c *client) pause(ctx context.Context, most time.Duration) {
	select {
	case <-time.After(time.Duration(c.rng.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// work takes turns.
func (c *client) work(ctx context.Context) {
	for i := range c.load.Turns {
		c.pause(ctx, 4*time.Millisecond)
		seen := c.do(ctx, Call{Load: true})
		version := max(1, seen.State.Version)
		if c.chance(10) {
			version += int64(c.rng.IntN(3) - 1) // a message that was late, or early
		}
		claim := c.do(ctx, Call{Claim: &state.ClaimRequest{
			Run: c.id, Version: version, Token: fmt.Sprintf("t%d.%d", c.n, i), Worker: fmt.Sprintf("w%d", c.n), Lease: c.load.Lease, RedeliveryDelay: time.Second,
		}}).Claim
		if claim.Outcome == state.Claimed {
			c.turn(ctx, claim)
		}
	}
}

// turn works on a claimed run. A slow worker may have lost it.
func (c *client) turn(ctx context.Context, claim state.Claim) {
	s := *claim.State
	if c.chance(3) {
		j := state.Record{From: s.LogLen(), Started: []string{"c" + claim.Lease.Token}, Entries: []state.Entry{{
			Seq: s.LogLen() + 1, Type: state.EntryProgress, At: state.At(time.Now()), Target: claim.Lease.Token,
		}}}
		if a := c.do(ctx, Call{Record: &j, Lease: claim.Lease}); a.Unknown || a.Err != nil {
			return // as a worker drops its turn
		}
		s.Log = append(s.Log[:len(s.Log):len(s.Log)], j.Entries...)
	}
	if c.chance(6) {
		c.pause(ctx, 2*c.load.Lease)
	}
	if c.chance(8) {
		c.do(ctx, Call{Release: true, Lease: claim.Lease})
		return
	}
	next, err := c.move(s, claim)
	if err != nil {
		panic(err) // each reason below fits where it is used
	}
	commit := state.Commit{ID: claim.Lease.Token, State: &next, From: s.LogLen(), Consumed: len(claim.Signals), RedeliveryDelay: time.Second}
	c.do(ctx, Call{Commit: &commit, Lease: claim.Lease})
	if c.chance(4) {
		c.do(ctx, Call{Commit: &commit, Lease: claim.Lease}) // as if there had been no answer
	}
}

func (c *client) move(s state.State, claim state.Claim) (state.State, error) {
	e := state.Entry{At: state.At(time.Now()), Detail: claim.Lease.Token}
	switch {
	case s.Status.Terminal():
		return s.Move(state.UserMessage, e)
	case claim.Abort != nil:
		return s.Move(state.EndAbortedQueued, e)
	case len(claim.Signals) == 0 && c.chance(4):
		e.Waiting = &state.Wait{Reason: state.WaitingHumanInput, Since: e.At, Calls: []state.WaitCall{}, Question: "well?"}
		return s.Move(state.WaitingHumanInput, e)
	case c.chance(12):
		return s.Move(state.EndCompleted, e)
	default:
		return s.Move(state.NextTurn, e)
	}
}

// talk sends messages and answers to the run, and sometimes aborts it.
func (c *client) talk(ctx context.Context) {
	for i := range c.load.Turns {
		c.pause(ctx, 15*time.Millisecond)
		sig := state.Signal{ID: fmt.Sprintf("s%d.%d", c.n, i), At: state.At(time.Now())}
		switch c.rng.IntN(8) {
		case 0:
			reason := sig.ID
			c.do(ctx, Call{Abort: &reason})
			continue
		case 1, 2, 3:
			m := state.UserText(sig.ID)
			m.ID = sig.ID
			sig.Message = &m
		default:
			answer := sig.ID
			sig.Answer = &answer
		}
		c.do(ctx, Call{Signal: &sig})
		if c.chance(4) {
			c.do(ctx, Call{Signal: &sig})
		}
	}
}

func (c *client) read(ctx context.Context, created *state.NewRun) {
	for range c.load.Turns {
		c.pause(ctx, 10*time.Millisecond)
		c.do(ctx, Call{Load: true})
		c.do(ctx, Call{ByKey: created})
		c.do(ctx, Call{Log: true})
	}
}
