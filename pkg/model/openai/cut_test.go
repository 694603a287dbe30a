package openai_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// item is the event of a finished tool call.
func item(id, name, arguments, status string) string {
	return `{"type":"response.output_item.done","item":{"id":"i` + id + `","type":"function_call","call_id":"` + id + `","name":"` + name + `","arguments":"` + arguments + `","status":"` + status + `"}}`
}

// A call that the API calls incomplete is not made, even if its arguments happen to be an object. The calls before it
// are. A response is incomplete if either its status or its details say so.
func TestIncompleteCallIsNotMade(t *testing.T) {
	t.Parallel()
	for _, end := range []string{
		`"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}`, `"status":"incomplete","incomplete_details":null`, `"status":"completed","incomplete_details":{"reason":"max_output_tokens"}`,
	} {
		resp, err := respond(t, item("a", "f", "{}", "completed"), item("c", "", "{}", "completed"), item("b", "f", "{}", "incomplete"),
			`{"type":"response.incomplete","response":{"model":"m","output":[],`+end+`}}`)
		want := []state.Part{{Type: state.PartToolCall, ID: "a", Name: "f", Arguments: "{}"}}
		if diff := cmp.Diff(want, resp.Parts); err != nil || diff != "" || resp.Stop != model.StopMaxOutputTokens {
			t.Errorf("%s: stop %s, %v, parts (-want +got):\n%s", end, resp.Stop, err, diff)
		}
	}
}

// A call without a name is not made. One without arguments is, if the response is whole.
func TestCallsOfAWholeResponse(t *testing.T) {
	t.Parallel()
	resp, err := respond(t, item("a", "", "{}", "completed"), item("b", "f", "", "completed"), `{"type":"response.completed","response":{"status":"completed","model":"m","output":[]}}`)
	want := []state.Part{{Type: state.PartToolCall, ID: "b", Name: "f", Arguments: "{}"}}
	if diff := cmp.Diff(want, resp.Parts); err != nil || diff != "" || resp.Stop != model.StopToolCalls {
		t.Errorf("stop %s, %v, parts (-want +got):\n%s", resp.Stop, err, diff)
	}
}

// If the caller ends a call of a model while the response arrives, the tool calls that are known to be whole remain.
func TestCancelledResponseKeepsWholeCalls(t *testing.T) {
	t.Parallel()
	lines := []string{item("a", "f", "{}", "completed"), item("b", "f", "{", "completed"), item("c", "f", "{}", "incomplete")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range lines {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := model.Request{Model: "m", API: model.APIResponses, BaseURL: server.URL, Messages: []state.Message{state.UserText("hi")}}
	resp, err := openai.New(openai.Config{}).Generate(ctx, r, func(d model.Delta) {
		if d.CallID == "c" {
			cancel()
		}
	})
	want := []state.Part{{Type: state.PartToolCall, ID: "a", Name: "f", Arguments: "{}"}}
	e, ok := errors.AsType[*model.Error](err)
	if diff := cmp.Diff(want, resp.Parts); !ok || e.Class != model.Cancelled || diff != "" {
		t.Errorf("%v, parts (-want +got):\n%s", err, diff)
	}
}
