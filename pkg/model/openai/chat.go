package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// reasoningField and reasoningFieldShort are the names of thinking at compatible servers. extraField of a tool call has
// the signature of Google's server.
const (
	reasoningField      = "reasoning_content"
	reasoningFieldShort = "reasoning"
	extraField          = "extra_content"
)

// chat makes a call of chat completions.
func chat(ctx context.Context, r model.Request, official bool, key string, options []option.RequestOption, onDelta func(model.Delta)) (model.Response, error) {
	a := &chatAnswer{r: r, receipt: model.ReceiptFrom(ctx), onDelta: onDelta, model: r.Model, calls: newCalls(r.Call, model.SealedBy(provider, r.Model))}
	stream := chatStream(ctx, r, official, options)
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		a.add(stream)
	}
	return a.end(ctx, key, stream.Err())
}

// chatStream makes the request.
func chatStream(ctx context.Context, r model.Request, official bool, options []option.RequestOption) *ssestream.Stream[sdk.ChatCompletionChunk] {
	service := sdk.NewChatCompletionService(options...)
	return service.NewStreaming(ctx, chatParams(r, official))
}

// chatAnswer is a response of chat completions in flight.
type chatAnswer struct {
	r       model.Request
	onDelta func(model.Delta)

	model     string
	text      strings.Builder
	thinking  strings.Builder
	refused   bool
	listed    bool // the thinking arrived in lists
	calls     *calls
	finish    string
	usage     state.Usage
	delivered bool
	received  int // bytes
	receipt   *model.Receipt
}

