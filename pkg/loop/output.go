package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The messages to the model after an answer that does not match the schema, and after a missing
// answer.
const (
	wrongOutput   = "Your answer was not accepted: %s. Answer again with one JSON value that matches the output schema, and nothing else."
	missingOutput = finalPrompt + " It must be one JSON value that matches the output schema, and nothing else."
)

// OutputSchema returns the JSON Schema that the output of the run must match, or nil. A Prompt should set
// CallModel.Schema to it where the model may answer. Whatever the Prompt, a run with a schema completes only with a
// matching value.
func (t *Turn) OutputSchema() []byte {
	switch {
	case len(t.s.OutputSchema) > 0:
		return t.s.OutputSchema
	case t.agent != nil && len(t.agent.OutputSchema) > 0:
		return t.agent.OutputSchema
	default:
		return nil
	}
}

// structured returns the JSON value of an output that matches the schema, or an error. Both are nil if there is
// no schema.
func (t *Turn) structured(output *string) (json.RawMessage, error) {
	schema := t.OutputSchema()
	if schema == nil {
		return nil, nil
	}
	if output == nil {
		return nil, errors.New("the answer has no output, and the output schema requires a JSON value: answer with one")
	}
	return jsonschema.ValidateOutput(schema, *output)
}

// accepted returns an answer that the schema accepts: the text, or the whole of it if the output limit
// cut it into several responses.
func (t *Turn) accepted(text string) (string, error) {
	_, err := t.structured(&text)
	if err == nil {
		return text, nil
	}
	if whole := pieces(t.s.Log); whole != text {
		if _, err := t.structured(&whole); err == nil {
			return whole, nil
		}
	}
	return text, err
}

// pieces joins the last response with those that it continues after the output limit.
func pieces(log []state.Entry) string {
	var texts []string
	for i := range slices.Backward(log) {
		e := &log[i]
		if len(texts) > 0 && e.Type == state.EntryTransition && e.Reason != state.MaxOutputTokensRecovery && e.Reason != state.Recovered {
			break
		}
		if e.Type == state.EntryModel && e.Message != nil {
			texts = append(texts, e.Message.Text())
		}
	}
	slices.Reverse(texts)
	return strings.Join(texts, "")
}

// retryOutput tells the model what is wrong with its answer, or ends the run if no retries are left.
// It counts the retries in the log, back to the last user message, so the state needs no counter.
func (t *Turn) retryOutput(output string, err error) Decision {
	limit, made := t.agent.MaxOutputRetries(), retries(t.s.Log)
	if made >= limit {
		return t.move(state.EndInvalidOutput, invalidOutput(output, err))
	}
	t.s.Recoveries = 0
	return t.Next(state.OutputRetry, fmt.Sprintf("retry %d of %d: %v", made+1, limit, err), state.UserText(fmt.Sprintf(wrongOutput, err)))
}

// retries returns the number of answers since the last user message that the model had to give again.
func retries(log []state.Entry) (made int) {
	for i := range slices.Backward(log) {
		e := &log[i]
		if e.Type != state.EntryCompacted && saidByUser(e.Messages) {
			break
		}
		if e.Reason == state.OutputRetry {
			made++
		}
		if i == 0 && e.Checkpoint != nil {
			made += e.Checkpoint.Retries
		}
	}
	return made
}

func invalidOutput(output string, err error) state.Entry {
	return state.Entry{Output: &output, Detail: err.Error(), Error: &state.Error{Code: string(state.EndInvalidOutput), Message: err.Error()}}
}

// conclude ends the run with the last text of the model, without calling stop hooks. If that text
// does not match the output schema, conclude asks the model for one that does.
func (t *Turn) conclude(from Node, r state.Reason, detail string) Decision {
	output := t.lastText()
	_, err := t.structured(output)
	switch {
	case err == nil:
		return t.move(r, state.Entry{Detail: detail, Output: output})
	case from == Think:
		return t.retryOutput(deref(output), err)
	default:
		return t.Next(state.FinalResponse, detail, state.UserText(missingOutput))
	}
}

// ended completes the entry that ends a run, and returns its reason. It adds the output's value. If the output does not
// match its schema, it turns a completed end into a failed one with the reason.
func (t *Turn) ended(r state.Reason, e *state.Entry) state.Reason {
	status, _ := r.Status()
	if !status.Terminal() || t.OutputSchema() == nil || e.Output == nil && status != state.Completed {
		return r
	}
	value, err := t.structured(e.Output)
	switch {
	case err == nil:
		e.StructuredOutput = value
	case status == state.Completed:
		wrong := invalidOutput(deref(e.Output), err)
		e.Output, e.Detail, e.Error = wrong.Output, wrong.Detail, wrong.Error
		return state.EndInvalidOutput
	}
	return r
}
