package e2e_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// order is a model that records the run of each call, in order.
type order struct {
	model.Provider

	mu   sync.Mutex
	runs []state.RunID
}

func (o *order) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	o.mu.Lock()
	o.runs = append(o.runs, r.Run)
	o.mu.Unlock()
	return o.Provider.Generate(ctx, r, onDelta)
}

// before returns the number of calls of other runs before the last call of a run.
func (o *order) before(id state.RunID) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.runs)
	for last > 0 && o.runs[last-1] != id {
		last--
	}
	return len(slices.DeleteFunc(slices.Clone(o.runs[:last]), func(r state.RunID) bool { return r == id }))
}

// tenant serves the API of one tenant.
func tenant(t *testing.T, store state.Store, b bus.Bus, name string) *api.Client {
	t.Helper()
	g, err := gateway.New(store, b, gateway.Config{Tenant: name})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return api.New(server.URL)
}

// A tenant has a thousand long runs queued in one lane, and the only worker has one slot. A later run of
// another tenant overtakes them, and they still make progress.
func TestNoisyTenantIsOvertaken(t *testing.T) {
	t.Parallel()
	const queued, most = state.MaxBatch, 30
	for _, name := range []string{"redis", "nats"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, prefix := testbed.NATS(t), "c"+ulid.Make().String()
			b, store := openOn(t, name, nc, prefix)
			many, few := tenant(t, store, b, "many"), tenant(t, store, b, "few")
			for agent, turns := range map[string]string{"long": `{"tool_calls":[{"name":"noop"}]},{"tool_calls":[{"name":"noop"}]},`, "short": `{"tool_calls":[{"name":"noop"}]},`} {
				for _, c := range []*api.Client{many, few} {
					if _, err := c.PutAgent(t.Context(), agent, fmt.Appendf(nil, `{"name":%q,"model":{"provider":"scripted","responses":[%s{"text":"done"}]},"tools":[{"name":"noop"}]}`, agent, turns)); err != nil {
						t.Fatal(err)
					}
				}
			}
			batch := api.BatchRequest{Runs: slices.Repeat([]api.SubmitRequest{{Agent: "long", Input: []byte(`"go"`)}}, queued)}
			if _, err := many.SubmitBatch(t.Context(), batch, ""); err != nil {
				t.Fatal(err)
			}
			run, err := few.Submit(t.Context(), api.SubmitRequest{Agent: "short", Input: []byte(`"go"`)}, "")
			if err != nil {
				t.Fatal(err)
			}
			asked := &order{Provider: scripted.New()}
			w, err := worker.New(store, b, worker.Config{
				ID: "w", Slots: 1, Providers: map[string]model.Provider{"scripted": asked},
				Kinds: toolspec.Kinds(map[string]tool.Tool{"noop": tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Content: "ok"}, nil })}),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			var working sync.WaitGroup
			working.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			t.Cleanup(func() { stop(); working.Wait() })
			eventually(t, "the short run is done", func() error {
				got, err := few.Get(t.Context(), run.ID)
				if err == nil && got.Status != string(state.Completed) {
					err = fmt.Errorf("is %s", got.Status)
				}
				return err
			})
			n := asked.before(state.RunID(run.ID))
			t.Logf("%d turns of the noisy tenant came first", n)
			if n > most {
				t.Errorf("%d turns of the noisy tenant came first, want %d at most", n, most)
			}
			eventually(t, "the noisy tenant goes on", func() error {
				asked.mu.Lock()
				defer asked.mu.Unlock()
				if len(asked.runs) < n+2+50 {
					return fmt.Errorf("%d calls", len(asked.runs))
				}
				return nil
			})
		})
	}
}
