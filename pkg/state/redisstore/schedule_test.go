package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Many runs covered by a backlog are returned once each, and hide no other due run.
func TestSweepPassesABacklog(t *testing.T) {
	t.Parallel()
	s := openAt(t, testbed.Redis(t), fmt.Sprint("passes", time.Now().UnixNano()))
	fill(t, s, 700, false, 0)
	run := newRun(t)
	run.Priority = state.High
	if _, err := s.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	lost, covered := 0, 0
	for {
		due, err := s.Sweep(t.Context(), 100, time.Hour, state.Backlog{state.Normal: time.Unix(1, 0)})
		if err != nil {
			t.Fatal(err)
		}
		if len(due) == 0 {
			break
		}
		for _, d := range due {
			if d.Covered {
				covered++
			} else if lost++; d.Run != run.ID {
				t.Errorf("Sweep returns run %s of a lane with a backlog", d.Run)
			}
		}
	}
	if lost != 1 || covered != 700 {
		t.Errorf("the passes return %d runs behind the backlog and %d others, want 700 and 1", covered, lost)
	}
}

// An eviction leaves a run that another worker has taken since it read the list of leases.
func TestEvictionLeavesTheRunOfAnother(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), fmt.Sprint("evicts", time.Now().UnixNano())
	s, r := openAt(t, url, prefix), raw(t, url)
	run := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, s, run, "t") // by worker w
	leases := fmt.Sprintf("%s:{s%03d}:leases", prefix, run.ID.Shard())
	if err := r.ZAdd(t.Context(), leases, redis.Z{Member: "gone\x00" + string(run.ID)}).Err(); err != nil { // what it has read
		t.Fatal(err)
	}
	if due, err := s.Evict(t.Context(), "gone", 10, time.Second); err != nil || len(due) > 0 {
		t.Errorf("Evict = %+v, %v", due, err)
	}
	if _, err := s.Renew(t.Context(), c.Lease, time.Hour, time.Hour); err != nil {
		t.Errorf("Renew of the other worker: %v", err)
	}
	if left, err := r.ZRange(t.Context(), leases, 0, -1).Result(); err != nil || len(left) != 1 || left[0] != "w\x00"+string(run.ID) {
		t.Errorf("the leases are %q, %v", left, err)
	}
}

// A fold adds all entries of a shard, not only the first part, and deletes them. A process that dies in between makes
// the next fold read them again: each counts once.
func TestFoldOfManyEntries(t *testing.T) {
	t.Parallel()
	url, prefix := testbed.Redis(t), fmt.Sprint("folds", time.Now().UnixNano())
	s, r := openAt(t, url, prefix), raw(t, url)
	shard := newRun(t).ID.Shard()
	end := func() {
		t.Helper()
		run := newRun(t)
		for run.ID.Shard() != shard {
			run = newRun(t)
		}
		run.Tenant = "acme"
		if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		c := claimed(t, s, run, "t"+string(run.ID))
		next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		figures := []state.FigureSeries{{SeriesKey: state.SeriesKey{Agent: "a", Model: "m"}, Figures: state.Figures{state.CounterRuns: 1}}}
		if _, err := s.Commit(t.Context(), c.Lease, state.Commit{ID: c.Lease.Token, State: &next, From: c.State.LogLen(), Figures: figures}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(runs int64) {
		t.Helper()
		hours, err := s.Figures(t.Context(), "acme", time.Now().Add(-time.Hour), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		counted := int64(0)
		for _, h := range hours {
			for _, series := range h.Series {
				counted += series.Figures[state.CounterRuns]
			}
		}
		if counted != runs {
			t.Errorf("the figures have %d runs, want %d", counted, runs)
		}
	}
	const runs = 101 // a part has 100
	for range runs {
		end()
	}
	stream := fmt.Sprintf("%s:{s%03d}:figures", prefix, shard)
	saved, err := r.Dump(t.Context(), stream).Result()
	if err != nil {
		t.Fatal(err)
	}
	check(runs)
	if n, err := r.XLen(t.Context(), stream).Result(); err != nil || n > 0 {
		t.Errorf("%d entries are left, %v", n, err)
	}
	if err := r.RestoreReplace(t.Context(), stream, 0, saved).Err(); err != nil {
		t.Fatal(err)
	}
	end()
	check(runs + 1)
}
