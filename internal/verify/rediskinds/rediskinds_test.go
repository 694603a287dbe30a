package rediskinds

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// start starts a Redis that ends with the test.
func start(t *testing.T, kind func(dir string) (*rig.Redis, error)) *rig.Redis {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	dir := t.TempDir()
	r, err := kind(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = group.Wait() // the exit errors do not matter
		r.Close()
	})
	if err := r.Run(ctx, &group, dir); err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t *testing.T, r *rig.Redis, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	cfg.URL = r.URL
	if cfg.Prefix == "" {
		cfg.Prefix = "test-" + ulid.Make().String()
	}
	s, err := redisstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestRedisKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name    string
		new     func(dir string) (*rig.Redis, error)
		confirm string
	}{
		{"cluster", rig.NewRedisCluster, ""},
		{"sentinel", rig.NewSentinels, "replicas:1"},
		{"valkey", rig.NewValkey, "aof"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, kind.new)
			cfg := redisstore.Config{Confirm: kind.confirm}
			fresh := func(t *testing.T) state.Store { t.Helper(); return open(t, r, cfg) }
			if err := check.Err(open(t, r, cfg).Check(t.Context())); err != nil {
				t.Error(err)
			}
			statetest.Exercise(t, fresh)
			statetest.Heartbeats(t, fresh(t))
			statetest.Agree(t, fresh, func(*testing.T) state.Store { return memstore.New(memstore.Config{}) })
		})
	}
}

func newRun(t *testing.T) state.State {
	t.Helper()
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal, Limits: state.Limits{MaxTurns: 9}}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// turn executes the first turn of a run.
func turn(ctx context.Context, s *redisstore.Store, run state.State) error {
	c, err := s.Claim(ctx, state.ClaimRequest{Run: run.ID, Version: 1, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		return errors.Join(err, fmt.Errorf("claim: %s", c.Outcome))
	}
	next, err := c.State.Move(state.NextTurn, state.Entry{At: state.At(time.Now())})
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, c.Lease, state.Commit{ID: "t", State: &next, From: c.Base, RedeliveryDelay: time.Hour})
	return err
}

// When Sentinels promote the replica while runs are created, no acknowledged write is lost (I1).
func TestRedisKindsFailover(t *testing.T) {
	t.Parallel()
	r := start(t, rig.NewSentinels)
	s := open(t, r, redisstore.Config{Prefix: "p", Confirm: "replicas:1"})
	first, err := r.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged sync.Map // of runs: the version
	var count, after atomic.Int64
	var failed atomic.Bool
	busy, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := make(chan struct{})
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for busy.Err() == nil {
				run := newRun(t)
				if _, err := s.Create(busy, state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
					continue
				}
				acknowledged.Store(run.ID, int64(1))
				if turn(busy, s, run) == nil {
					acknowledged.Store(run.ID, int64(2))
					if count.Add(1) == 200 {
						close(before)
					}
					if failed.Load() && after.Add(1) == 200 {
						cancel()
					}
				}
			}
		})
	}
	<-before
	first.Kill(time.Hour) // a primary that is back before the Sentinels agree stays the primary
	if err := rig.Until(t.Context(), time.Minute, "the replica has taken over", func(ctx context.Context) error {
		now, err := r.Primary(ctx)
		if err == nil && now == first {
			err = errors.New("it is the same")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	first.Revive()
	failed.Store(true)
	<-busy.Done() // continue when the former primary is a replica
	users.Wait()
	acknowledged.Range(func(id, version any) bool {
		st, err := s.Load(t.Context(), id.(state.RunID))
		if err != nil || st.Version < version.(int64) {
			t.Errorf("run %s: version %d, %v; version %d was acknowledged", id, st.Version, err, version)
		}
		return true
	})
}

// If a write was repeated on another connection, where it wrote nothing, that connection does not confirm it
// (I1).
func TestRedisKindsRepeated(t *testing.T) {
	t.Parallel()
	r := start(t, rig.NewValkeyPair)
	cfg := redisstore.Config{Prefix: "p", Confirm: "replicas:1", ConfirmWithin: 20 * time.Millisecond}
	run := newRun(t)
	r.Servers[1].Signal(syscall.SIGSTOP)
	defer r.Servers[1].Signal(syscall.SIGCONT)
	for range 3 {
		_, err := open(t, r, cfg).Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour})
		if _, ok := errors.AsType[*state.UnconfirmedError](err); !ok {
			t.Errorf("Create = %v, want an error that no replica has it", err)
		}
	}
	r.Servers[1].Signal(syscall.SIGCONT)
	cfg.ConfirmWithin = 0
	if err := rig.Until(t.Context(), time.Minute, "the replica has confirmed", func(ctx context.Context) error {
		_, err := open(t, r, cfg).Create(ctx, state.NewRun{State: run, RedeliveryDelay: time.Hour})
		return err
	}); err != nil {
		t.Error(err)
	}
}