// add processes the current event of the stream. No other function has the event on its stack: the event is large, and
// calls wait long.
func (a *chatAnswer) add(stream *ssestream.Stream[sdk.ChatCompletionChunk]) {
	c := stream.Current()
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
		a.say(extra(choice.JSON.ExtraFields, "text")) // of the completions API before chat
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

func (a *chatAnswer) delta(d sdk.ChatCompletionChunkChoiceDelta) {
	a.think(cmp.Or(extra(d.JSON.ExtraFields, reasoningField), extra(d.JSON.ExtraFields, reasoningFieldShort)))
	if raw := d.JSON.Content.Raw(); strings.HasPrefix(raw, "[") {
		a.chunks([]byte(raw))
	} else {
		a.say(d.Content)
	}
	a.refused = a.refused || d.Refusal != ""
	a.say(d.Refusal)
	known := len(a.calls.list)
	for _, c := range d.ToolCalls {
		a.emit(a.calls.add(piece{
			index: c.Index, hasIndex: c.JSON.Index.Valid(), id: c.ID, name: c.Function.Name, args: c.Function.Arguments,
			extra: c.JSON.ExtraFields[extraField].Raw(),
		}))
	}
	a.receipt.KeepItems(len(a.calls.list) - known)
}

// extra returns a text field that OpenAI's own format lacks, or "".
func extra(fields map[string]respjson.Field, name string) string {
	var text string
	if json.Unmarshal([]byte(fields[name].Raw()), &text) != nil {
		return ""
	}
	return text
}

// contentChunk is a piece of content that is a list, as Mistral sends it when a model thinks. The thinking is a list
// again, or a text.
type contentChunk struct {
	Type, Text string
	Thinking   json.RawMessage
}

func (a *chatAnswer) chunks(raw []byte) {
	var list []contentChunk
	if json.Unmarshal(raw, &list) != nil {
		return
	}
	for _, c := range list {
		a.say(c.Text)
		if len(c.Thinking) == 0 {
			continue
		}
		a.listed = true
		var text string
		var inner []contentChunk
		if json.Unmarshal(c.Thinking, &text) != nil && json.Unmarshal(c.Thinking, &inner) != nil {
			continue
		}
		a.think(text)
		for _, t := range inner {
			a.think(t.Text)
		}
	}
}

func (a *chatAnswer) think(text string) {
	if text != "" {
		a.thinking.WriteString(text)
		a.emit(model.Delta{Thinking: text})
	}
}

func (a *chatAnswer) say(text string) {
	if text != "" {
		a.text.WriteString(text)
		a.emit(model.Delta{Text: text})
	}
}

func (a *chatAnswer) emit(d model.Delta) {
	a.received += d.Len()
	a.receipt.Keep(d.Len())
	if a.onDelta != nil {
		a.delivered = true
		a.onDelta(d)
	}
}

// end returns the response, or the error. A response with a finish reason outside gaveUp is complete: only usage may
// follow, and a response that was paid for is kept even if its usage is lost. An error that reports the output limit
// counts as a response that the limit cut off. With an error, end also returns the usage as far as it is known and, if
// the call was cancelled, the complete tool calls except the last received one, which may lack a piece.
func (a *chatAnswer) end(ctx context.Context, key string, err error) (model.Response, error) {
	var e *model.Error
	switch {
	case a.finish == "":
		e = failure(ctx, key, err)
	case gaveUp[a.finish]:
		e = &model.Error{Class: model.Overloaded, Provider: provider, Status: http.StatusOK, Message: "the model's server ended the response with finish_reason " + a.finish + ": if this repeats, check the log of the server or the provider's status"}
	default:
		return a.response(), nil
	}
	if strings.Contains(e.Message, "max_tokens or model output limit was reached") {
		// A reasoning model ends so if the limit was reached before it had an answer.
		a.finish = "length"
		return a.response(), nil
	}
	e.Streamed, e.Partial, e.Received = a.delivered, a.text.String(), a.received
	resp := model.Response{Provider: provider, Model: a.model, Usage: a.usage}
	resp.Usage.Estimated = a.usage != (state.Usage{}) // some servers report it with each piece
	if e.Class == model.Cancelled {
		resp.Parts = a.calls.known()
	}
	return resp, e
}

func (a *chatAnswer) response() model.Response {
	stop := a.stop()
	resp := model.Response{Provider: provider, Model: a.model, Stop: stop, Usage: a.usage}
	if a.thinking.Len() > 0 {
		seal := reasoningSeal
		if a.listed {
			seal = listSeal
		}
		resp.Parts = append(resp.Parts, state.Part{
			Type: state.PartThinking, Text: a.thinking.String(),
			Opaque: json.RawMessage(seal), OpaqueBy: model.SealedBy(provider, a.r.Model),
		})
	}
	calls := a.calls.parts(stop)
	if a.text.Len() > 0 || len(calls) == 0 {
		resp.Parts = append(resp.Parts, state.Part{Type: state.PartText, Text: a.text.String()})
	}
	resp.Parts = append(resp.Parts, calls...)
	return resp
}

// gaveUp has the finish reasons of failed responses from Mistral, vLLM and DeepSeek.
var gaveUp = map[string]bool{"error": true, "abort": true, "insufficient_system_resource": true}

func (a *chatAnswer) stop() model.Stop {
	switch {
	case a.finish == "length", a.finish == "model_length", a.finish == "model_context_window_exceeded": // of Mistral and Z.ai
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

// chatUsage converts the usage. Some servers count reasoning only in the total, and some have other names for cached
// tokens.
func chatUsage(u sdk.CompletionUsage) state.Usage {
	cached := u.PromptTokensDetails.CachedTokens
	for _, name := range []string{"prompt_cache_hit_tokens", "cached_tokens"} { // of DeepSeek and Kimi
		var n int64
		if json.Unmarshal([]byte(u.JSON.ExtraFields[name].Raw()), &n) == nil {
			cached = max(cached, n)
		}
	}
	return state.Usage{
		InputTokens: max(0, u.PromptTokens), OutputTokens: max(0, u.CompletionTokens, u.TotalTokens-max(0, u.PromptTokens)),
		CacheReadTokens: max(0, cached), CacheWriteTokens: max(0, u.PromptTokensDetails.CacheWriteTokens),
	}
}
