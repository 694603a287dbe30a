package retention_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// ended stores an ended run with an idempotency key; its id contains the time of its end.
func ended(ctx context.Context, store state.Store, id ulid.ULID) error {
	at := state.At(ulid.Time(id.Time()))
	run := state.State{
		ID: state.RunID(state.RunPrefix + id.String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant,
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20},
	}
	run, err := run.Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{state.UserText(strings.Repeat("hello ", 100))}})
	if err == nil {
		_, err = store.Create(ctx, state.NewRun{State: run, Key: id.String(), Fingerprint: "f", RedeliveryDelay: time.Hour})
	}
	if err != nil {
		return err
	}
	c, err := store.Claim(ctx, state.ClaimRequest{Run: run.ID, Version: 1, Token: id.String(), Worker: "w", Lease: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		return fmt.Errorf("claim: %s %w", c.Outcome, err)
	}
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: at})
	if err == nil {
		_, err = store.Commit(ctx, c.Lease, state.Commit{ID: id.String(), State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour})
	}
	return err
}

// BenchmarkRetention measures how many runs per second one gateway deletes.
func BenchmarkRetention(b *testing.B) {
	for _, bench := range []struct {
		name string
		far  time.Duration // one way
		jets bool
		feed bool
		load bool // with concurrent submissions at half of the store's capacity
	}{
		{name: "redis"},
		{name: "redis/load", load: true},
		{name: "redis/feed", feed: true},
		{name: "redis/50ms", far: 25 * time.Millisecond},
		{name: "redis/50ms_each_way", far: 50 * time.Millisecond},
		{name: "jetstream", jets: true},
		{name: "jetstream/feed", jets: true, feed: true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			nc := testbed.NATS(b)
			kept, err := natsbus.Open(b.Context(), nc, natsbus.Config{EventFeed: bench.feed})
			if err != nil {
				b.Fatal(err)
			}
			defer kept.Close()
			var near, store state.Store
			if bench.jets {
				s, err := natsstore.Open(b.Context(), nc, natsstore.Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				near, store = s, s
			} else {
				url, prefix := testbed.Redis(b), "bench-"+ulid.Make().String()
				open := func(url string) state.Store {
					s, err := redisstore.Open(b.Context(), redisstore.Config{URL: url, Prefix: prefix})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = s.Close() })
					return s
				}
				near = open(url)
				if store = near; bench.far > 0 {
					store = open(distant(b, url, bench.far))
				}
			}
			fill(b, near, kept, bench.feed)
			if bench.load {
				stop := halfLoad(b, near)
				defer stop()
			}
			c := retention.New(store, kept, retention.Config{Keep: agent.Retention{Completed: agent.Period(time.Minute)}})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			b.ResetTimer()
			var done sync.WaitGroup
			done.Go(func() { c.Run(ctx) })
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for c.Stats().Deleted < int64(b.N) {
				<-tick.C
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
			cancel()
			done.Wait()
		})
	}
}

// fill stores b.N runs that ended an hour ago, with their events if the bus has a feed.
func fill(b *testing.B, store state.Store, to bus.Bus, feed bool) {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(64)
	for range b.N {
		group.Go(func() error {
			id := ulid.MustNew(ulid.Timestamp(time.Now().Add(-time.Hour)), ulid.DefaultEntropy())
			if err := ended(b.Context(), store, id); err != nil || !feed {
				return err
			}
			events := make([]bus.Event, 10)
			for i := range events {
				events[i] = bus.Event{Seq: int64(i + 1), Data: []byte(`{"type":"transition"}`)}
			}
			return to.PublishEvents(b.Context(), state.DefaultTenant, state.RunID(state.RunPrefix+id.String()), events)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// halfLoad measures the number of runs per second that the store can take, and submits half as many until stop.
func halfLoad(b *testing.B, store state.Store) (stop func()) {
	b.Helper()
	const writers, measured = 32, 2 * time.Second
	var made atomic.Int64
	work := func(ctx context.Context, every time.Duration) (wait func()) {
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					if ended(ctx, store, ulid.Make()) == nil {
						made.Add(1)
					}
					if rest := every - time.Since(began); rest > 0 {
						select {
						case <-time.After(rest):
						case <-ctx.Done():
						}
					}
				}
			})
		}
		return all.Wait
	}
	ctx, cancel := context.WithTimeout(b.Context(), measured)
	work(ctx, 0)()
	cancel()
	full := float64(made.Swap(0)) / measured.Seconds()
	ctx, cancel = context.WithCancel(b.Context())
	wait := work(ctx, time.Duration(2*writers/full*float64(time.Second)))
	began := time.Now()
	return func() {
		cancel()
		wait()
		b.ReportMetric(full, "capacity/s")
		b.ReportMetric(float64(made.Load())/time.Since(began).Seconds(), "load/s")
	}
}

// distant returns the URL of a server with added latency.
func distant(b *testing.B, url string, latency time.Duration) string {
	b.Helper()
	head, rest, _ := strings.Cut(url, "//")
	addr, path, _ := strings.Cut(rest, "/")
	p, err := rig.NewProxy(addr)
	if err != nil {
		b.Fatal(err)
	}
	p.Latency = latency
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	go p.Run(ctx)
	return head + "//" + p.Addr() + "/" + path
}
