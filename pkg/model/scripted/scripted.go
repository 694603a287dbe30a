// Package scripted is a model whose answers are written down in advance: the
// n-th call of a run gets the n-th answer. It makes runs deterministic, on any
// number of workers, because the count is kept in the run.
package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const provider = "scripted"

// Provider answers from Request.Responses.
type Provider struct{}

// New returns a scripted provider. It has no state.
func New() *Provider { return &Provider{} }

var _ model.Provider = (*Provider)(nil)

// Generate returns the response whose place is Request.Call. Past the last one it
// fails with class Exhausted: nothing is repeated.
func (*Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if r.Call < 0 || r.Call >= len(r.Responses) {
		return model.Response{}, &model.Error{
			Class: model.Exhausted, Provider: provider,
			Message: fmt.Sprintf("the script has %d responses and this is call %d", len(r.Responses), r.Call+1),
		}
	}
	s := r.Responses[r.Call]
	if err := wait(ctx, time.Duration(s.Delay)); err != nil {
		return model.Response{}, err
	}
	if s.Error != "" {
		return model.Response{}, &model.Error{
			Class: s.Error, Provider: provider, RetryAfter: time.Duration(s.RetryAfter), Message: "scripted " + string(s.Error),
		}
	}
	resp := response(s, r.Call)
	resp.Model = r.Model
	if resp.Model == "" {
		resp.Model = provider
	}
	if onDelta != nil {
		stream(resp.Parts, onDelta)
	}
	return resp, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		class := model.Cancelled
		if errors.Is(err, context.DeadlineExceeded) {
			class = model.Timeout
		}
		return &model.Error{Class: class, Provider: provider, Message: err.Error(), Err: err}
	}
	return nil
}

func response(s model.Scripted, call int) model.Response {
	resp := model.Response{Provider: provider, Stop: s.Stop}
	if s.Thinking != "" {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartThinking, Text: s.Thinking})
	}
	if s.Text != "" || len(s.ToolCalls) == 0 {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: s.Text})
	}
	for i, c := range s.ToolCalls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", call, i)
		}
		args := string(c.Arguments)
		if args == "" {
			args = "{}"
		}
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartToolCall, ID: id, Name: c.Name, Arguments: args})
	}
	if resp.Stop == "" {
		resp.Stop = model.StopEnd
		if len(s.ToolCalls) > 0 {
			resp.Stop = model.StopToolCalls
		}
	}
	if s.Usage != nil {
		resp.Usage.InputTokens, resp.Usage.OutputTokens = s.Usage.InputTokens, s.Usage.OutputTokens
	}
	return resp
}

// stream cuts a response into the pieces in which a model would send it: words,
// and calls in two.
func stream(parts []state.Part, onDelta func(model.Delta)) {
	index := 0
	for _, p := range parts {
		switch p.Type {
		case state.PartText:
			for _, word := range strings.SplitAfter(p.Text, " ") {
				onDelta(model.Delta{Text: word})
			}
		case state.PartThinking:
			onDelta(model.Delta{Thinking: p.Text})
		case state.PartToolCall:
			onDelta(model.Delta{Index: index, CallID: p.ID, Name: p.Name})
			onDelta(model.Delta{Index: index, Arguments: p.Arguments})
			index++
		default:
		}
	}
}

// FromEnv reads the value of DEBUG_MOCK_RESPONSES: a JSON array of strings (K8).
// A string that is a JSON object with tool_calls is a response with native tool
// calls, in OpenAI's form or as {name, arguments}; any other string is text.
func FromEnv(value string) ([]model.Scripted, error) {
	var texts []string
	if err := json.Unmarshal([]byte(value), &texts); err != nil {
		return nil, fmt.Errorf("DEBUG_MOCK_RESPONSES must be a JSON array of strings: %w", err)
	}
	responses := make([]model.Scripted, len(texts))
	for i, text := range texts {
		calls, err := nativeCalls(text)
		if err != nil {
			return nil, fmt.Errorf("DEBUG_MOCK_RESPONSES[%d]: %w", i, err)
		}
		if calls != nil {
			responses[i].ToolCalls = calls
		} else {
			responses[i].Text = text
		}
	}
	return responses, nil
}

// nativeCalls returns the calls of a response that has some, or nil.
func nativeCalls(text string) ([]model.ScriptedCall, error) {
	var native struct {
		ToolCalls []struct {
			ID        string          `json:"id"`
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			Function  *struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || json.Unmarshal([]byte(text), &native) != nil || len(native.ToolCalls) == 0 {
		return nil, nil
	}
	calls := make([]model.ScriptedCall, len(native.ToolCalls))
	for i, c := range native.ToolCalls {
		name, args := c.Name, c.Arguments
		if c.Function != nil {
			name, args = c.Function.Name, c.Function.Arguments
		}
		if name == "" {
			return nil, fmt.Errorf("tool_calls[%d] has no name", i)
		}
		// OpenAI sends arguments as a string that holds JSON.
		var quoted string
		if json.Unmarshal(args, &quoted) == nil {
			args = json.RawMessage(quoted)
		}
		calls[i] = model.ScriptedCall{ID: c.ID, Name: name, Arguments: args}
	}
	return calls, nil
}
