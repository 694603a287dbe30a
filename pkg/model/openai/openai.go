// Package openai speaks chat completions, OpenAI's own and those of compatible
// servers, through the official SDK.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const name = "openai"

// Provider calls chat completions.
type Provider struct{ http *http.Client }

var _ model.Provider = (*Provider)(nil)

// New returns a provider that uses client, or one of its own if nil.
func New(client *http.Client) *Provider {
	if client == nil {
		client = &http.Client{}
	}
	return &Provider{client}
}

// Generate implements model.Provider.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	params, err := paramsOf(r)
	if err != nil {
		return model.Response{}, &model.Error{Class: model.InvalidRequest, Provider: name, Message: err.Error(), Err: err}
	}
	// Retries are ours: the SDK's would hide failed calls from the run.
	opts := []option.RequestOption{option.WithHTTPClient(p.http), option.WithMaxRetries(0)}
	if r.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(r.BaseURL))
	}
	key := r.APIKey
	if key == "" {
		key = "none" // servers that need no key still get a header
	}
	opts = append(opts, option.WithAPIKey(key))
	client := sdk.NewClient(opts...)
	stream := client.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	var a accumulator
	for stream.Next() {
		a.add(stream.Current(), onDelta)
	}
	if err := stream.Err(); err != nil {
		return a.salvage(), classify(ctx, err)
	}
	if ctx.Err() != nil {
		return a.salvage(), model.ClassifyTransport(ctx, name, ctx.Err())
	}
	if a.finish == "" {
		return model.Response{}, &model.Error{Class: model.Transport, Provider: name, Message: "the stream ended before the response did"}
	}
	return a.response(), nil
}

func classify(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok && ctx.Err() == nil {
		var header http.Header
		if e.Response != nil {
			header = e.Response.Header
		}
		text := e.Message
		if e.Code != "" || e.Type != "" {
			text = fmt.Sprintf("%s (%s %s)", e.Message, e.Code, e.Type)
		}
		if e.Message == "" {
			text = http.StatusText(e.StatusCode)
		}
		return model.Classify(name, e.StatusCode, header, text)
	}
	return model.ClassifyTransport(ctx, name, err)
}

func paramsOf(r model.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model: r.Model, StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	if r.MaxOutputTokens > 0 {
		p.MaxCompletionTokens = param.NewOpt(r.MaxOutputTokens)
	}
	for _, m := range r.Messages {
		msgs, err := messagesOf(m)
		if err != nil {
			return p, err
		}
		p.Messages = append(p.Messages, msgs...)
	}
	for _, t := range r.Tools {
		var schema map[string]any
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return p, fmt.Errorf("schema of tool %s: %w", t.Name, err)
		}
		f := shared.FunctionDefinitionParam{Name: t.Name, Parameters: schema}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	if len(r.OutputSchema) > 0 {
		p.ResponseFormat = sdk.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "output", Schema: r.OutputSchema},
		}}
	}
	return p, nil
}

func messagesOf(m state.Message) ([]sdk.ChatCompletionMessageParamUnion, error) {
	switch m.Role {
	case state.RoleSystem:
		return []sdk.ChatCompletionMessageParamUnion{sdk.SystemMessage(m.Text())}, nil
	case state.RoleUser:
		var parts []sdk.ChatCompletionContentPartUnionParam
		for _, p := range m.Parts {
			switch p.Type {
			case state.PartText:
				parts = append(parts, sdk.TextContentPart(p.Text))
			case state.PartImage:
				url := p.URL
				if url == "" {
					url = "data:" + p.MediaType + ";base64," + p.Data
				}
				parts = append(parts, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: url}))
			default:
			}
		}
		if len(parts) == 1 && m.Parts[0].Type == state.PartText {
			return []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage(m.Parts[0].Text)}, nil
		}
		return []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage(parts)}, nil
	case state.RoleTool:
		var out []sdk.ChatCompletionMessageParamUnion
		for _, p := range m.Parts {
			out = append(out, sdk.ToolMessage(p.Content, p.CallID))
		}
		return out, nil
	case state.RoleAssistant:
		a := sdk.ChatCompletionAssistantMessageParam{}
		if text := m.Text(); text != "" || len(m.Calls()) == 0 {
			a.Content.OfString = param.NewOpt(text)
		}
		for _, c := range m.Calls() {
			a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID, Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: c.Arguments},
			}})
		}
		return []sdk.ChatCompletionMessageParamUnion{{OfAssistant: &a}}, nil
	default:
		return nil, fmt.Errorf("message %s has role %q", m.ID, m.Role)
	}
}

