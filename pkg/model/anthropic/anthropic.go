// Package anthropic speaks Anthropic's messages API through the official SDK.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	name = "anthropic"

	// defaultMaxTokens is sent where the agent sets no limit: the API needs one.
	defaultMaxTokens = 8192
)

// Provider calls the messages API.
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
	opts := []option.RequestOption{option.WithHTTPClient(p.http), option.WithMaxRetries(0), option.WithAPIKey(r.APIKey)}
	if r.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(r.BaseURL))
	}
	client := sdk.NewClient(opts...)
	stream := client.Messages.NewStreaming(ctx, params)
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
	if !a.stopped {
		return model.Response{}, &model.Error{Class: model.Transport, Provider: name, Message: "the stream ended before the response did"}
	}
	return a.response(), nil
}

func classify(ctx context.Context, err error) error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || ctx.Err() != nil {
		return model.ClassifyTransport(ctx, name, err)
	}
	var header http.Header
	if e.Response != nil {
		header = e.Response.Header
	}
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	text := http.StatusText(e.StatusCode)
	if json.Unmarshal([]byte(e.RawJSON()), &body) == nil && body.Error.Type != "" {
		text = fmt.Sprintf("%s (%s)", body.Error.Message, body.Error.Type)
	}
	status := e.StatusCode
	if status == http.StatusOK {
		status = 0 // an error inside a stream: its type alone tells
	}
	return model.Classify(name, status, header, text)
}

func paramsOf(r model.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: r.Model, MaxTokens: r.MaxOutputTokens}
	if p.MaxTokens == 0 {
		p.MaxTokens = defaultMaxTokens
	}
	for _, m := range r.Messages {
		if m.Role == state.RoleSystem {
			p.System = append(p.System, sdk.TextBlockParam{Text: m.Text()})
			continue
		}
		role := sdk.MessageParamRoleUser
		if m.Role == state.RoleAssistant {
			role = sdk.MessageParamRoleAssistant
		}
		blocks := blocksOf(m)
		// Neighbours of one role are one message: the results of parallel calls must
		// be.
		if n := len(p.Messages); n > 0 && p.Messages[n-1].Role == role {
			p.Messages[n-1].Content = append(p.Messages[n-1].Content, blocks...)
		} else if len(blocks) > 0 {
			p.Messages = append(p.Messages, sdk.MessageParam{Role: role, Content: blocks})
		}
	}
	for _, t := range r.Tools {
		var schema map[string]any
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return p, fmt.Errorf("schema of tool %s: %w", t.Name, err)
		}
		delete(schema, "type")
		tool := sdk.ToolParam{Name: t.Name, InputSchema: sdk.ToolInputSchemaParam{ExtraFields: schema}}
		if t.Description != "" {
			tool.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	if len(r.OutputSchema) > 0 {
		var schema map[string]any
		if err := json.Unmarshal(r.OutputSchema, &schema); err != nil {
			return p, fmt.Errorf("output schema: %w", err)
		}
		p.OutputConfig.Format.Schema = schema
	}
	return p, nil
}

func blocksOf(m state.Message) []sdk.ContentBlockParamUnion {
	var blocks []sdk.ContentBlockParamUnion
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartText:
			if p.Text != "" { // the API refuses empty text
				blocks = append(blocks, sdk.NewTextBlock(p.Text))
			}
		case state.PartThinking:
			if b, ok := thinkingOf(p); ok {
				blocks = append(blocks, b)
			}
		case state.PartToolCall:
			args := json.RawMessage(p.Arguments)
			if _, ok := state.CompactObject(p.Arguments); !ok {
				args = json.RawMessage("{}")
			}
			blocks = append(blocks, sdk.NewToolUseBlock(p.ID, args, p.Name))
		case state.PartToolResult:
			blocks = append(blocks, sdk.NewToolResultBlock(p.CallID, p.Content, p.IsError))
		case state.PartImage:
			if p.URL != "" {
				blocks = append(blocks, sdk.NewImageBlock(sdk.URLImageSourceParam{URL: p.URL}))
			} else {
				blocks = append(blocks, sdk.NewImageBlockBase64(p.MediaType, p.Data))
			}
		}
	}
	return blocks
}

