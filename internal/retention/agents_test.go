package retention_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The retention of an agent applies to its own runs: not to those of its namesake in another tenant, nor to those of
// other agents, whether they have failed or not. Only the shorter of two periods counts.
func TestRetentionOfAnAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		if err := d.store.PutDocument(t.Context(), state.TenantDocument, "zoo", json.RawMessage(`{"name":"zoo"}`)); err != nil {
			t.Fatal(err)
		}
		for tenant, keep := range map[string]agent.Retention{
			"zoo":               {Completed: agent.Period(10 * time.Minute), Failed: agent.Period(20 * time.Minute)},
			state.DefaultTenant: {Completed: agent.Period(24 * time.Hour), Failed: agent.Period(24 * time.Hour)},
		} {
			def, err := json.Marshal(agent.Definition{Name: "a", Retention: keep})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.store.PutAgent(t.Context(), tenant, "a", def, false); err != nil {
				t.Fatal(err)
			}
		}
		ends := []state.Reason{state.EndCompleted, state.EndAbortedQueued, state.EndModelError}
		places := []struct {
			tenant, agent string
			ends          [3]time.Duration // of the periods of ends
		}{
			{"zoo", "a", [3]time.Duration{10 * time.Minute, 10 * time.Minute, 20 * time.Minute}},
			{"zoo", "b", [3]time.Duration{time.Hour, time.Hour, 2 * time.Hour}},
			{state.DefaultTenant, "a", [3]time.Duration{time.Hour, time.Hour, 2 * time.Hour}},
		}
		runs := map[state.RunID]time.Time{}
		for _, p := range places {
			for i, end := range ends {
				runs[d.runOf(p.tenant, p.agent, nil, end)] = time.Now().Add(p.ends[i])
			}
		}
		c := retention.New(d.store, d.bus, retention.Config{Keep: agent.Retention{Completed: agent.Period(time.Hour), Failed: agent.Period(2 * time.Hour)}})
		go c.Run(t.Context())
		for range 13 {
			time.Sleep(9 * time.Minute)
			for id, until := range runs {
				if left := time.Until(until); (left > 0) != d.has(id) && (left > 0 || left < -2*time.Minute) {
					s, err := d.store.Load(t.Context(), id)
					t.Errorf("%s before the end of its period the run is there: %v (%s of %s, %s), %v", left, err == nil, s.Agent, s.Tenant, s.Status, err)
				}
			}
		}
	})
}
