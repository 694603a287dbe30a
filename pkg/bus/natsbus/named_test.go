package natsbus_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A message is untouched until a worker has received it, whatever workers have received from other queues and streams.
func TestPendingTurns(t *testing.T) {
	t.Parallel()
	for _, streams := range []int{1, 2} {
		t.Run(fmt.Sprint(streams), func(t *testing.T) {
			t.Parallel()
			nc := testbed.NATS(t)
			b := spreadOver(t, nc, streams)
			want := map[bus.Turn]bool{}
			publish := func(p state.Priority, tenant string, untouched bool) {
				t.Helper()
				turn := bus.Turn{Run: newRun(), Version: int64(len(want)) + 1, Priority: p, Tenant: tenant}
				if err := b.PublishTurn(t.Context(), turn, fmt.Sprint(turn.Version)); err != nil {
					t.Fatal(err)
				}
				turn.Priority = "" // not read
				want[turn] = untouched
			}
			// take takes turns of a queue, as a worker does that dies with them.
			take := func(p state.Priority, n int) {
				t.Helper()
				q, err := b.Turns(t.Context(), bus.QueueKey{Lane: p})
				if err != nil {
					t.Fatal(err)
				}
				for range n {
					if _, err := q.Next(soon(t)); err != nil {
						t.Fatal(err)
					}
				}
				q.Close()
				if err := nc.Flush(); err != nil { // the server sends it nothing more
					t.Fatal(err)
				}
			}
			check := func(when string) {
				t.Helper()
				got := map[bus.Turn]bool{}
				if err := b.PendingTurns(t.Context(), func(turn bus.Turn, untouched bool) { got[turn] = untouched }); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s: %v are pending, want %v", when, got, want)
				}
			}
			check("without messages")
			for range 4 {
				publish(state.Normal, "acme", false)
			}
			take(state.Normal, 4)
			for range 4 {
				publish(state.Normal, state.DefaultTenant, true)
			}
			for range 4 {
				publish(state.High, "acme", false)
			}
			take(state.High, 4)
			publish(state.Low, "acme", true)
			check("after two queues were read")
			js := jet(t, nc)
			for _, stream := range turnStreams(t, js) {
				if err := js.DeleteConsumer(t.Context(), stream, "workers-low"); err != nil {
					t.Fatal(err)
				}
			}
			check("after the consumer of the other queue was lost")
		})
	}
}

// NamedRuns names each run once, and reports whether there are messages beyond the limit.
func TestNamedRuns(t *testing.T) {
	t.Parallel()
	b := open(t, testbed.NATS(t), "")
	var runs []state.RunID
	for i := range 4 {
		runs = append(runs, newRun())
		for version := range int64(2) {
			if err := b.PublishTurn(t.Context(), bus.Turn{Run: runs[i], Version: version + 1, Priority: state.Normal}, fmt.Sprint(i, version)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		limit, runs int
		all         bool
	}{{0, 4, true}, {3, 2, false}, {7, 4, false}, {8, 4, true}, {9, 4, true}} {
		got, all, err := b.NamedRuns(t.Context(), c.limit)
		if err != nil || all != c.all || !slices.Equal(got, runs[:c.runs]) {
			t.Errorf("limit %d: %v, all: %t, %v; want %v, %t", c.limit, got, all, err, runs[:c.runs], c.all)
		}
	}
}
