package gateway_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The time between a failure and its replay does not count in the duration of the run or of its version.
func TestIdleTimeIsNoDuration(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	began := time.Now().Add(-3 * time.Hour).Truncate(time.Millisecond)
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "hello", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, StartedAt: state.At(began)}
	for _, move := range []struct {
		reason state.Reason
		after  time.Duration
	}{
		{state.Submitted, 0}, {state.EndPoisoned, time.Second}, {state.Replayed, time.Hour + time.Second}, {state.EndCompleted, time.Hour + 3*time.Second},
	} {
		var err error
		if run, err = run.Move(move.reason, state.Entry{At: state.At(began.Add(move.after))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	took := func(where string, r api.Run) {
		t.Helper()
		if r.IdleMS != time.Hour.Milliseconds() || r.Took(r.StartedAt.Time, time.Now()) != 3*time.Second {
			t.Errorf("%s: idle %d ms, took %s", where, r.IdleMS, r.Took(r.StartedAt.Time, time.Now()))
		}
	}
	one, err := s.client.Get(t.Context(), string(run.ID))
	if err != nil {
		t.Fatal(err)
	}
	took("the run", one)
	for _, query := range []url.Values{nil, {"view": {"summary"}}} {
		page, err := s.client.List(t.Context(), query)
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("list %v: %d runs, %v", query, len(page.Items), err)
		}
		took("list "+query.Encode(), page.Items[0])
	}
	versions, err := s.client.AgentVersions(t.Context(), "hello", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if got := versions.Items[0].Runs.DurationMS; got.P50 == nil || *got.P50 != 3000 || *got.P95 != 3000 {
		t.Errorf("duration_ms of the version: %v", got)
	}
}
