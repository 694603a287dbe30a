package worker_test

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run of a tenant that was stored when agents were of no tenant finds the version that it
// pinned. Where its tenant has that version, it is the tenant's.
func TestAgentOfTheTenant(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	says := func(text string) []byte {
		return []byte(`{"name":"a","model":{"provider":"scripted","responses":[{"text":"` + text + `"}]}}`)
	}
	for tenant, text := range map[string]string{state.DefaultTenant: "of all", "new": "of its tenant"} {
		if _, err := s.store.PutAgent(t.Context(), tenant, "a", says(text)); err != nil {
			t.Fatal(err)
		}
	}
	s.work(s.config())
	for tenant, want := range map[string]string{"old": "of all", "new": "of its tenant"} {
		run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: tenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
		if st := s.awaitReason(run.ID, state.EndCompleted); *st.Output != want {
			t.Errorf("the run of tenant %s says %q, want %q", tenant, *st.Output, want)
		}
	}
}
