package gateway_test

import (
	"fmt"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The runs of a batch have what the request asks for.
func TestBatchKeepsItsSettings(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for _, count := range []bool{false, true} {
		made, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{CountWaiting: count, Runs: []api.SubmitRequest{
			{Agent: "hello", Input: api.Text("x"), Limits: &api.SubmitLimits{Runs: 7}}, {Agent: "hello", Input: api.Text("y")},
		}}, "")
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range made.RunIDs {
			st, err := s.store.Load(t.Context(), state.RunID(id))
			if err != nil || st.Batch == nil || st.Batch.CountWaiting != count || i == 0 && st.Limits.Runs != 7 {
				t.Errorf("run %d with count_waiting %v: %+v, limits %+v, %v", i, count, st.Batch, st.Limits, err)
			}
		}
	}
}

// A mistake in one run of a batch is reported at the place of that run.
func TestMistakesOfABatchHavePlaces(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("asks", `{instructions: "Help {{who}}.", variables: {properties: {who: {type: string}}, required: [who]}, model: {provider: scripted}}`)
	code, _, p := s.call("POST", "/v1/runs:batch", `{"runs":[{"agent":"asks","input":"x","variables":{"who":"a"}},{"agent":"asks","input":"x","variables":{"whom":"a"}}]}`)
	list, _ := p["errors"].([]any)
	var places []string
	for _, e := range list {
		places = append(places, fmt.Sprint(e.(map[string]any)["at"])) //nolint:forcetypeassert // as documented
	}
	if got := fmt.Sprint(places); code != 400 || got != "[runs[1].variables.whom runs[1].variables.who]" {
		t.Errorf("%d %v", code, p)
	}
}

// Runs of one batch may have several versions of one agent.
func TestBatchOfVersions(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for _, text := range []string{"one", "two"} {
		s.put("versioned", "{instructions: "+text+", model: {provider: scripted}}")
	}
	made, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{
		{Agent: "versioned", AgentVersion: 1, Input: api.Text("x")}, {Agent: "versioned", Input: api.Text("x")}, {Agent: "versioned", AgentVersion: 2, Input: api.Text("x")}, {Agent: "versioned", AgentVersion: 1, Input: api.Text("x")},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 2, 2, 1} {
		if st, err := s.store.Load(t.Context(), state.RunID(made.RunIDs[i])); err != nil || st.AgentVersion != want {
			t.Errorf("run %d has version %d, %v, want %d", i, st.AgentVersion, err, want)
		}
	}
}
