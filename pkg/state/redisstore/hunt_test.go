//go:build hunt

package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// The tests in this file show known defects of many runs at once. They fail until the
// defect that each one names is mended: `make hunt` runs them, `make verify` sees that
// they compile. Who mends one moves its test to the package's other tests.

const few, many = 2_000, 20_000

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

// cost is what a Redis did since it started: commands, those of scripts too, and bytes
// that it sent.
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

// spent returns what do costs.
func spent(t *testing.T, rdb *redis.Client, do func()) cost {
	t.Helper()
	before := costs(t, rdb)
	do()
	after := costs(t, rdb)
	return cost{after.commands - before.commands, after.bytes - before.bytes}
}

// compare fails if something costs more than twice as much with ten times the runs.
func compare(t *testing.T, what string, with map[int]cost) {
	t.Helper()
	a, b := with[few], with[many]
	t.Logf("%s: %d commands and %d bytes with %d runs, %d commands and %d bytes with %d", what, a.commands, a.bytes, few, b.commands, b.bytes, many)
	if b.commands > 2*a.commands || b.bytes > 2*a.bytes {
		t.Errorf("%s costs more the more runs there are", what)
	}
}

// Finding 2: the death of a worker that held nothing, and each worker's start, scan all
// runs that wait.
func TestHuntEvict(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total, with := openAt(t, p.URL, "evict"), raw(t, p.URL), 0, map[int]cost{}
	for _, n := range []int{few, many} {
		fill(t, s, n-total, true, time.Second)
		total = n
		with[n] = spent(t, rdb, func() {
			if due, err := s.Evict(t.Context(), "a worker that held nothing", time.Second); err != nil || len(due) != 0 {
				t.Fatal(len(due), err)
			}
		})
	}
	compare(t, "the eviction of a worker without runs", with)
}

// Finding 7: what a sweep costs grows with the runs that are due.
func TestHuntSweep(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	rdb, with := raw(t, p.URL), map[int]cost{}
	for _, n := range []int{few, many} {
		s := openAt(t, p.URL, fmt.Sprint("sweep", n))
		fill(t, s, n, false, 0)
		with[n] = spent(t, rdb, func() {
			if due, err := s.Sweep(t.Context(), 512, 5*time.Second); err != nil || len(due) != 512 {
				t.Fatal(len(due), err)
			}
		})
	}
	compare(t, "a sweep of 512 runs", with)
}

// Finding 9: a list with a filter that nothing matches walks every run.
func TestHuntList(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, rdb, total, with := openAt(t, p.URL, "list"), raw(t, p.URL), 0, map[int]cost{}
	for _, n := range []int{few, many} {
		fill(t, s, n-total, true, time.Second)
		total = n
		with[n] = spent(t, rdb, func() {
			if page, err := s.List(t.Context(), state.Filter{Status: []state.Status{state.Failed}}); err != nil || len(page.Runs) != 0 {
				t.Fatal(len(page.Runs), err)
			}
		})
	}
	compare(t, "a list without a match", with)
}

// Finding 8: the inbox of a run in Redis has no bound. A run that got too much during one
// turn can never be claimed again. The JetStream store refuses such a signal.
func TestHuntInbox(t *testing.T) {
	t.Parallel()
	p := testbed.RedisProcess(t, "--save", "", "--appendonly", "no")
	s, run := openAt(t, p.URL, "inbox"), newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "a", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	m, taken := state.UserText(strings.Repeat("x", 1<<20)), 0
	for i := range 300 {
		_, err := s.Signal(t.Context(), run.ID, state.Signal{ID: fmt.Sprint(i), Message: &m}, time.Hour)
		var tooLarge *state.TooLargeError
		if errors.As(err, &tooLarge) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken++
	}
	if _, err := s.Evict(t.Context(), "w", time.Hour); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), state.ClaimRequest{Run: run.ID, Version: 1, Token: "b", Worker: "w2", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed || len(c.Signals) != taken {
		t.Errorf("claim of a run with %d messages of 1 MiB: %q with %d signals, %v", taken, c.Outcome, len(c.Signals), err)
	}
}
