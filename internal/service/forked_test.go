package service

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A fork keeps the lane and the stream of its source, and counts as a submission. A
// version of the agent that cannot continue a history is refused.
func TestForkKeepsWhatItsSourceHas(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	source, err := s.Submissions.Submit(t.Context(), s.c, Submission{
		Request: api.SubmitRequest{Agent: "a", Input: api.Text("hi"), Priority: "high", Stream: "deltas"}, Body: []byte(`{}`), Source: "http",
	})
	if err != nil {
		t.Fatal(err)
	}
	fork := func(version *int) (state.State, error) {
		return s.Submissions.Fork(t.Context(), s.c, Forking{Run: string(source.ID), Request: api.ForkRequest{Turn: new(0), AgentVersion: version}, Body: []byte(`{}`)})
	}
	made, err := fork(nil)
	if err != nil {
		t.Fatal(err)
	}
	if made.Priority != state.High || made.Stream != source.Stream || source.Stream == "" {
		t.Errorf("the fork has the lane %s and the stream %q; its source %s and %q", made.Priority, made.Stream, source.Priority, source.Stream)
	}
	log, err := s.Triggers.store.Log(t.Context(), made.ID, 0, 1)
	if err != nil || len(log) != 1 || len(log[0].Messages) != 1 || log[0].Messages[0].ID != "msg_1_0" {
		t.Errorf("the fork begins with %+v, %v", log, err)
	}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); f.GetName() == "turnpike_runs_submitted_total" && labels[0].GetValue() == "fork" {
				counted = m.GetCounter().GetValue()
			}
		}
	}
	if counted != 1 {
		t.Errorf("%v forks are counted", counted)
	}
	if _, err := s.Agents.Put(t.Context(), s.c, "a", []byte("name: a\nloop: {type: single_call}\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := fork(new(2)); err == nil {
		t.Error("a fork with the loop single_call was started")
	}
}

// A result that a fork replaces is the one that its request gives, up to the maximum size, and as from a person.
func TestForkReplacesResults(t *testing.T) {
	t.Parallel()
	call := state.Message{ID: "m1", Role: state.RoleAssistant, Turn: 1, Parts: []state.Part{{Type: state.PartToolCall, ID: "a", Name: "t", Arguments: `{}`}, {Type: state.PartToolCall, ID: "b", Name: "t", Arguments: `{}`}}}
	both := state.Message{ID: "m2", Role: state.RoleTool, Turn: 1, Parts: []state.Part{{Type: state.PartToolResult, CallID: "a", Content: "1"}, {Type: state.PartToolResult, CallID: "b", Content: "2"}}}
	replaced := func(r api.ForkResult) (state.Message, error) {
		f := fork{History: state.History{Messages: []state.Message{call, both}, Turn: 1}}
		f.change(api.ForkRequest{ToolResults: []api.ForkResult{r}}, "")
		return f.Messages[1], f.err()
	}
	image := state.Image{MediaType: "image/png", Data: "iVBORw0KGgo="}
	text := state.Part{Type: state.PartFile, Name: "a.txt", MediaType: "text/plain", Data: "aGk="}
	kept := text
	kept.Bytes = 2
	got, err := replaced(api.ForkResult{CallID: "b", Content: []byte(`"no"`), IsError: true, Images: []state.Image{image}, Files: []state.Part{text}})
	if err != nil {
		t.Fatal(err)
	}
	want := both
	want.Parts = []state.Part{both.Parts[0], {
		Type: state.PartToolResult, CallID: "b", Content: "no", IsError: true, Images: []state.Image{image}, Origin: state.OriginPerson,
		Files: []state.Part{kept},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the message with the results:\n%s", diff)
	}
	if p := both.Parts[1]; p.Content != "2" {
		t.Errorf("the result in the log of the source became %+v", p)
	}
	for at, r := range map[string]api.ForkResult{
		".images": {Images: []state.Image{image, {MediaType: "image/png", Data: "?"}}},
		".files":  {Files: []state.Part{text, {Type: state.PartFile}}},
	} {
		r.CallID, r.Content = "b", []byte(`"no"`)
		got, err := replaced(r)
		if err == nil || !strings.Contains(err.Error(), "tool_results[0]"+at) {
			t.Errorf("invalid %s: %v", at, err)
		}
		if diff := cmp.Diff(both, got); diff != "" {
			t.Errorf("invalid %s: the message with the results:\n%s", at, diff)
		}
	}
	for size, ok := range map[int]bool{maxForkResult: true, maxForkResult + 1: false} {
		if _, err := replaced(api.ForkResult{CallID: "b", Content: api.Text(strings.Repeat("x", size))}); (err == nil) != ok {
			t.Errorf("a result of %d bytes: %v", size, err)
		}
	}
}
