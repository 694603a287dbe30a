package mockmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// created is the time in every response, so that responses are always the same.
const created = 1790000000

// object is a JSON object under construction.
type object = map[string]any

// openAI is the format of OpenAI's chat completions.
type openAI struct{}

func (openAI) key(h http.Header) string { return strings.TrimPrefix(h.Get("Authorization"), "Bearer ") }

func (openAI) parse(body []byte) (query, error) {
	var r struct {
		Model         string `json:"model"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Metadata struct {
			Conversation ID `json:"conversation"`
		} `json:"metadata"`
		Messages []struct {
			Role      string     `json:"role"`
			Content   content    `json:"content"`
			ToolCalls []ToolCall `json:"tool_calls"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return query{}, err
	}
	q := query{
		model: r.Model, conversation: string(r.Metadata.Conversation), tokens: int64(len(body)/4) + 1,
		stream: r.Stream, usage: r.StreamOptions.IncludeUsage,
	}
	var text strings.Builder
	first := ""
	for _, m := range r.Messages {
		said := m.Content.text
		for _, c := range m.ToolCalls {
			said += "\n" + c.Function.Name + c.Function.Arguments
		}
		fmt.Fprintf(&text, "%s: %s\n", m.Role, said)
		if m.Role == "assistant" {
			q.assistants++
		}
		if q.assistants == 0 && m.Role != "tool" {
			first += said + "\x00"
		}
	}
	q.text, q.key = text.String(), hashKey(r.Model, first)
	return q, nil
}

func (openAI) finish(r reply) string {
	switch {
	case r.Stop == model.StopMaxOutputTokens:
		return "length"
	case r.Stop == model.StopContentFilter:
		return "content_filter"
	case len(r.calls) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}

func (openAI) count(r reply) object {
	u := r.usage
	return object{
		"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"prompt_tokens_details": object{"cached_tokens": u.CacheReadTokens, "cache_write_tokens": u.CacheWriteTokens},
	}
}

func (f openAI) whole(r reply, q query) any {
	message := object{"role": "assistant", "content": r.text, "refusal": nil}
	if r.Stop == model.StopRefusal {
		message["content"], message["refusal"] = nil, r.text
	}
	if r.Thinking != "" {
		message["reasoning_content"] = r.Thinking
	}
	var calls []object
	for _, c := range r.calls {
		calls = append(calls, object{"id": c.id, "type": "function", "function": object{"name": c.name, "arguments": c.args}})
	}
	if calls != nil {
		message["tool_calls"] = calls
		if r.text == "" {
			message["content"] = nil
		}
	}
	return object{
		"id": "chatcmpl-" + r.id, "object": "chat.completion", "created": created, "model": q.model,
		"choices": []object{{"index": 0, "message": message, "finish_reason": f.finish(r), "logprobs": nil}},
		"usage":   f.count(r),
	}
}

func (f openAI) events(r reply, q query) (body, end []event) {
	chunk := func(choices []object, usage any) event {
		return event{data: object{
			"id": "chatcmpl-" + r.id, "object": "chat.completion.chunk", "created": created, "model": q.model,
			"choices": choices, "usage": usage,
		}}
	}
	delta := func(d object) {
		body = append(body, chunk([]object{{"index": 0, "delta": d, "finish_reason": nil}}, nil))
	}
	delta(object{"role": "assistant", "content": ""})
	for _, piece := range r.pieces(r.Thinking) {
		if piece != "" {
			delta(object{"reasoning_content": piece})
		}
	}
	field := "content"
	if r.Stop == model.StopRefusal {
		field = "refusal"
	}
	for _, piece := range r.pieces(r.text) {
		if piece != "" {
			delta(object{field: piece})
		}
	}
	for i, c := range r.calls {
		delta(object{"tool_calls": []object{{"index": i, "id": c.id, "type": "function", "function": object{"name": c.name, "arguments": ""}}}})
		for _, piece := range r.pieces(c.args) {
			delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": piece}}}})
		}
	}
	end = append(end, chunk([]object{{"index": 0, "delta": object{}, "finish_reason": f.finish(r)}}, nil))
	if q.usage {
		end = append(end, chunk([]object{}, f.count(r)))
	}
	return body, append(end, event{data: "[DONE]"})
}

func (openAI) refuse(w http.ResponseWriter, p problem) {
	code, kind := any(nil), "invalid_request_error"
	switch p.kind {
	case "not_found":
		code = "model_not_found"
	case "script_exhausted":
		code = p.kind
	}
	writeJSON(w, p.status, object{"error": object{"message": p.message, "type": kind, "param": nil, "code": code}})
}

func (openAI) fail(w http.ResponseWriter, class model.Class, retryAfter time.Duration) {
	status, kind, code, text := http.StatusBadRequest, "invalid_request_error", any(nil), "" //nolint:wastedassign // the common case
	switch class {
	case model.RateLimited:
		status, kind, code = http.StatusTooManyRequests, "tokens", "rate_limit_exceeded"
		text = "Rate limit reached for gpt-mock in organization org-mock on tokens per min (TPM): Limit 30000, Used 29500, Requested 1200."
		if retryAfter > 0 {
			text += " Please try again in " + retryAfter.String() + "."
		}
		text += " Visit https://platform.openai.com/account/rate-limits to learn more."
	case model.Overloaded:
		status, kind, text = http.StatusServiceUnavailable, "server_error", "The engine is currently overloaded, please try again later"
	case model.Quota:
		status, kind, code = http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota"
		text = "You exceeded your current quota, please check your plan and billing details."
	case model.PromptTooLong:
		code = "context_length_exceeded"
		text = "This model's maximum context length is 128000 tokens. However, your messages resulted in 200341 tokens. Please reduce the length of the messages."
	case model.Auth:
		status, code = http.StatusUnauthorized, "invalid_api_key"
		text = "Incorrect API key provided: sk-mock***********. You can find your API key at https://platform.openai.com/account/api-keys."
	case model.ContentFilter:
		code, text = "content_filter", "The response was filtered due to the prompt triggering the content management policy."
	case model.Timeout:
		http.Error(w, "<html><head><title>504 Gateway Time-out</title></head></html>", http.StatusGatewayTimeout)
		return
	default:
		code, text = "invalid_value", "Invalid value for 'messages[0].role': expected one of 'system', 'assistant', 'user' or 'tool'."
	}
	setRetryAfter(w.Header(), retryAfter)
	writeJSON(w, status, object{"error": object{"message": text, "type": kind, "param": nil, "code": code}})
}
