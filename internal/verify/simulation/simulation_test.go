package simulation_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/verify/simulation"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

var (
	seeds     = flag.Int("seeds", 1, "how many seeds to simulate")
	natsSeeds = flag.Int("seeds-nats", 1, "how many seeds to simulate on a NATS server")
	seed      = flag.Uint64("seed", 0, "simulate this one seed, as it was printed")
	strike    = flag.Duration("strike", 30*time.Minute, "how long faults strike")
	users     = flag.Int("users", 40, "how many users there are")
)

// usual are frequent faults of every kind.
var usual = simulation.Faults{
	Crash: 0.0002, LostReply: 0.002, Loss: 0.01, Double: 0.02, Late: 0.02,
	Kill: time.Minute, Pause: 2 * time.Minute, Sever: 2 * time.Minute, Slow: 5 * time.Minute,
}

// simulate runs one seed on a store and a bus in memory.
func simulate(t *testing.T, seed uint64, faults simulation.Faults) simulation.Report {
	t.Helper()
	var report simulation.Report
	synctest.Test(t, func(t *testing.T) {
		skew := time.Duration(int64(seed%61)-30) * time.Second // the store's clock differs from the workers'
		b := membus.New()
		store := memstore.New(memstore.Config{Now: func() time.Time { return time.Now().Add(skew) }})
		r, err := simulation.Run(simulation.Config{
			Seed: seed, Faults: faults, Strike: *strike, Users: *users,
			Connect: func() (simulation.Backend, error) {
				return simulation.Backend{Store: store, Bus: b, Close: func() {}}, nil
			},
			Rollback: func() (func(), func()) {
				var copied *memstore.Snapshot
				return func() { copied = store.Snapshot() }, func() { store.Restore(copied) }
			},
		})
		if err != nil {
			t.Error(err)
		}
		report = r
	})
	return report
}

func check(t *testing.T, r simulation.Report) {
	t.Helper()
	t.Log(r)
	if len(r.Violations) == 0 {
		return
	}
	t.Errorf("to reproduce: go test ./internal/verify/simulation -run '%s' -seed %d\n%s", t.Name(), r.Seed, strings.Join(r.Violations, "\n"))
	t.Log(strings.Join(r.About(), "\n"))
}

// drawn returns the seeds to simulate.
func drawn(n int) []uint64 {
	if *seed != 0 {
		return []uint64{*seed}
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = rand.Uint64()
	}
	return all
}

// After half an hour of faults, all submitted runs end and the invariants hold (I1 to I9).
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, seed := range drawn(*seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			check(t, simulate(t, seed, usual))
		})
	}
}

// A store that falls back to an older copy costs work, but every run ends (I2).
func TestFailovers(t *testing.T) {
	t.Parallel()
	faults := usual
	faults.Restore = 5 * time.Minute
	for _, seed := range drawn(*seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			check(t, simulate(t, seed, faults))
		})
	}
}

// A seed gives the same large faults at the same moments in the same processes, and the same actions of users.
// The scheduling of goroutines in between may differ.
func TestSeedsReplay(t *testing.T) {
	t.Parallel()
	seed := drawn(1)[0]
	first, again := simulate(t, seed, usual), simulate(t, seed, usual)
	if diff := cmp.Diff(strikes(first), strikes(again)); diff != "" {
		t.Errorf("seed %d differs the second time:\n%s", seed, diff)
	}
}

// strikes returns the larger faults in a trace.
func strikes(r simulation.Report) []string {
	return slices.DeleteFunc(slices.Clone(r.Trace), func(line string) bool { return !strings.Contains(line, "strike: ") })
}
