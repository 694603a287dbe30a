package loop_test

import (
	"encoding/json"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A single_call run makes one call, without tools, and validates structured output (D7, D8).
func TestSingleCall(t *testing.T) {
	t.Parallel()
	def := agent.Definition{Loop: agent.Loop{Type: "single_call"}, OutputSchema: json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)}
	tests := []struct {
		name string
		resp model.Response
		want state.Reason
	}{
		{"valid", text(`{"n":1}`), state.EndCompleted},
		{"invalid", text(`{"n":"x"}`), state.EndInvalidOutput},
		{"not JSON", text(`one`), state.EndInvalidOutput},
		{"tool calls", calls("t"), state.EndModelError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, def, state.Limits{})
			r.begin(loop.TurnBegan{})
			if len(wantEffect[loop.CallModel](r).Schema) == 0 {
				t.Fatal("the model does not get the schema")
			}
			r.respond(tt.resp)
			r.wantReason(tt.want)
			if r.s.Turn != 1 {
				t.Fatalf("turn = %d, want 1", r.s.Turn)
			}
			if tt.want == state.EndCompleted && string(r.s.StructuredOutput) != `{"n":1}` {
				t.Fatalf("structured output = %s", r.s.StructuredOutput)
			}
			r.wantPaired()
		})
	}
}
