package api_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Encode names the field that is not JSON.
func TestEncodeNamesTheField(t *testing.T) {
	t.Parallel()
	wrong, ok := json.RawMessage(`{"type":`), api.Text("x")
	for field, request := range map[string]any{
		"input":                   api.SubmitRequest{Input: json.RawMessage("plain text")},
		"output_schema":           api.SubmitRequest{Input: ok, OutputSchema: wrong},
		"variables":               &api.SubmitRequest{Input: ok, Variables: wrong},
		"runs[1].output_schema":   api.BatchRequest{Runs: []api.SubmitRequest{{Input: ok}, {Input: ok, OutputSchema: wrong}}},
		"tool_results[0].content": api.ForkRequest{ToolResults: []api.ForkResult{{Content: json.RawMessage{}}}},
		"messages[0].parts[1]":    api.ForkRequest{Messages: []api.ForkMessage{{Parts: []json.RawMessage{ok, wrong}}}},
		"message":                 api.SignalRequest{Message: json.RawMessage("hello")},
		"approvals[0].arguments":  api.SignalRequest{Approvals: []api.Approval{{Arguments: wrong}}},
		"":                        wrong,
	} {
		_, err := api.Encode(request)
		p, isProblem := errors.AsType[*api.Problem](err)
		if !isProblem || !errors.Is(err, api.ErrInvalid) || !strings.Contains(p.Detail, `field "`+field+`" of the request is not JSON`) {
			t.Errorf("Encode of a request whose field %s is not JSON = %v", field, err)
		}
	}
	if b, err := api.Encode(api.SubmitRequest{Agent: "a", Input: ok, OutputSchema: json.RawMessage{}}); err != nil || !json.Valid(b) {
		t.Errorf("Encode = %s, %v", b, err)
	}
}
