package worker_test

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run uses the agent of its own tenant, also if the default tenant has an agent of the same name.
func TestAgentOfTheTenant(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	says := func(text string) []byte {
		return []byte(`{"name":"a","model":{"provider":"scripted","responses":[{"text":"` + text + `"}]}}`)
	}
	for tenant, text := range map[string]string{state.DefaultTenant: "of all", "new": "of its tenant"} {
		if _, err := s.store.PutAgent(t.Context(), tenant, "a", says(text), false); err != nil {
			t.Fatal(err)
		}
	}
	s.work(s.config())
	for tenant, want := range map[string]state.Reason{"other": state.EndInvalidAgent, "new": state.EndCompleted} {
		run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: tenant, Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
		run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.Create(t.Context(), state.NewRun{State: run}); err != nil {
			t.Fatal(err)
		}
		if st := s.awaitReason(run.ID, want); st.Output != nil && *st.Output != "of its tenant" {
			t.Errorf("the run of tenant %s answers %q", tenant, *st.Output)
		}
	}
}
