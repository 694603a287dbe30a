package service

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// TestPairedNamesTheMessage: an error about a tool call without a result names the message by what its author wrote or
// by its id. An index would count the messages after the conversion, which adds the instructions and splits results.
func TestPairedNamesTheMessage(t *testing.T) {
	long := strings.Repeat("long ", 30)
	for name, c := range map[string]struct{ input, want string }{
		"text": {
			`{"format":"anthropic","system":"Be kind.","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}}]},{"role":"user","content":"And then?"}]}`,
			`input: the tool call "a" has no result before the user message "And then?": add its result directly after the message with the call`,
		},
		"long text": {
			`[{"role":"assistant","parts":[{"type":"tool_call","id":"a","name":"t","arguments":{}}]},{"role":"user","content":"` + long + `"}]`,
			`input: the tool call "a" has no result before the user message that begins with "` + long[:40] + `": add its result directly after the message with the call`,
		},
		"image": {
			`[{"role":"assistant","parts":[{"type":"tool_call","id":"a","name":"t","arguments":{}}]},{"role":"user","parts":[{"type":"image","url":"https://example.com/a.png"}]}]`,
			`input: the tool call "a" has no result before the next user message: add its result directly after the message with the call`,
		},
		"result": {
			`{"format":"openai","messages":[{"role":"user","content":"Hi"},{"role":"tool","tool_call_id":"b","content":"sunny"}]}`,
			`input: the result "sunny" names the tool call "b", which is not a call of the preceding assistant message, or has a result already: remove this result, or correct the id in it`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := inputOf(json.RawMessage(c.input), "Be kind.")
			if got := ProblemOf(err).Detail; got != c.want {
				t.Errorf("the error is\n%s, want\n%s", got, c.want)
			}
		})
	}

	forked := fork{source: "run_1", History: state.History{Turn: 1, Messages: []state.Message{
		{ID: "msg_1_0", Role: state.RoleUser, Parts: state.UserText("Go.").Parts},
		{ID: "msg_2_0", Role: state.RoleAssistant, Turn: 1, Parts: state.UserText("Done.").Parts},
		{ID: "msg_3_0", Role: state.RoleUser, Parts: state.UserText("And then?").Parts},
	}}}
	forked.change(api.ForkRequest{
		Messages: []api.ForkMessage{{ID: "msg_2_0", Parts: []json.RawMessage{json.RawMessage(`{"type":"tool_call","id":"a","name":"t","arguments":{}}`)}}},
	}, "")
	want := `messages: the tool call "a" has no result before message msg_3_0: add its result directly after the message with the call`
	if got := ProblemOf(forked.err()).Detail; got != want {
		t.Errorf("the error of a fork is\n%s, want\n%s", got, want)
	}
}
