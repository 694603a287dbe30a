package openai

import (
	"context"
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// reasoningField is what compatible servers call thinking; a few leave out the
// second word.
const (
	reasoningField      = "reasoning_content"
	reasoningFieldShort = "reasoning"
)

// chat makes a call of chat completions.
func chat(ctx context.Context, r model.Request, official bool, key string, options []option.RequestOption, onDelta func(model.Delta)) (model.Response, error) {
	service := sdk.NewChatCompletionService(options...)
	a := &chatAnswer{r: r, onDelta: onDelta, model: r.Model, calls: newCalls(r.Call)}
	stream := service.NewStreaming(ctx, chatParams(r, official))
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		a.add(stream.Current())
	}
	return a.end(ctx, key, stream.Err())
}

// chatAnswer is a response of chat completions under way.
type chatAnswer struct {
	r       model.Request
	onDelta func(model.Delta)

	model     string
	text      strings.Builder
	thinking  strings.Builder
	refused   bool
	calls     *calls
	finish    string
	usage     state.Usage
	delivered bool
}

func (a *chatAnswer) add(c sdk.ChatCompletionChunk) {
	if c.Model != "" {
		a.model = c.Model
	}
	if c.JSON.Usage.Valid() {
		a.usage = chatUsage(c.Usage)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.delta(choice.Delta)
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

func (a *chatAnswer) delta(d sdk.ChatCompletionChunkChoiceDelta) {
	for _, name := range []string{reasoningField, reasoningFieldShort} {
		var text string
		if f, ok := d.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(f.Raw()), &text) == nil && text != "" {
			a.thinking.WriteString(text)
			a.emit(model.Delta{Thinking: text})
			break
		}
	}
	if text := d.Content + d.Refusal; text != "" {
		a.refused = a.refused || d.Refusal != ""
		a.text.WriteString(text)
		a.emit(model.Delta{Text: text})
	}
	for _, c := range d.ToolCalls {
		a.emit(a.calls.add(piece{
			index: c.Index, hasIndex: c.JSON.Index.Valid(), id: c.ID, name: c.Function.Name, args: c.Function.Arguments,
		}))
	}
}

func (a *chatAnswer) emit(d model.Delta) {
	if a.onDelta != nil {
		a.delivered = true
		a.onDelta(d)
	}
}

// end makes the response, or the error. A finish reason makes a response whole:
// what may still follow is usage, and a response that was paid for is not thrown
// away because its usage got lost.
func (a *chatAnswer) end(ctx context.Context, key string, err error) (model.Response, error) {
	if a.finish != "" {
		return a.response(), nil
	}
	e := failure(ctx, key, err)
	if strings.Contains(e.Message, "max_tokens or model output limit was reached") {
		// Reasoning models say so with an error when they got nowhere.
		a.finish = "length"
		return a.response(), nil
	}
	e.Streamed, e.Partial = a.delivered, a.text.String()
	resp := model.Response{}
	if e.Class == model.Cancelled {
		resp = model.Response{Provider: provider, Model: a.model, Parts: a.calls.known()}
	}
	return resp, e
}

func (a *chatAnswer) response() model.Response {
	stop := a.stop()
	resp := model.Response{Provider: provider, Model: a.model, Stop: stop, Usage: a.usage}
	if a.thinking.Len() > 0 {
		resp.Parts = append(resp.Parts, state.Part{
			Type: state.PartThinking, Text: a.thinking.String(),
			Opaque: json.RawMessage(reasoningSeal), OpaqueBy: model.SealedBy(provider, a.r.Model),
		})
	}
	calls := a.calls.parts(stop)
	if a.text.Len() > 0 || len(calls) == 0 {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: a.text.String()})
	}
	resp.Parts = append(resp.Parts, calls...)
	return resp
}

func (a *chatAnswer) stop() model.Stop {
	switch {
	case a.finish == "length":
		return model.StopMaxOutputTokens
	case a.finish == "content_filter":
		return model.StopContentFilter
	case a.refused:
		return model.StopRefusal
	case len(a.calls.list) > 0:
		return model.StopToolCalls
	default:
		return model.StopEnd
	}
}

func chatUsage(u sdk.CompletionUsage) state.Usage {
	return state.Usage{
		InputTokens: max(0, u.PromptTokens), OutputTokens: max(0, u.CompletionTokens),
		CacheReadTokens: max(0, u.PromptTokensDetails.CachedTokens), CacheWriteTokens: max(0, u.PromptTokensDetails.CacheWriteTokens),
	}
}