// accumulator joins the chunks of one stream.
type accumulator struct {
	text, refusal, thinking string
	calls                   []call
	finish                  string
	usage                   state.Usage
	model                   string
}

type call struct {
	index    int64
	id, name string
	args     string
}

func (a *accumulator) add(chunk sdk.ChatCompletionChunk, onDelta func(model.Delta)) {
	if chunk.Model != "" {
		a.model = chunk.Model
	}
	if u := chunk.Usage; u.TotalTokens > 0 || u.PromptTokens > 0 {
		a.usage.InputTokens, a.usage.OutputTokens = u.PromptTokens, u.CompletionTokens
		a.usage.CacheReadTokens = u.PromptTokensDetails.CachedTokens
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		a.text += d.Content
		a.refusal += d.Refusal
		delta := model.Delta{Text: d.Content}
		// Compatible servers send the thoughts of a model beside the text.
		if f, ok := d.JSON.ExtraFields["reasoning_content"]; ok && json.Unmarshal([]byte(f.Raw()), &delta.Thinking) == nil {
			a.thinking += delta.Thinking
		}
		if onDelta != nil && (delta.Text != "" || delta.Thinking != "") {
			onDelta(delta)
		}
		for _, t := range d.ToolCalls {
			a.addCall(t, onDelta)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

// addCall takes a piece of a tool call. Servers differ: the index may be missing
// from all pieces, the id from all but the first.
func (a *accumulator) addCall(t sdk.ChatCompletionChunkChoiceDeltaToolCall, onDelta func(model.Delta)) {
	i := -1
	for k := range a.calls {
		if a.calls[k].index == t.Index {
			i = k
		}
	}
	last := len(a.calls) - 1
	if i < 0 || i == last && t.ID != "" && a.calls[i].id != "" && t.ID != a.calls[i].id && t.Function.Name != "" {
		a.calls = append(a.calls, call{index: t.Index})
		i = len(a.calls) - 1
	}
	c := &a.calls[i]
	if c.id == "" {
		c.id = t.ID
	}
	c.name += t.Function.Name
	c.args += t.Function.Arguments
	if onDelta != nil {
		onDelta(model.Delta{Index: i, CallID: t.ID, Name: t.Function.Name, Arguments: t.Function.Arguments})
	}
}

func (a *accumulator) response() model.Response {
	r := model.Response{Provider: name, Model: a.model, Usage: a.usage, Stop: model.StopEnd}
	if a.thinking != "" {
		r.Parts = append(r.Parts, state.Part{Type: state.PartThinking, Text: a.thinking})
	}
	if text := a.text + a.refusal; text != "" || len(a.calls) == 0 {
		r.Parts = append(r.Parts, state.Part{Type: state.PartText, Text: text})
	}
	r.Parts = append(r.Parts, a.callParts(len(a.calls))...)
	switch {
	case a.finish == "length":
		r.Stop = model.StopMaxOutputTokens
	case a.finish == "content_filter":
		r.Stop = model.StopContentFilter
	case a.refusal != "":
		r.Stop = model.StopRefusal
	case len(a.calls) > 0:
		r.Stop = model.StopToolCalls
	}
	return r
}

// salvage returns the calls that surely had arrived whole when a stream was cut:
// those after which another began.
func (a *accumulator) salvage() model.Response {
	return model.Response{Provider: name, Model: a.model, Parts: a.callParts(len(a.calls) - 1)}
}

func (a *accumulator) callParts(n int) []state.Part {
	var parts []state.Part
	for _, c := range a.calls[:max(0, n)] {
		parts = append(parts, state.Part{Type: state.PartToolCall, ID: c.id, Name: c.name, Arguments: c.args})
	}
	return parts
}
