package effect_test

import (
	"encoding/json"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// An agent takes over a run with values of variables that only the first agent declares. Its instructions have the
// values of its own variables.
func TestHandoffWithVariablesOfTheFirstAgent(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.open(agent.Definition{})
	definition := []byte(`{"name": "b", "model": {"provider": "scripted", "responses": [{"text": "ok"}]},
		"instructions": "Help {{who}}.", "variables": {"type": "object", "properties": {"who": {}}}}`)
	if _, err := s.store.PutAgent(t.Context(), state.DefaultTenant, "b", definition, false); err != nil {
		t.Fatal(err)
	}
	s.s.Variables = json.RawMessage(`{"who": "Ann", "order": 7}`)
	found, ok := s.do(loop.SwitchAgent{Agent: "b"}).(loop.AgentFound)
	if !ok || found.Problem != "" || found.Instructions != "Help Ann." {
		t.Errorf("the handoff has the instructions %q, and the problem %q", found.Instructions, found.Problem)
	}
}
