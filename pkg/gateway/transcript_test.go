package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A transcript that was exported begins another run, in either format.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, run := s.call("POST", "/v1/runs?wait=20s", `{"agent":"adder","input":"what is it?"}`)
	for _, format := range []string{"openai", "anthropic"} {
		doc, err := s.client.Export(t.Context(), run["id"].(string), format)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: doc}, "")
		if err != nil {
			t.Fatalf("%s: %v in %s", format, err, doc)
		}
		s.events(again.ID, 0, nil)
		var lines []string
		messages, err := s.client.Messages(t.Context(), again.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			line := string(m.Role)
			for _, p := range m.Parts {
				line += " " + p.Text + p.Name + p.Content
			}
			lines = append(lines, line)
		}
		if got := strings.Join(lines, "|"); got != "system Add.|user what is it?|assistant add|tool 42|assistant it is 42|assistant hi there" {
			t.Errorf("%s: transcript = %s", format, got)
		}
	}
	path := fmt.Sprintf("/v1/runs/%s/messages", run["id"])
	for query, want := range map[string]string{"?format=gemini": `format "gemini" is not one of`, "?format=openai&view=full": "leave out view"} {
		if code, _, p := s.call("GET", path+query, ""); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), want) {
			t.Errorf("%s = %d %v", query, code, p["detail"])
		}
	}
	for input, want := range map[string]string{
		`{"format":"openai","messages":[]}`: "input.messages is empty",
		`{"format":"openai"}`:               "input.messages is missing",
		`{"messages":[]}`:                   `input.format "" is not one of`,
		`{"format":"openai","messages":[{"role":"user","content":"x"}],"model":"gpt-5"}`:    `unknown field "model"`,
		`{"format":"anthropic","messages":[{"role":"robot","content":"x"}]}`:                `input.messages[0].role: "robot"`,
		`{"format":"openai","messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}`: `answers a call "c" that is not open`,
	} {
		body, _ := json.Marshal(map[string]any{"agent": "hello", "input": json.RawMessage(input)})
		if code, _, p := s.call("POST", "/v1/runs", string(body)); code != 400 || !strings.Contains(fmt.Sprint(p["detail"]), want) {
			t.Errorf("%s = %d %v, want %q", input, code, p["detail"], want)
		}
	}
}
