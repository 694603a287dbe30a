package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// sized returns a run whose texts and raw values have as many bytes as given, with calls that it waits for.
func sized(text, raw, calls int) api.Run {
	long, value := strings.Repeat("x", text), json.RawMessage(`"`+strings.Repeat("y", raw-2)+`"`)
	r := api.Run{
		ID: id, Output: &long, StructuredOutput: value, Variables: value, Metadata: map[string]string{"long": long, "short": "s"},
		Transition: api.Transition{Detail: long}, Error: &state.Error{Code: "c", Message: long}, Waiting: &api.Waiting{Question: &long},
	}
	for range calls {
		r.Waiting.Calls = append(r.Waiting.Calls, api.WaitCall{ID: "c", Message: long, Arguments: value, Again: &state.AskedAgain{OriginalArguments: value}})
	}
	return r
}

// A summary has less than the run where the run is too long for a list, and is the run where it is not. The run itself
// keeps everything: other readers may share its values.
func TestSummary(t *testing.T) {
	t.Parallel()
	run := sized(400, 1000, 10)
	if diff := cmp.Diff(run, run.Summary()); diff != "" {
		t.Errorf("the summary of a run that needs none:\n%s", diff)
	}
	run = sized(401, 1001, 11)
	got := run.Summary()
	if diff := cmp.Diff(sized(401, 1001, 11), run); diff != "" {
		t.Errorf("the run itself was cut:\n%s", diff)
	}
	short, null := strings.Repeat("x", 400)+"…", json.RawMessage("null")
	want := sized(1, 2, 10)
	*want.Output, want.Transition.Detail, want.Error.Message = short, short, short
	want.StructuredOutput, want.Variables, want.Metadata["long"] = null, null, short
	for i := range want.Waiting.Calls {
		c := &want.Waiting.Calls[i]
		c.Message, c.Arguments, c.Again.OriginalArguments = short, null, null
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the summary:\n%s", diff)
	}
	// A cut leaves no part of a character.
	run.Output = new(strings.Repeat("x", 399) + "é")
	if got := *run.Summary().Output; got != strings.Repeat("x", 399)+"…" {
		t.Errorf("the output is cut to %q", got)
	}
	// A wait without calls stays a list, not null.
	run.Waiting.Calls = []api.WaitCall{}
	if got := run.Summary().Waiting.Calls; got == nil {
		t.Error("the calls of a wait without any are null")
	}
}
