package membus_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestBus(t *testing.T) {
	t.Parallel()
	turnpiketest.Bus(t, func(*testing.T) turnpiketest.TestBus {
		b := membus.New()
		b.AckWait = turnpiketest.BusAckWait
		return b
	})
}

// The feed has the events of a run in order, also if two workers publish them concurrently (I9).
func TestFeedOfTwoPublishers(t *testing.T) {
	t.Parallel()
	const runs, length = 500, 20
	b := membus.New()
	var mu sync.Mutex
	got := map[state.RunID][]int64{}
	stop, err := b.ReadFeed(func(p membus.Published) {
		mu.Lock()
		defer mu.Unlock()
		got[p.Run] = append(got[p.Run], p.Event.Seq)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var events []bus.Event
	var want []int64
	for seq := range int64(length) {
		events, want = append(events, bus.Event{Seq: seq + 1}), append(want, seq+1)
	}
	for i := range runs {
		run := state.RunID(fmt.Sprint("run_", i))
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, events); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if !slices.Equal(got[run], want) {
			t.Fatalf("the events of run %d arrive as %v", i, got[run])
		}
	}
}

// Reply drops what CheckReply refuses, as every bus does.
func TestReplyToForeignSubject(t *testing.T) {
	t.Parallel()
	b := membus.New()
	for _, c := range []struct {
		tenant, subject string
		kept            int
	}{
		{"acme", "turnpike.t.acme.reply.done", 1}, {state.DefaultTenant, "orders.done", 1},
		{"acme", "turnpike.t.other.reply.done", 0}, {"acme", "orders.paid", 0}, {state.DefaultTenant, "turnpike.turn.high.1", 0}, {state.DefaultTenant, "$SYS.x", 0}, {state.DefaultTenant, "a.>", 0}, {state.DefaultTenant, "", 0},
	} {
		if err := b.Reply(t.Context(), c.tenant, c.subject, []byte("{}")); err != nil {
			t.Errorf("Reply of tenant %s to %q = %v", c.tenant, c.subject, err)
		}
		if n := len(b.Replies(c.subject)); n != c.kept {
			t.Errorf("Reply of tenant %s to %q: %d are kept, want %d", c.tenant, c.subject, n, c.kept)
		}
	}
}
