package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// Processes that use one quota concurrently meet conflicts, and still each gets its answer: together no more
// than the quota (A17).
func TestQuotaOfManyProcesses(t *testing.T) {
	t.Parallel()
	const processes, each, limit = 30, 10, 100
	server := testbed.NATSServer(t)
	p := prefix()
	began := time.Now()
	var entered atomic.Int64
	var group sync.WaitGroup
	for i := range processes {
		nc, err := server.Conn(fmt.Sprint("process ", i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		s := open(t, nc, p)
		group.Go(func() {
			for range each {
				got, err := s.Take(t.Context(), "k", state.Take{Quota: state.Quota{Requests: limit}})
				if err != nil {
					t.Errorf("Take: %v", err)
				}
				if got.Wait == 0 {
					entered.Add(1)
				}
			}
		})
	}
	group.Wait()
	if most := limit/20 + 1 + int64(time.Since(began)*limit/time.Minute); entered.Load() > most {
		t.Errorf("%d were admitted after %s, want %d at most", entered.Load(), time.Since(began), most)
	}
}

// A caller that waits behind an unanswered call still ends with its own context.
func TestQuotaBehindHangingServer(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	p := prefix()
	s := open(t, nc, p)
	take := func(ctx context.Context) error {
		_, err := s.Take(ctx, "k", state.Take{Quota: state.Quota{Requests: 100}})
		return err
	}
	if err := take(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A subscriber replaces the stream. It receives requests and never answers.
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.StreamNameBySubject(t.Context(), p+".quota.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	heard, err := nc.SubscribeSync(p + ".quota.>")
	if err != nil {
		t.Fatal(err)
	}
	first, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- take(first) }()
	if _, err := heard.NextMsgWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}

	second, cancel := context.WithCancel(t.Context())
	cancel()
	if err := take(second); !errors.Is(err, context.Canceled) {
		t.Errorf("Take behind a call without an answer: %v, want its context's end", err)
	}
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Take without an answer: %v, want its context's end", err)
	}
}

func TestPausedKeys(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	statetest.PausedKeys(t, func(t *testing.T, now func() time.Time) state.Quotas {
		t.Helper()
		var calls atomic.Int64
		// The store ignores answers of the server that precede their request, and so keeps this clock.
		back := func() time.Time { return now().Add(-time.Duration(calls.Add(1)) * time.Microsecond) }
		s, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix(), Now: back})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
