package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// distant is a store that takes 50 ms for each answer, with a hundred workers that hold runs.
type distant struct{ state.Store }

func wait(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d distant) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if err := wait(ctx); err != nil {
		return state.State{}, err
	}
	return d.Store.Load(ctx, id)
}

func (d distant) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	if err := wait(ctx); err != nil {
		return nil, err
	}
	return d.Store.Log(ctx, id, after, limit)
}

func (d distant) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	if err := wait(ctx); err != nil {
		return state.LogPage{}, err
	}
	return d.Store.LogPage(ctx, id, after, limit, bytes)
}

func (d distant) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	if err := wait(ctx); err != nil {
		return state.AgentVersion{}, err
	}
	return d.Store.Agent(ctx, tenant, name, version)
}

func (d distant) Owners(ctx context.Context) (ids []string, err error) {
	for i := range 100 {
		ids = append(ids, fmt.Sprint("worker-", i))
	}
	return ids, wait(ctx)
}

func (d distant) Leases(ctx context.Context, _ string, _ int) ([]state.RunID, error) {
	return nil, wait(ctx)
}

// manyLetters is a bus with a hundred dead letters of runs.
type manyLetters struct{ bus.Bus }

func (manyLetters) DeadLetters(_ context.Context, _ string, _ uint64, limit int) (letters []bus.DeadLetter, err error) {
	for i := range min(limit, 100) {
		letters = append(letters, bus.DeadLetter{Seq: uint64(i + 1), Kind: bus.DeadPoisoned, Run: "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"}) //nolint:gosec // small
	}
	return letters, nil
}

// A page whose items are read one by one is still answered in time from a distant store.
func TestPagesOfDistantStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		for i := range 100 {
			if _, err := store.PutAgent(t.Context(), state.DefaultTenant, "a", fmt.Appendf(nil, `{"name":"a","instructions":"%d"}`, i), false); err != nil {
				t.Fatal(err)
			}
		}
		g, err := gateway.New(distant{store}, manyLetters{membus.New()}, gateway.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/v1/dead?limit=200", "/v1/workers?limit=200", "/v1/agents/a/versions?limit=200"} {
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil))
			if w.Code != http.StatusOK {
				t.Errorf("GET %s = %d %.300s", path, w.Code, w.Body)
			}
		}
	})
}

// A long run accepts messages in time on a distant store: its log is read in few pages.
func TestLongRunOfDistantStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		run := state.State{ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", Tenant: state.DefaultTenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		for range 5000 {
			run.Log = append(run.Log, state.Entry{Seq: int64(len(run.Log) + 1), Type: state.EntryProgress, At: run.CreatedAt})
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(distant{store}, membus.New(), gateway.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/v1/runs/"+string(run.ID)+"/signals", strings.NewReader(`{"message":"hello"}`))
		r.Header.Set("Content-Type", "application/json")
		if g.Handler().ServeHTTP(w, r); w.Code != http.StatusAccepted {
			t.Errorf("a message = %d %.300s", w.Code, w.Body)
		}
	})
}

// A distant store answers what a page shows of a run at once: each answer after another would double the wait.
func TestReadsOfDistantStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		run := state.State{ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", Tenant: state.DefaultTenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(distant{store}, membus.New(), gateway.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"", "/messages", "/messages?view=session", "/turns"} {
			w, begun := httptest.NewRecorder(), time.Now()
			g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/v1/runs/"+string(run.ID)+path, nil))
			if took := time.Since(begun); w.Code != http.StatusOK || took != 50*time.Millisecond {
				t.Errorf("GET of %q = %d after %s, want 200 after one answer of the store: %.300s", path, w.Code, took, w.Body)
			}
		}
	})
}
