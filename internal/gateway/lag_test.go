package gateway_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// full is a bus that answers reads and rejects writes.
type full struct{ *membus.Bus }

func (full) Ready(context.Context) error { return errors.New("no space left on device") }

func metricsOf(t *testing.T, g *gateway.Gateway) string {
	t.Helper()
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, err)
	}
	return string(body)
}

// A bus that rejects writes has empty queues while runs wait in the store. The gateway then exports no backlog
// metric, because an autoscaler would stop the workers.
func TestNoLagWithoutWrites(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), full{membus.New()}, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got := metricsOf(t, g); strings.Contains(got, "turnpike_queue_") || !strings.Contains(got, "turnpike_bus_writable 0\n") {
		t.Errorf("a full bus: %s", got)
	}
	if g, err = gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{}); err != nil {
		t.Fatal(err)
	}
	if got := metricsOf(t, g); !strings.Contains(got, "turnpike_queue_lag{") || !strings.Contains(got, "turnpike_bus_writable 1\n") {
		t.Errorf("a bus that accepts writes: %s", got)
	}
}

// unread is a bus that accepts writes and does not report its queues: their lengths, or since when turns wait.
type unread struct {
	*membus.Bus

	lengths, ages error
}

func (u unread) LagByLane(ctx context.Context) (map[state.Priority]bus.LaneLag, error) {
	if u.lengths != nil {
		return nil, u.lengths
	}
	return u.Bus.LagByLane(ctx)
}

func (u unread) Backlog(ctx context.Context) (state.Backlog, error) {
	if u.ages != nil {
		return nil, u.ages
	}
	return u.Bus.Backlog(ctx)
}

// What the gateway cannot read is unknown, not 0: it exports neither the lag nor the oldest age, although the bus
// accepts writes.
func TestNoLagWithoutAReading(t *testing.T) {
	t.Parallel()
	away := errors.New("no responders")
	for name, b := range map[string]unread{"no lengths": {membus.New(), away, nil}, "no ages": {membus.New(), nil, away}, "neither": {membus.New(), away, away}} {
		g, err := gateway.New(memstore.New(memstore.Config{}), b, gateway.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := metricsOf(t, g); strings.Contains(got, "turnpike_queue_") || !strings.Contains(got, "turnpike_bus_writable 1\n") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// queued holds runs of one tenant whose turns the test fetches as workers do.
type queued struct {
	t     *testing.T
	store state.Store
	bus   *natsbus.Bus
	turns *dispatch.Dispatcher

	gateway *gateway.Gateway
	held    map[state.Priority]int // what w2 reports as in flight; w1 is dead
}

func newQueued(t *testing.T, store state.Store, streams int) *queued {
	t.Helper()
	b, err := natsbus.Open(t.Context(), testbed.NATS(t), natsbus.Config{Prefix: "t-" + strings.ToLower(rand.Text()), TurnStreams: streams})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	q := &queued{t: t, store: store, bus: b, turns: dispatch.New(b, nil), held: map[state.Priority]int{}}
	if q.gateway, err = gateway.New(store, b, gateway.Config{}); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.gateway.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return q
}

// submit creates runs in a lane and publishes their turns.
func (q *queued) submit(lane state.Priority, n int) {
	q.t.Helper()
	for range n {
		run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "acme", Priority: lane}
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			q.t.Fatal(err)
		}
		made, err := q.store.Create(q.t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour})
		if err != nil {
			q.t.Fatal(err)
		}
		if err := q.turns.Publish(q.t.Context(), dispatch.Turn{Run: run.ID, Version: run.Version, Priority: lane, Tenant: "acme", Noisy: made.Noisy}); err != nil {
			q.t.Fatal(err)
		}
	}
}

// taken is a turn that a worker holds.
type taken struct {
	delivery bus.TurnDelivery
	claim    *state.Claim
}

