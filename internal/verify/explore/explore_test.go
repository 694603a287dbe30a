package explore_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/explore"
)

var (
	short    = flag.Bool("prove", false, "explore for some two minutes")
	thorough = flag.Bool("thorough", false, "explore all that there is, for an hour or so")
	seed     = flag.Uint64("seed", 1, "of executions at random; 0 draws one")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(1600) // there is much garbage, and little live memory
	os.Exit(m.Run())
}

// No order of steps and faults within the bounds breaks an invariant, and every run ends after each of them (I1
// to I9).
func TestExplore(t *testing.T) {
	t.Parallel()
	for _, sc := range explore.Scenarios() {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			bounds := sc.Quick
			switch {
			case *thorough:
				bounds = sc.Full
			case *short:
				bounds = sc.Short
			}
			r := explore.Explore(t, sc, bounds...)
			if r.Violation != nil {
				t.Fatal(r)
			}
			t.Logf("%v: %v", bounds, r)
		})
	}
}

// A worker sleeps just before it starts a child, while the parent is cancelled. Then it starts the child and
// dies: the child still ends, without an effect.
func TestOrphan(t *testing.T) {
	r := explore.Replay(t, scenario(t, "a child of a run that is cancelled"), "w1: agent payer", "canceller: cancel", "w2: next of high", "w1: create R2: the process dies after")
	if r.Violation != nil {
		t.Fatal(r)
	}
	if len(r.Effects) > 0 {
		t.Errorf("effects of an orphaned child: %q", r.Effects)
	}
}

// A worker is about to claim a turn when it receives the abort of the run: the turn learns of the abort from
// its claim, and the message does not interrupt it again.
func TestAbortOfTwoClaims(t *testing.T) {
	r := explore.Replay(t, scenario(t, "a cancellation"), "w1: next of normal", "canceller: cancel", "w1: hear of the abort of R1", "w1: next of high")
	if r.Violation != nil {
		t.Fatal(r)
	}
}

func scenario(t *testing.T, name string) explore.Scenario {
	t.Helper()
	for _, sc := range explore.Scenarios() {
		if sc.Name == name {
			return sc
		}
	}
	t.Fatalf("there is no scenario %q", name)
	return explore.Scenario{}
}

// Random executions with more faults than can be explored completely also keep the invariants.
func TestWander(t *testing.T) {
	t.Parallel()
	n := 10
	switch {
	case *thorough:
		n = 5000
	case *short:
		n = 60
	}
	from := *seed
	if from == 0 {
		from = uint64(time.Now().UnixNano()) //nolint:gosec // any value
	}
	for _, sc := range explore.Scenarios() {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			r := explore.Wander(t, sc, explore.Bound{Faults: 4, Switches: 6}, rand.New(rand.NewPCG(from, 0)), n) //nolint:gosec // as above
			if r.Violation != nil {
				t.Fatalf("seed %d: %v", from, r)
			}
			t.Logf("seed %d: %v", from, r)
		})
	}
}
