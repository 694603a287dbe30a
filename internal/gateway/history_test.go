package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The history of a run is bounded, because each turn holds all of it in memory. Messages beyond the bound are
// refused; the run can still be read and cancelled.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{30: "", 40: api.CodeHistoryFull} {
		store := memstore.New(memstore.Config{})
		g, err := gateway.New(store, membus.New(), gateway.Config{StoreBudget: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		do := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			g.Handler().ServeHTTP(w, r)
			return w
		}
		if w := do(http.MethodPut, "/v1/agents/a", talker); w.Code >= http.StatusBadRequest {
			t.Fatal(w.Body)
		}
		run := state.State{ID: "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", Tenant: state.DefaultTenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
		if run, err = run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("x")}}); err != nil {
			t.Fatal(err)
		}
		long := []state.Message{state.UserText(strings.Repeat("z", 1<<20))}
		for range size {
			run.Log = append(run.Log, state.Entry{Seq: int64(len(run.Log) + 1), Type: state.EntryTransition, Reason: state.UserMessage, At: run.CreatedAt, Messages: long})
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		path := "/v1/runs/" + string(run.ID)
		for what, w := range map[string]*httptest.ResponseRecorder{"a message": do(http.MethodPost, path+"/signals", `{"message":"y"}`), "a fork": do(http.MethodPost, path+"/fork", `{"turn":0}`)} {
			if full := strings.Contains(w.Body.String(), api.CodeHistoryFull); full != (want != "") || full != (w.Code == http.StatusRequestEntityTooLarge) {
				t.Errorf("%s to a run of %d MiB: %d %.200s", what, size, w.Code, w.Body)
			}
		}
		if w := do(http.MethodGet, path, ""); w.Code != http.StatusOK {
			t.Errorf("GET of a run of %d MiB: %d", size, w.Code)
		}
		if w := do(http.MethodPost, path+"/cancel", ""); w.Code >= http.StatusBadRequest {
			t.Errorf("cancel of a run of %d MiB: %d %.200s", size, w.Code, w.Body)
		}
	}
}
