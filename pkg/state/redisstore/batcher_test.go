package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func claimOf(run state.RunID, token string) state.ClaimRequest {
	return state.ClaimRequest{Run: run, Version: 1, Token: token, Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}
}

// I1: calls that are batched are each answered for itself, also by a server that
// has forgotten the scripts meanwhile.
func TestBatcher(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s := open(t, server.URL)
	rdb := raw(t, server.URL)
	runs := make([]state.State, 200)
	for i := range runs {
		runs[i] = newRun(t)
		if _, err := s.Create(t.Context(), state.NewRun{State: runs[i], RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i, run := range runs {
		if i%50 == 0 {
			if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for c := range 2 { // one gets it, the other finds it busy
			all.Go(func() {
				token := fmt.Sprintf("%d of %s", c, run.ID)
				got, err := s.Claim(t.Context(), claimOf(run.ID, token))
				switch {
				case err != nil:
					t.Errorf("Claim: %v", err)
				case got.Outcome == state.ClaimBusy:
				case got.Outcome != state.Claimed || got.State.ID != run.ID || got.Lease.Token != token || got.State.LogLen() != 1:
					t.Errorf("Claim of %s as %s = %s of %s as %s", run.ID, token, got.Outcome, got.State.ID, got.Lease.Token)
				}
			})
		}
	}
	all.Wait()
	if counts, err := s.Counts(t.Context()); err != nil || counts[state.Running] != 200 {
		t.Errorf("Counts = %v, %v; want 200 that run", counts, err)
	}
}

// A server that does not know a script is told it, and no call takes it along: each would
// need a connection of its own.
func TestBatcherNewServer(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s := open(t, server.URL)
	rdb := raw(t, server.URL)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, forget := range []func(context.Context) *redis.StatusCmd{rdb.ConfigResetStat, rdb.ScriptFlush} {
		if err := forget(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if _, err := s.Claim(t.Context(), claimOf(run.ID, fmt.Sprint(i))); err != nil {
				t.Errorf("Claim: %v", err)
			}
		})
	}
	all.Wait()
	stats, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if eval, sent := stats["Commandstats"]["cmdstat_eval"]; sent {
		t.Errorf("scripts went with their calls: %s", eval)
	}
}

// Who gives up is not held by the others, and a store that is closed answers all.
func TestBatcherEnds(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s := open(t, server.URL)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), claimOf(run.ID, "a")); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, server.URL).ClientPause(t.Context(), time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			if _, err := s.Claim(left, claimOf(run.ID, fmt.Sprint(i))); !errors.Is(err, context.Canceled) {
				t.Errorf("Claim = %v, want that it was left", err)
			}
		})
	}
	leave()
	all.Wait()
	for i := range 10 {
		all.Go(func() {
			if _, err := s.Claim(t.Context(), claimOf(run.ID, fmt.Sprint(i))); err == nil {
				t.Error("Claim: want an error of a server that does not answer")
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	all.Wait()
	s = open(t, server.URL)
	server.Kill()
	for i := range 300 {
		all.Go(func() {
			if _, err := s.Claim(t.Context(), claimOf(run.ID, fmt.Sprint(i))); err == nil {
				t.Error("Claim: want an error of a server that is gone")
			}
		})
	}
	all.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := s.Claim(t.Context(), claimOf(run.ID, "b")); err == nil {
		t.Error("Claim on a closed store: no error")
	}
}
