package natsbus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// One worker of a large fleet waits for the messages of a part of the streams. It takes those of all streams once
// heartbeats show that the other workers are full.
func TestLargeFleetSharesTheStreams(t *testing.T) {
	t.Parallel()
	const streams, workers, part = 16, 100, 5
	nc := testbed.NATS(t)
	b, others := spreadOver(t, nc, streams), spreadOver(t, nc, streams)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop, err := b.Heartbeats(ctx, func(bus.Heartbeat) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	turns := make(chan int, 1) // of each other worker
	go func() {
		n := 0
		for tick := time.NewTicker(300 * time.Millisecond); ; {
			b.SendHeartbeat(bus.Heartbeat{Worker: "me", Slots: 10})
			for i := range workers - 1 {
				others.SendHeartbeat(bus.Heartbeat{Worker: fmt.Sprintf("w%d", i), Slots: 10, Turns: map[state.Priority]int{state.Low: n}})
			}
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case n = <-turns:
			case <-tick.C:
			}
		}
	}()
	q, err := b.Turns(ctx, bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	got := &taken{runs: map[state.RunID]int{}}
	go func() {
		for {
			d, err := q.Next(ctx)
			if err != nil {
				return
			}
			got.add(d.Turn().Run)
			_ = d.Ack() // it is redelivered
		}
	}()
	// Its first requests may have waited for all streams, until they ended.
	eventually(t, func() bool { left := natsbus.Left(q); return left == streams-part || left == streams-part-1 })
	var of [streams]state.RunID
	for found := 0; found < streams; {
		if run := newRun(); of[run.Shard()%streams] == "" {
			of[run.Shard()%streams] = run
			found++
		}
	}
	for _, run := range of {
		if err := b.PublishTurn(ctx, bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		for _, run := range of {
			if got.has(run) {
				n++
			}
		}
		return n
	}
	eventually(t, func() bool { return count() >= part })
	if n := count(); n > part+1 {
		t.Errorf("one of %d workers has taken turns of %d streams, want %d", workers, n, part)
	}
	turns <- 10 // all have no free slot
	eventually(t, func() bool { return count() == streams })
}

// An idle deployment is asked about its streams only, not about each queue in them.
func TestBacklogOfEmptyStreams(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := spreadOver(t, nc, 8)
	requests, err := nc.SubscribeSync("$JS.API.*.INFO.>")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = requests.Unsubscribe() }()
	about := func() (n int) {
		t.Helper()
		if backlog, err := b.Backlog(t.Context()); err != nil {
			t.Fatalf("backlog %v, %v", backlog, err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for pending := 1; pending > 0; n++ {
			if pending, _, err = requests.Pending(); err == nil && pending > 0 {
				_, err = requests.NextMsg(time.Minute)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return n - 1
	}
	about() // the process follows the list of streams at the same time
	if n := about(); n < 8 || n > 12 {
		t.Errorf("%d requests for 8 empty streams", n)
	}
	run := newRun()
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)); err != nil {
		t.Fatal(err)
	}
	if n := about(); n < 8+6 || n > 8+6+6 {
		t.Errorf("%d requests for 8 streams, one of them with a message", n)
	}
}
