package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxQuoted is the maximum length, in bytes, of an answer that a recorded case expects word for word.
const maxQuoted = 200

// Record returns a file, in YAML, with the agent of the first run, and a case for each run: the first message of the
// user as the input and, if the run has a short answer, the answer as an expectation; otherwise the expectation is that
// the run completes. Record fails if that message has no text, or if the model has answered before it. A person should
// edit the expectations, because models rarely repeat an answer exactly.
func Record(ctx context.Context, client Client, runs []string) ([]byte, error) {
	var f File
	for _, id := range runs {
		r, err := client.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		messages, err := client.AllMessages(ctx, id)
		if err != nil {
			return nil, err
		}
		input := firstInput(messages)
		if input == "" {
			return nil, fmt.Errorf("run %s does not begin with a text of a user: write its case by hand", id)
		}
		text, err := json.Marshal(input)
		if err != nil {
			return nil, err
		}
		if f.Agent == "" {
			f.Agent = r.Agent
		}
		c := Case{Name: id, Input: text, Variables: given(r.Variables)}
		if r.Output != nil && *r.Output != "" && len(*r.Output) <= maxQuoted {
			c.Expect = append(c.Expect, Expectation{Matches: regexp.QuoteMeta(*r.Output)})
		}
		if c.Expect == nil {
			c.Expect = []Expectation{{CEL: `status == "completed"`}}
		}
		f.Cases = append(f.Cases, c)
	}
	return yaml.Marshal(f)
}

// given returns the variables of a run, or nil if it has none.
func given(variables json.RawMessage) json.RawMessage {
	if string(variables) == "null" {
		return nil
	}
	return variables
}

// firstInput returns the text of the first message of the user, or "" if the model has answered before.
func firstInput(messages []api.Message) string {
	for _, m := range messages {
		if m.Role == state.RoleUser {
			return m.Text()
		}
		if m.Role == state.RoleAssistant {
			break
		}
	}
	return ""
}
