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

var _ model.Cancelable = (*Provider)(nil)

// Self implements model.Cancelable.
func (p *Provider) Self() model.Provider { return p }

// Generate returns the entry of Request.Responses with the index Request.Call. If there is no such entry, it fails at
// once with class Exhausted. With onDelta it spreads the pieces of a response over its delay, so that the last piece
// arrives when the delay ends, and an entry with a text and an error fails after the text was sent. Without onDelta it
// waits for the delay, and then returns the response or the error.
func (*Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	if err := ctx.Err(); err != nil {
		return model.Response{}, model.Interrupted(provider, err)
	}
	if r.Call < 0 || r.Call >= len(r.Responses) {
		return model.Response{}, exhausted(len(r.Responses), r.Call)
	}
	if onDelta == nil {
		if err := wait(ctx, time.Duration(r.Responses[r.Call].Delay)); err != nil {
			return model.Response{}, model.Interrupted(provider, err)
		}
	}
	return answer(ctx, &r, onDelta)
}

// answer returns a response, or its error. With onDelta it takes the delay of the response.
func answer(ctx context.Context, r *model.Request, onDelta func(model.Delta)) (model.Response, error) {
	s := r.Responses[r.Call]
	if s.Error != "" {
		e := &model.Error{
			Class: s.Error, Provider: provider, RetryAfter: time.Duration(s.RetryAfter), Message: "scripted " + string(s.Error), Partial: s.Text, Received: len(s.Text),
		}
		spent := model.Response{Provider: provider, Model: r.Model, Usage: usageOf(s)}
		if onDelta != nil {
			e.Streamed = s.Text != ""
			if _, err := stream(ctx, []state.Part{{Type: state.PartText, Text: s.Text}}, time.Duration(s.Delay), onDelta); err != nil {
				return spent, model.Interrupted(provider, err)
			}
		}
		return spent, e
	}
	if s.Show == model.ShowSettings {
		s.Text = settings(r)
	}
	resp := response(s, r)
	resp.Model = r.Model
	if resp.Model == "" {
		resp.Model = provider
	}
	if onDelta == nil {
		return resp, nil
	}
	said := &heard{onDelta: onDelta}
	known, err := stream(ctx, resp.Parts, time.Duration(s.Delay), said.add)
	if err != nil {
		e := model.Interrupted(provider, err)
		e.Streamed, e.Partial, e.Received = said.bytes > 0, said.text.String(), said.bytes
		partial := model.Response{Provider: provider, Model: resp.Model}
		if e.Class == model.Cancelled {
			partial.Parts = known
		}
		return partial, e
	}
	return resp, nil
}

// hosted is a provider's tool as settings shows it.
type hosted struct {
	Name     string          `json:"name"`
	MaxUses  int64           `json:"max_uses,omitempty"`
	Settings json.RawMessage `json:"settings,omitempty"`
}

// settings says with what a model was called.
func settings(r *model.Request) string {
	shown := struct {
		model.Settings
		Reasoning       model.Effort    `json:"reasoning,omitempty"`
		MaxOutputTokens int64           `json:"max_output_tokens,omitempty"`
		Tools           []string        `json:"tools,omitempty"`
		ProviderTools   []hosted        `json:"provider_tools,omitempty"`
		OutputSchema    json.RawMessage `json:"output_schema,omitempty"`
	}{Settings: r.Settings, Reasoning: r.Reasoning, MaxOutputTokens: r.MaxOutputTokens, OutputSchema: r.OutputSchema}
	for _, t := range r.ProviderTools {
		shown.ProviderTools = append(shown.ProviderTools, hosted(t))
	}
	for _, t := range r.Tools {
		shown.Tools = append(shown.Tools, t.Name)
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// heard is the part of a response that has been delivered.
type heard struct {
	onDelta func(model.Delta)
	text    strings.Builder
	bytes   int
}

func (h *heard) add(d model.Delta) {
	h.text.WriteString(d.Text)
	h.bytes += d.Len()
	h.onDelta(d)
}

// usageOf is what a response says that it has used.
func usageOf(s model.Scripted) state.Usage {
	if s.Usage == nil {
		return state.Usage{}
	}
	return state.Usage{
		InputTokens: s.Usage.InputTokens, OutputTokens: s.Usage.OutputTokens,
		CacheReadTokens: s.Usage.CacheReadTokens, CacheWriteTokens: s.Usage.CacheWriteTokens,
	}
}

func exhausted(responses, call int) error {
	return &model.Error{
		Class: model.Exhausted, Provider: provider, Message: fmt.Sprintf("the script has %d responses, and this is model call %d: add responses", responses, call+1),
	}
}

// wait waits for a time, if there is any, and returns the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// run plays the uses of provider's tools as a provider would: within the request's tools and bounds.
func run(uses []model.ScriptedUse, r *model.Request, resp *model.Response) {
	left := map[string]int64{}
	for _, t := range r.ProviderTools {
		if left[t.Name] = t.MaxUses; t.MaxUses == 0 {
			left[t.Name] = model.MostUses
		}
	}
	kept := &model.Uses{Seal: model.SealedBy(provider, r.Model)}
	for i, u := range uses {
		p := state.Part{ID: fmt.Sprintf("use_%d_%d", r.Call, i), Name: u.Name, Arguments: u.Text(), Content: u.Result, IsError: u.IsError}
		most, has := left[u.Name]
		switch {
		case !has:
			p.Content, p.IsError = "unavailable", true
		case most == 0:
			p.Content, p.IsError = "max_uses_exceeded", true
		default:
			left[u.Name]--
			switch u.Name {
			case model.WebSearch:
				resp.Usage.WebSearches++
			case model.WebFetch:
				resp.Usage.WebFetches++
			case model.CodeExecution:
				resp.Usage.CodeExecutions++
			}
		}
		raw, err := json.Marshal(u)
		if err != nil {
			continue // its arguments are no JSON
		}
		resp.Parts = append(resp.Parts, kept.Part(p, raw))
	}
}

func response(s model.Scripted, r *model.Request) model.Response {
	call := r.Call
	resp := model.Response{Provider: provider, Stop: s.Stop}
	if s.Thinking != "" {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartThinking, Text: s.Thinking})
	}
	resp.Usage = usageOf(s)
	run(s.ProviderTools, r, &resp)
	if s.Text != "" || len(s.ToolCalls) == 0 {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: s.Text})
	}
	if s.Stop == "" {
		resp.Stop = model.StopEnd
		if len(s.ToolCalls) > 0 {
			resp.Stop = model.StopToolCalls
		}
	}
	for i, c := range s.ToolCalls {
		if _, whole := state.CompactObject(c.Text()); !whole && s.Stop == model.StopMaxOutputTokens && i == len(s.ToolCalls)-1 {
			break // the output limit cut it off: half a call is never returned
		}
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", call, i)
		}
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartToolCall, ID: id, Name: c.Name, Arguments: c.Text()})
	}
	return resp
}

