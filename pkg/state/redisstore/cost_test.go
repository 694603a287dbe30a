package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

const few, many = 1_000, 10_000

// fill stores runs. They wait until tomorrow, or are queued and due after delay.
func fill(t *testing.T, s *redisstore.Store, n int, waiting bool, delay time.Duration) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(32)
	for range n {
		g.Go(func() error {
			run, now := newRun(t), state.At(time.Now())
			if waiting {
				at := state.At(time.Now().Add(24 * time.Hour))
				run.ResumeAt = at
				var err error
				run, err = run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: "start_at", Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: now, ExpiresAt: at, Calls: []state.WaitCall{}}})
				if err != nil {
					return err
				}
			}
			_, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: delay})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// cost is the work of a Redis since its start: commands, including those of scripts, and bytes sent.
type cost struct{ commands, bytes int64 }

func costs(t *testing.T, rdb *redis.Client) (c cost) {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "stats", "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(info["Stats"]["total_net_output_bytes"], &c.bytes); err != nil {
		t.Fatal(err)
	}
	for name, stats := range info["Commandstats"] {
		var calls int64
		if _, err := fmt.Sscanf(stats, "calls=%d,", &calls); err != nil {
			t.Fatal(name, stats, err)
		}
		c.commands += calls
	}
	return c
}

// spent returns the cost of do.
func spent(t *testing.T, rdb *redis.Client, do func()) cost {
	t.Helper()
	before := costs(t, rdb)
	do()
	after := costs(t, rdb)
	return cost{after.commands - before.commands, after.bytes - before.bytes}
}

// compare fails if the cost more than doubles with ten times the runs.
func compare(t *testing.T, what string, with map[int]cost) {
	t.Helper()
	a, b := with[few], with[many]
	t.Logf("%s: %d commands and %d bytes with %d runs, %d commands and %d bytes with %d", what, a.commands, a.bytes, few, b.commands, b.bytes, many)
	if b.commands > 2*a.commands || b.bytes > 2*a.bytes {
		t.Errorf("%s costs more the more runs there are", what)
	}
}

// The cost of an eviction depends on the runs that the worker held, not on those that wait.
func TestEvictCost(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total, with := openAt(t, p.URL, "evict"), raw(t, p.URL), 0, map[int]cost{}
	for _, n := range []int{few, many} {
		fill(t, s, n-total, true, time.Second)
		total = n
		with[n] = spent(t, rdb, func() {
			if due, err := s.Evict(t.Context(), "a worker that held nothing", 100, time.Second); err != nil || len(due) != 0 {
				t.Fatal(len(due), err)
			}
		})
	}
	compare(t, "the eviction of a worker without runs", with)
}

// The cost of a sweep depends on its results, not on the number of due runs.
func TestSweepCost(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	rdb, with := raw(t, p.URL), map[int]cost{}
	for _, n := range []int{few, many} {
		s := openAt(t, p.URL, fmt.Sprint("sweep", n))
		fill(t, s, n, false, 0)
		with[n] = spent(t, rdb, func() {
			if due, err := s.Sweep(t.Context(), 512, 5*time.Second, nil); err != nil || len(due) != 512 {
				t.Fatal(len(due), err)
			}
		})
	}
	compare(t, "a sweep of 512 runs", with)
}