// take makes a worker fetch n turns of a lane and claim them.
func (q *queued) take(worker string, lane state.Priority, n int) (all []taken) {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.t.Context(), testbed.Patience)
	defer cancel()
	found := make(chan bus.TurnDelivery)
	for _, noisy := range []bool{false, true} {
		turns, err := q.bus.Turns(ctx, bus.QueueKey{Lane: lane, Noisy: noisy})
		if err != nil {
			q.t.Fatal(err)
		}
		defer turns.Close()
		go func() {
			for {
				d, err := turns.Next(ctx)
				if err != nil {
					return
				}
				select {
				case found <- d:
				case <-ctx.Done():
					_ = d.Nak(0)
					return
				}
			}
		}()
	}
	for range n {
		select {
		case d := <-found:
			c, err := q.store.Claim(ctx, state.ClaimRequest{Run: d.Turn().Run, Version: d.Turn().Version, Token: rand.Text(), Worker: worker, Lease: time.Hour, RedeliveryDelay: time.Hour})
			if err != nil || c.Outcome != state.Claimed {
				q.t.Fatalf("claim of %s: %s, %v", d.Turn().Run, c.Outcome, err)
			}
			all = append(all, taken{d, c})
			if worker == "w2" {
				q.held[lane]++
			}
		case <-ctx.Done():
			q.t.Fatalf("%s has %d of %d turns of lane %s", worker, len(all), n, lane)
		}
	}
	return all
}

// finish completes the run of a turn.
func (q *queued) finish(turn taken) {
	q.t.Helper()
	done, err := turn.claim.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		q.t.Fatal(err)
	}
	commit := state.Commit{ID: turn.claim.Lease.Token, State: &done, From: turn.claim.State.LogLen(), RedeliveryDelay: time.Hour}
	if _, err := q.store.Commit(q.t.Context(), turn.claim.Lease, commit); err != nil {
		q.t.Fatal(err)
	}
	if err := turn.delivery.Ack(); err != nil {
		q.t.Fatal(err)
	}
	q.held[turn.delivery.Turn().Priority]--
}

// bury evicts a worker and republishes its turns, as another worker does.
func (q *queued) bury(worker string) {
	q.t.Helper()
	due, err := q.store.Evict(q.t.Context(), worker, 1000, time.Hour)
	if err != nil {
		q.t.Fatal(err)
	}
	for _, d := range due {
		if err := q.turns.Republish(q.t.Context(), d, dispatch.Evicted(worker)); err != nil {
			q.t.Fatal(err)
		}
	}
}

// lag waits until the gateway exports these lanes, with waiting turns only in the lanes in waiting.
func (q *queued) lag(when string, want map[state.Priority]int, waiting ...state.Priority) {
	q.t.Helper()
	testbed.Eventually(q.t, when, func() error {
		var err error
		q.bus.SendHeartbeat(bus.Heartbeat{Worker: "w2", Format: state.Format, Turns: q.held})
		body := metricsOf(q.t, q.gateway)
		for _, lane := range state.Priorities() {
			if line := fmt.Sprintf("turnpike_queue_lag{lane=%q} %d\n", lane, want[lane]); !strings.Contains(body, line) {
				err = errors.Join(err, fmt.Errorf("%q is missing", line))
			}
			if waits := !strings.Contains(body, fmt.Sprintf("turnpike_queue_oldest_seconds{lane=%q} 0\n", lane)); waits != slices.Contains(waiting, lane) {
				err = errors.Join(err, fmt.Errorf("lane %s: a turn waits is %v", lane, waits))
			}
		}
		return err
	})
}

// The lag counts each turn once while deliveries to dead workers are outstanding.
func TestLagCountsATurnOfADeadWorkerOnce(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"redis", "nats"} {
		for _, streams := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", store, streams), func(t *testing.T) {
				t.Parallel()
				q := newQueued(t, stores[store](t), streams)
				type lanes = map[state.Priority]int
				q.submit(state.Normal, 20)
				q.submit(state.Low, 10)
				q.lag("turns that wait", lanes{state.Normal: 20, state.Low: 10}, state.Normal, state.Low)
				q.take("w1", state.Normal, 20)
				q.take("w1", state.Low, 10)
				q.lag("a worker has all turns", lanes{state.Normal: 20, state.Low: 10})
				q.bury("w1")
				q.lag("the worker is dead, and its turns were published again", lanes{state.Normal: 20, state.Low: 10}, state.Normal, state.Low)
				q.take("w2", state.Normal, 20)
				low := q.take("w2", state.Low, 10)
				q.lag("another worker has them", lanes{state.Normal: 20, state.Low: 10})
				q.submit(state.Low, 5)
				q.lag("others wait behind them", lanes{state.Normal: 20, state.Low: 15}, state.Low)
				for _, turn := range low {
					q.finish(turn)
				}
				q.lag("a lane is done", lanes{state.Normal: 20, state.Low: 5}, state.Low)
			})
		}
	}
}
