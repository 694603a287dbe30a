package openai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func respond(t *testing.T, lines ...string) (model.Response, error) {
	t.Helper()
	r := model.Request{Model: "m", API: model.APIResponses, BaseURL: serve(t, lines...), Messages: []state.Message{state.UserText("hi")}}
	return openai.New(openai.Config{}).Generate(t.Context(), r, nil)
}

// A response that failed has cost what it says.
func TestFailedResponseHasItsUsage(t *testing.T) {
	t.Parallel()
	resp, err := respond(t, `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"Oops."},"usage":{"input_tokens":70,"output_tokens":7}}}`)
	if err == nil || resp.Usage.InputTokens != 70 || resp.Usage.OutputTokens != 7 {
		t.Errorf("usage %+v, %v", resp.Usage, err)
	}
}

// A call that the API calls incomplete is not made, even if its arguments happen to be an object. The calls before it
// are.
func TestIncompleteCallIsNotMade(t *testing.T) {
	t.Parallel()
	item := func(id, status string) string {
		return `{"type":"response.output_item.done","item":{"id":"i` + id + `","type":"function_call","call_id":"` + id + `","name":"f","arguments":"{}","status":"` + status + `"}}`
	}
	resp, err := respond(t, item("a", "completed"), item("b", "incomplete"),
		`{"type":"response.incomplete","response":{"status":"incomplete","model":"m","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`)
	want := []state.Part{{Type: state.PartToolCall, ID: "a", Name: "f", Arguments: "{}"}}
	if diff := cmp.Diff(want, resp.Parts); err != nil || diff != "" || resp.Stop != model.StopMaxOutputTokens {
		t.Errorf("stop %s, %v, parts (-want +got):\n%s", resp.Stop, err, diff)
	}
}
