package stream

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// counted counts the loads of runs.
type counted struct {
	*memstore.Store

	loads atomic.Int64
}

func (c *counted) Load(ctx context.Context, id state.RunID) (state.State, error) {
	c.loads.Add(1)
	return c.Store.Load(ctx, id)
}

// waiting is a set of requests that each wait for a run.
type waiting struct {
	t     *testing.T
	store *counted
	bus   *membus.Bus
	waits *Waits
	ids   []state.RunID
	group sync.WaitGroup
	ended atomic.Int64
}

// newRuns returns the runs of a service.
func newRuns(t *testing.T, store state.Store, b bus.Bus) *service.Runs {
	t.Helper()
	s, err := service.New(store, b, service.Config{
		Prefix: "turnpike", Tenant: state.DefaultTenant, RedeliveryDelay: time.Second, Random: rand.Reader,
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Runs
}

func newWaiting(t *testing.T, n int) *waiting {
	t.Helper()
	w := &waiting{t: t, store: &counted{Store: memstore.New(memstore.Config{})}, bus: membus.New()}
	w.waits = NewWaits(newRuns(t, w.store, w.bus), w.store, w.bus, nil, 3*time.Second, t.Context().Done())
	for range n {
		s := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default", Priority: state.Normal}
		s, err := s.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Create(t.Context(), state.NewRun{State: s, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		w.ids = append(w.ids, s.ID)
		w.group.Go(func() {
			if st, done, err := w.waits.Wait(t.Context(), s, 10*time.Minute); done && err == nil && st.Status == state.Completed {
				w.ended.Add(1)
			}
		})
	}
	synctest.Wait()
	return w
}

// end ends all runs, with or without a notification of each.
func (w *waiting) end(tell bool) {
	w.t.Helper()
	for i, id := range w.ids {
		c, err := w.store.Claim(w.t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: fmt.Sprint(i), Worker: "w", Lease: time.Hour})
		if err != nil || c.Outcome != state.Claimed {
			w.t.Fatal(c.Outcome, err)
		}
		s, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.store.Commit(w.t.Context(), c.Lease, state.Commit{ID: fmt.Sprint(i), State: &s, From: c.State.LogLen()}); err != nil {
			w.t.Fatal(err)
		}
		if tell {
			w.bus.NotifyAppended(s.Tenant, id, c.State.LogLen(), s.LogLen())
		}
	}
}

// Waiters read the store when the log of their run has grown, and otherwise ten times a second in total,
// however many there are. A live event causes no read.
func TestWaitersLookLittle(t *testing.T) {
	t.Parallel()
	const waiters, seconds = 500, 20
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(t, waiters)
		for _, id := range w.ids {
			w.bus.PublishLive(id, []byte(`{"type":"model.delta"}`))
		}
		synctest.Wait()
		if n := w.store.loads.Load(); n != waiters {
			t.Errorf("%d reads by %d new waiters", n, waiters)
		}
		time.Sleep(seconds*time.Second + lookPause/2) // between two turns
		if n := w.store.loads.Load() - waiters; n < 8*seconds || n > 10*seconds {
			t.Errorf("%d reads in %d s, want about ten a second", n, seconds)
		}
		before := w.store.loads.Load()
		w.end(true)
		synctest.Wait()
		if n, looks := w.ended.Load(), w.store.loads.Load()-before; n != waiters || looks != waiters {
			t.Errorf("%d of %d returned after the end of their runs, after %d reads", n, waiters, looks)
		}
		w.group.Wait()
		time.Sleep(time.Second) // the goroutine that schedules the reads ends
	})
}

// Waiters find runs whose notifications are lost: the first one that does makes all of them read the store
// soon.
func TestWaitersOfLostHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 1000} {
			w := newWaiting(t, n)
			time.Sleep(3 * time.Second)
			began := time.Now()
			w.end(false)
			w.group.Wait()
			if took := time.Since(began); w.ended.Load() != int64(n) || took > 5*time.Second {
				t.Errorf("%d of %d returned after the end of their runs, after %s", w.ended.Load(), n, took)
			}
		}
		time.Sleep(time.Second)
	})
}