// signature is what a thinking block carries for its maker only.
type signature struct {
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// thinkingOf returns a thinking block as it came; those of other providers are not
// replayed (A12).
func thinkingOf(p state.Part) (sdk.ContentBlockParamUnion, bool) {
	var s signature
	if p.OpaqueBy != name || json.Unmarshal(p.Opaque, &s) != nil {
		return sdk.ContentBlockParamUnion{}, false
	}
	if s.Redacted != "" {
		return sdk.NewRedactedThinkingBlock(s.Redacted), true
	}
	return sdk.NewThinkingBlock(s.Signature, p.Text), true
}

// accumulator joins the events of one stream.
type accumulator struct {
	blocks  []block
	stop    string
	stopped bool
	usage   state.Usage
	model   string
}

type block struct {
	part state.Part
	sig  signature
	done bool
}

func (a *accumulator) add(e sdk.MessageStreamEventUnion, onDelta func(model.Delta)) {
	switch e.Type {
	case "message_start":
		a.model = e.Message.Model
		u := e.Message.Usage
		a.usage.CacheReadTokens, a.usage.CacheWriteTokens = u.CacheReadInputTokens, u.CacheCreationInputTokens
		a.usage.InputTokens = u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
		a.usage.OutputTokens = u.OutputTokens
	case "content_block_start":
		a.start(e, onDelta)
	case "content_block_delta":
		a.delta(e, onDelta)
	case "content_block_stop":
		if b := a.at(e.Index); b != nil {
			b.done = true
		}
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.stop = string(e.Delta.StopReason)
		}
		if e.Usage.OutputTokens > 0 {
			a.usage.OutputTokens = e.Usage.OutputTokens
		}
	case "message_stop":
		a.stopped = true
	}
}

// at returns the block of an index, or nil.
func (a *accumulator) at(i int64) *block {
	if i < 0 || i >= int64(len(a.blocks)) {
		return nil
	}
	return &a.blocks[i]
}

// maxBlocks bounds what a broken stream can make us keep.
const maxBlocks = 10_000

func (a *accumulator) start(e sdk.MessageStreamEventUnion, onDelta func(model.Delta)) {
	for int64(len(a.blocks)) <= e.Index && len(a.blocks) < maxBlocks {
		a.blocks = append(a.blocks, block{})
	}
	b := a.at(e.Index)
	if b == nil {
		return
	}
	c := e.ContentBlock
	switch c.Type {
	case "text":
		b.part = state.Part{Type: state.PartText, Text: c.Text}
	case "thinking":
		b.part, b.sig = state.Part{Type: state.PartThinking, Text: c.Thinking}, signature{Signature: c.Signature}
	case "redacted_thinking":
		b.part, b.sig = state.Part{Type: state.PartThinking}, signature{Redacted: c.Data}
	case "tool_use":
		b.part = state.Part{Type: state.PartToolCall, ID: c.ID, Name: c.Name}
		if onDelta != nil {
			onDelta(model.Delta{Index: int(e.Index), CallID: c.ID, Name: c.Name})
		}
	}
}

func (a *accumulator) delta(e sdk.MessageStreamEventUnion, onDelta func(model.Delta)) {
	b := a.at(e.Index)
	if b == nil {
		return
	}
	d := model.Delta{}
	switch e.Delta.Type {
	case "text_delta":
		b.part.Text += e.Delta.Text
		d.Text = e.Delta.Text
	case "thinking_delta":
		b.part.Text += e.Delta.Thinking
		d.Thinking = e.Delta.Thinking
	case "signature_delta":
		b.sig.Signature += e.Delta.Signature
		return
	case "input_json_delta":
		b.part.Arguments += e.Delta.PartialJSON
		d.Index, d.Arguments = int(e.Index), e.Delta.PartialJSON
	default:
		return
	}
	if onDelta != nil {
		onDelta(d)
	}
}

func (a *accumulator) response() model.Response {
	r := model.Response{Provider: name, Model: a.model, Usage: a.usage, Stop: model.StopEnd}
	calls := false
	for _, b := range a.blocks {
		p := b.part
		switch p.Type {
		case state.PartThinking:
			if opaque, err := json.Marshal(b.sig); err == nil {
				p.Opaque, p.OpaqueBy = opaque, name
			}
		case state.PartToolCall:
			calls = true
			if p.Arguments == "" {
				p.Arguments = "{}"
			}
		case state.PartText:
		default:
			continue // a server-side tool's block: nothing for us to keep
		}
		r.Parts = append(r.Parts, p)
	}
	if len(r.Parts) == 0 {
		r.Parts = []state.Part{{Type: state.PartText}}
	}
	switch a.stop {
	case "max_tokens", "model_context_window_exceeded":
		r.Stop = model.StopMaxOutputTokens
	case "refusal":
		r.Stop = model.StopRefusal
	case "pause_turn":
		r.Stop = model.StopPause
	default:
		if calls {
			r.Stop = model.StopToolCalls
		}
	}
	return r
}

// salvage returns the calls that had arrived whole when a stream was cut.
func (a *accumulator) salvage() model.Response {
	r := model.Response{Provider: name, Model: a.model}
	for _, b := range a.blocks {
		if b.part.Type == state.PartToolCall && b.done {
			p := b.part
			if p.Arguments == "" {
				p.Arguments = "{}"
			}
			r.Parts = append(r.Parts, p)
		}
	}
	return r
}
