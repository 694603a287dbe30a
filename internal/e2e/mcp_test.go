package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run waits for an answer that an MCP server requests from a person. Each worker involved is killed in
// between, and the next continues with the server's own state (D5, D8).
func TestElicitationOutlivesWorkers(t *testing.T) {
	t.Parallel()
	server := filepath.Join(t.TempDir(), "server")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", server, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	s := newDeployment(t, 0)
	env := append(s.env, "TURNPIKE_MCP_COMMANDS="+server, testbed.ConfinementSetting(t))
	if _, err := s.client.PutAgent(t.Context(), "asker", fmt.Appendf(nil, `
tools: [{kind: mcp, command: [%q], allow: [test_input_required_result_multi_round, test_simple_text]}]
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: test_input_required_result_multi_round, id: a}, {name: test_simple_text, id: b}]}
    - {text: done}`, server)); err != nil {
		t.Fatal(err)
	}
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "asker", Input: json.RawMessage(`"go"`)}, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ question, answer string }{
		{"Step 1: What is your name?\nAnswer with name (string)\nor with decline or cancel.", "Ada"},
		{"Step 2: What is your favorite color?\nAnswer with color (string)\nor with decline or cancel.", `{"color": "green"}`},
	} {
		worker := spawn(t, "worker", env)
		eventually(t, "the run asks", func() error {
			run, err = s.client.Get(t.Context(), run.ID)
			if err == nil && (run.Waiting == nil || run.Waiting.Question == nil || *run.Waiting.Question != step.question) {
				err = fmt.Errorf("it is %s (%s: %s)", run.Status, run.Transition.Reason, run.Transition.Detail)
			}
			return err
		})
		worker.kill()
		if run.Waiting.Reason != string(state.WaitingHumanInput) || len(run.Waiting.Calls) != 1 || run.Waiting.Calls[0].ID != "a" {
			t.Errorf("waiting = %+v", run.Waiting)
		}
		if _, err := s.client.Signal(t.Context(), run.ID, api.SignalRequest{Answer: &step.answer}); err != nil {
			t.Fatal(err)
		}
	}
	spawn(t, "worker", env)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if run, err = s.client.Wait(ctx, run.ID); err != nil || run.Status != "completed" {
		t.Fatalf("run = %s (%s), %v", run.Status, run.Transition.Detail, err)
	}
	messages, err := s.client.Messages(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == state.PartToolResult {
				results = append(results, p.CallID+": "+p.Content)
			}
		}
	}
	want := []string{"a: Multi-round complete: Ada likes green", "b: This is a simple text response for testing."}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results:\n%s", diff)
	}
}
