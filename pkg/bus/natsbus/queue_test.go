package natsbus_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A worker with free slots requests more before all requested messages have arrived: the server distributes
// messages in turn to open requests.
func TestAsksBeforeTheLastHasCome(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	asked := make(chan int, 64)
	sub, err := nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.ASKS_TURNS.>", func(m *nats.Msg) {
		var request struct{ Batch int }
		if json.Unmarshal(m.Data, &request) == nil {
			asked <- request.Batch
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	b := open(t, nc, "asks")
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	q.SetPrefetch(1000)
	taken := make(chan error, 100)
	go func() {
		for {
			if _, err := q.Next(t.Context()); err != nil {
				return
			}
			taken <- nil
		}
	}()
	await := func(want int) {
		t.Helper()
		select {
		case batch := <-asked:
			if batch != want {
				t.Errorf("requests %d, want %d", batch, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("does not ask")
		}
	}
	await(64)
	for i := range 32 {
		run := state.RunID(fmt.Sprintf("run_01JD3X9K3W8Q4V5N6M7P8R9S%02d", i))
		if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, string(run)); err != nil {
			t.Fatal(err)
		}
	}
	for range 32 {
		<-taken
	}
	await(32)
}

// A queue forgets the sources that it no longer serves, whose last answers would make it ask them again. Once closed, it
// leaves nothing at the connection.
func TestQueueForgets(t *testing.T) {
	t.Parallel()
	b := open(t, testbed.NATS(t), "forgets")
	q, err := b.Turns(t.Context(), bus.QueueKey{Lane: state.Normal})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := natsbus.Drop(q); n != 0 || err != nil {
		t.Errorf("the queue knows %d sources, %v; want none", n, err)
	}
	if !natsbus.Listens(q) {
		t.Error("an open queue does not hear of reconnections")
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if natsbus.Listens(q) {
		t.Error("the connection still has the channel of a closed queue")
	}
}
