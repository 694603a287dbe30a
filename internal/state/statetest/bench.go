package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// benchTurns is the number of turns of a run in Benchmark.
const benchTurns = 100

// Benchmark measures the store's cost of a turn: its claim, the record of a response and the commit, each
// alone, and all of them where each commit claims the next turn.
func Benchmark(b *testing.B, s state.RunStore) {
	s.SetFormat(state.Format)
	for _, step := range []string{"claim", "record", "commit", "eager"} {
		b.Run(step, func(b *testing.B) {
			b.ReportAllocs()
			eager := step == "eager"
			// Only the step is timed; eager is the whole turn.
			pause, resume := b.StopTimer, b.StartTimer
			if eager {
				pause, resume = func() {}, func() {}
			}
			measured := func(name string, do func() error) {
				b.Helper()
				if name == step {
					b.StartTimer()
					defer b.StopTimer()
				}
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
			var run state.RunID
			version, token := int64(benchTurns), ""
			for b.Loop() {
				pause()
				if version == benchTurns {
					run, version, token = benchRun(b, s), 0, "first"
				}
				version++
				var c *state.Claim
				measured("claim", func() (err error) {
					c, err = s.Claim(b.Context(), state.ClaimRequest{Run: run, Version: version, Token: token, Worker: "w", Lease: long, RedeliveryDelay: long})
					if err == nil && c.Outcome != state.Claimed {
						err = fmt.Errorf("claim of version %d is %s", version, c.Outcome)
					}
					return err
				})
				asked := c.State.Append(response(int(version), "c1"))
				measured("record", func() error {
					_, err := s.Record(b.Context(), c.Lease, state.Record{From: c.State.LogLen(), Entries: asked.Log[len(asked.Log)-1:], Started: []string{"c1"}})
					return err
				})
				next, err := asked.Append(result("c1", "done")).Move(state.NextTurn, state.Entry{At: created})
				if err != nil {
					b.Fatal(err)
				}
				token = fmt.Sprint("token-", version)
				commit := state.Commit{ID: c.Lease.Token, State: &next, From: asked.LogLen(), RedeliveryDelay: long}
				if eager {
					commit.EagerClaim = token
				}
				measured("commit", func() error {
					_, err := s.Commit(b.Context(), c.Lease, commit)
					return err
				})
				resume()
			}
		})
	}
}

func benchRun(b *testing.B, s state.RunStore) state.RunID {
	b.Helper()
	run, err := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Priority: state.Normal}.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Create(b.Context(), state.NewRun{State: run, RedeliveryDelay: long}); err != nil {
		b.Fatal(err)
	}
	return run.ID
}