// stream sends a response in the pieces in which a model would send it: texts word by word, and each call in two
// pieces. It spreads them evenly over delay. If ctx ends first, it returns the calls that were sent completely by
// then, and the error of ctx.
func stream(ctx context.Context, parts []state.Part, delay time.Duration, onDelta func(model.Delta)) (known []state.Part, err error) {
	all, count, calls := make([][]model.Delta, len(parts)), 0, 0
	for i, p := range parts {
		all[i] = pieces(p, calls)
		count += len(all[i])
		if p.Type == state.PartToolCall {
			calls++
		}
	}
	began, sent := time.Now(), 0
	for i, p := range parts {
		for _, d := range all[i] {
			sent++
			at := time.Duration(float64(delay) * float64(sent) / float64(count))
			if err := wait(ctx, at-time.Since(began)); err != nil {
				return known, err
			}
			onDelta(d)
		}
		if p.Type == state.PartToolCall {
			known = append(known, p)
		}
	}
	if err := wait(ctx, delay-time.Since(began)); err != nil { // a response without pieces takes its time also
		return known, err
	}
	return known, nil
}

func pieces(p state.Part, index int) []model.Delta {
	var out []model.Delta
	switch p.Type {
	case state.PartText:
		for _, word := range strings.SplitAfter(p.Text, " ") {
			if word != "" {
				out = append(out, model.Delta{Text: word})
			}
		}
	case state.PartThinking:
		out = append(out, model.Delta{Thinking: p.Text})
	case state.PartToolCall:
		out = append(out, model.Delta{Index: index, CallID: p.ID, Name: p.Name}, model.Delta{Index: index, Arguments: p.Arguments})
	default:
	}
	return out
}

// FromEnv reads the value of DEBUG_MOCK_RESPONSES: a JSON array of strings (K8).
// A string that is a JSON object with tool_calls is a response with native tool
// calls, in OpenAI's form or as {name, arguments}; any other string is text.
func FromEnv(value string) ([]model.Scripted, error) {
	var texts []string
	if err := json.Unmarshal([]byte(value), &texts); err != nil {
		return nil, fmt.Errorf(`DEBUG_MOCK_RESPONSES is not a JSON array of strings (%w): set one such as ["Hello", "Bye"]`, err)
	}
	if texts == nil {
		return nil, errors.New("DEBUG_MOCK_RESPONSES is null: set a JSON array of strings such as [\"Hello\"]")
	}
	responses := make([]model.Scripted, len(texts))
	for i, text := range texts {
		response, native, err := nativeCalls(text)
		if err != nil {
			return nil, fmt.Errorf("DEBUG_MOCK_RESPONSES[%d]: %w", i, err)
		}
		if !native {
			response.Text = text
		}
		responses[i] = response
	}
	return responses, nil
}

// nativeCalls reads a response with native tool calls, and returns false for any
// other text.
func nativeCalls(text string) (model.Scripted, bool, error) {
	var native struct {
		Content   string `json:"content"`
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
		return model.Scripted{}, false, nil
	}
	calls := make([]model.ScriptedCall, len(native.ToolCalls))
	for i, c := range native.ToolCalls {
		name, args := c.Name, c.Arguments
		if c.Function != nil {
			name, args = c.Function.Name, c.Function.Arguments
		}
		if name == "" {
			return model.Scripted{}, false, fmt.Errorf("tool_calls[%d] has no name: name a tool", i)
		}
		calls[i] = model.ScriptedCall{ID: c.ID, Name: name, Arguments: args}
	}
	return model.Scripted{Text: native.Content, ToolCalls: calls}, true, nil
}
