package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Batched calls each get their own answer, also from a server that has lost its scripts (I1).
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

// A script is loaded on a new server once, without being sent with each call: each would need its own
// connection.
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

// Writes of turns in flight precede claims, which would only add to them.
func TestClaimsGoLast(t *testing.T) {
	t.Parallel()
	server := testbed.RedisProcess(t, "--save", "", "--appendonly", "no", "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000")
	s := open(t, server.URL)
	rdb := raw(t, server.URL)
	const claims = 50 // one pipeline has all waiting calls
	runs := make([]state.State, 1+claims)
	for i := range runs {
		runs[i] = newRun(t)
		if _, err := s.Create(t.Context(), state.NewRun{State: runs[i], RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	turn, err := s.Claim(t.Context(), claimOf(runs[0].ID, "a"))
	if err != nil {
		t.Fatal(err)
	}
	record := func() error { _, err := s.Record(t.Context(), turn.Lease, state.Record{From: 1}); return err }
	renew := func() error { _, err := s.Renew(t.Context(), turn.Lease, time.Hour, time.Hour); return err }
	if err := errors.Join(record(), renew()); err != nil { // the server has the scripts from now on
		t.Fatal(err)
	}
	if err := rdb.SlowLogReset(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Do(t.Context(), "client", "pause", time.Hour.Milliseconds(), "write").Err(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	send := func(call func() error) {
		all.Go(func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		})
	}
	claim := func(run state.State) {
		send(func() error { _, err := s.Claim(t.Context(), claimOf(run.ID, "a")); return err })
	}
	await := func(pipelines, calls int) {
		t.Helper()
		testbed.Eventually(t, "the calls wait", func() error {
			if inFlight, waiting := s.Batched(); inFlight != pipelines || waiting != calls {
				return fmt.Errorf("%d pipelines are in flight and %d calls wait, want %d and %d", inFlight, waiting, pipelines, calls)
			}
			return nil
		})
	}
	claim(runs[1])
	await(1, 0)
	claim(runs[2])
	await(2, 0)
	for _, run := range runs[3:] {
		claim(run)
	}
	await(2, claims-2)
	send(record)
	await(2, claims-1)
	send(renew)
	await(2, claims)
	if err := rdb.ClientUnpause(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	log, err := rdb.SlowLogGet(t.Context(), -1).Result() // the latest first
	if err != nil {
		t.Fatal(err)
	}
	var places []int
	n := 0
	for _, c := range slices.Backward(log) {
		if c.Args[0] != "evalsha" {
			continue
		}
		if slices.Contains(c.Args, string(runs[0].ID)) || strings.Contains(c.Args[3], string(runs[0].ID)) {
			places = append(places, n)
		}
		n++
	}
	if want := []int{2, 3}; n != claims+2 || !slices.Equal(places, want) { // two claims were in flight
		t.Errorf("the writes of the turn are at positions %v of %d calls, want %v of %d", places, n, want, claims+2)
	}
	// So do the next ones, of which there are none before.
	if err := rdb.Do(t.Context(), "client", "pause", time.Hour.Milliseconds(), "write").Err(); err != nil {
		t.Fatal(err)
	}
	claim(runs[1])
	await(1, 0)
	claim(runs[2])
	await(2, 0)
	send(renew)
	await(2, 1)
	if err := rdb.ClientUnpause(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
}

// A caller whose context ends is not held by the others, and closing the store answers all calls.
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
				t.Errorf("Claim = %v, want context cancelled", err)
			}
		})
	}
	leave()
	all.Wait()
	for i := range 10 {
		all.Go(func() {
			if _, err := s.Claim(t.Context(), claimOf(run.ID, fmt.Sprint(i))); err == nil {
				t.Error("Claim: want an error because the server does not answer")
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
				t.Error("Claim: want an error because the server is gone")
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
