package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The times of a submission (created_at, deadlines, start_at) use the store's clock, whatever the gateway's own
// clock shows.
func TestClockOfTheStore(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		storeNow := func() time.Time { return time.Now().Add(skew) }
		store := memstore.New(memstore.Config{Now: storeNow})
		g, err := gateway.New(store, membus.New(), gateway.Config{})
		if err != nil {
			t.Fatal(err)
		}
		do := func(method, path, body string, into any) {
			t.Helper()
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body)))
			if w.Code/100 != 2 {
				t.Fatalf("%s %s = %d %s", method, path, w.Code, w.Body)
			}
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
				t.Fatal(err)
			}
		}
		do(http.MethodPut, "/v1/agents/a", `{"model":{"provider":"scripted","responses":[{"text":"hi"}]}}`, &struct{}{})
		load := func(id string) state.State {
			t.Helper()
			st, err := store.Load(t.Context(), state.RunID(id))
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		submit := func(more string) state.State {
			t.Helper()
			var run struct{ ID string }
			do(http.MethodPost, "/v1/runs", `{"agent":"a","input":"hi"`+more+`}`, &run)
			return load(run.ID)
		}
		near := func(what string, at state.Time, want time.Time) {
			t.Helper()
			if off := at.Sub(want).Abs(); off > time.Minute {
				t.Errorf("skew %s: %s is %s, off by %s", skew, what, at, off)
			}
		}
		st := submit(`,"limits":{"deadline":"10m"}`)
		near("the deadline", st.Limits.DeadlineAt, storeNow().Add(10*time.Minute))
		near("created_at", st.CreatedAt, storeNow())
		for _, c := range []struct {
			at   time.Duration
			want state.Status
		}{{time.Hour, state.Waiting}, {-time.Hour, state.Queued}} {
			at := fmt.Sprintf(`"start_at":%q`, storeNow().Add(c.at).UTC().Format(time.RFC3339))
			if st := submit("," + at); st.Status != c.want {
				t.Errorf("skew %s: a run with start_at %s from the store's time is %s, want %s", skew, c.at, st.Status, c.want)
			}
			var batch struct {
				RunIDs []string `json:"run_ids"`
			}
			do(http.MethodPost, "/v1/runs:batch", `{"runs":[{"agent":"a","input":"hi","limits":{"deadline":"3h"},`+at+`}]}`, &batch)
			st := load(batch.RunIDs[0])
			if st.Status != c.want {
				t.Errorf("skew %s: a run of a batch with start_at %s from the store's time is %s, want %s", skew, c.at, st.Status, c.want)
			}
			near("the deadline of a run of a batch", st.Limits.DeadlineAt, storeNow().Add(3*time.Hour))
		}
	}
}
