package mockmodel

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

type obj = map[string]any

func line(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	return "data: " + string(b) + "\n\n"
}

// openAI is the format of chat completions.
type openAI struct{}

func (openAI) finish(a Answer) string {
	switch {
	case a.Stop == model.StopMaxOutputTokens:
		return "length"
	case a.Stop == model.StopContentFilter:
		return "content_filter"
	case len(a.ToolCalls) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}

func (openAI) usage(a Answer) obj {
	u := usage(a)
	return obj{"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens}
}

func (f openAI) whole(name string, n int, a Answer) any {
	_, calls := parts(a, n)
	msg := obj{"role": "assistant", "content": a.Text}
	if a.Stop == model.StopRefusal {
		msg["content"], msg["refusal"] = nil, a.Text
	}
	var list []obj
	for _, c := range calls {
		list = append(list, obj{"id": c.ID, "type": "function", "function": obj{"name": c.Name, "arguments": c.Arguments}})
	}
	if list != nil {
		msg["tool_calls"] = list
	}
	return obj{
		"id": fmt.Sprintf("chatcmpl-%d", n), "object": "chat.completion", "created": 0, "model": name,
		"choices": []obj{{"index": 0, "message": msg, "finish_reason": f.finish(a)}}, "usage": f.usage(a),
	}
}

func (f openAI) events(name string, n int, a Answer) []string {
	words, calls := parts(a, n)
	chunk := func(delta obj, finish any) string {
		return line(obj{
			"id": fmt.Sprintf("chatcmpl-%d", n), "object": "chat.completion.chunk", "created": 0, "model": name,
			"choices": []obj{{"index": 0, "delta": delta, "finish_reason": finish}},
		})
	}
	out := []string{chunk(obj{"role": "assistant", "content": ""}, nil)}
	if a.Thinking != "" {
		out = append(out, chunk(obj{"reasoning_content": a.Thinking}, nil))
	}
	field := "content"
	if a.Stop == model.StopRefusal {
		field = "refusal"
	}
	for _, w := range words {
		out = append(out, chunk(obj{field: w}, nil))
	}
	for i, c := range calls {
		half := len(c.Arguments) / 2
		out = append(out,
			chunk(obj{"tool_calls": []obj{{"index": i, "id": c.ID, "type": "function", "function": obj{"name": c.Name, "arguments": ""}}}}, nil),
			chunk(obj{"tool_calls": []obj{{"index": i, "function": obj{"arguments": c.Arguments[:half]}}}}, nil),
			chunk(obj{"tool_calls": []obj{{"index": i, "function": obj{"arguments": c.Arguments[half:]}}}}, nil))
	}
	return append(out,
		chunk(obj{}, f.finish(a)),
		line(obj{"id": fmt.Sprintf("chatcmpl-%d", n), "object": "chat.completion.chunk", "created": 0, "model": name, "choices": []obj{}, "usage": f.usage(a)}),
		"data: [DONE]\n\n")
}

func (openAI) failure(class model.Class) (int, any) {
	rows := map[model.Class]struct {
		status              int
		typ, code, messages string
	}{
		model.RateLimited:   {http.StatusTooManyRequests, "requests", "rate_limit_exceeded", "Rate limit reached. Please try again later."},
		model.Quota:         {http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan."},
		model.Overloaded:    {http.StatusServiceUnavailable, "server_error", "", "The server is currently overloaded with other requests."},
		model.PromptTooLong: {http.StatusBadRequest, "invalid_request_error", "context_length_exceeded", "This model's maximum context length is 128000 tokens."},
		model.Auth:          {http.StatusUnauthorized, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."},
	}
	row, ok := rows[class]
	if !ok {
		row.status, row.typ, row.messages = http.StatusBadRequest, "invalid_request_error", "The script has no answer to this request."
	}
	return row.status, obj{"error": obj{"message": row.messages, "type": row.typ, "code": row.code, "param": nil}}
}

// anthropic is the format of the messages API.
type anthropic struct{}

func (anthropic) stop(a Answer) string {
	switch {
	case a.Stop == model.StopMaxOutputTokens:
		return "max_tokens"
	case a.Stop == model.StopRefusal:
		return "refusal"
	case len(a.ToolCalls) > 0:
		return "tool_use"
	default:
		return "end_turn"
	}
}

func (f anthropic) whole(name string, n int, a Answer) any {
	_, calls := parts(a, n)
	content := []obj{}
	if a.Thinking != "" {
		content = append(content, obj{"type": "thinking", "thinking": a.Thinking, "signature": "c2ln"})
	}
	if a.Text != "" {
		content = append(content, obj{"type": "text", "text": a.Text})
	}
	for _, c := range calls {
		content = append(content, obj{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Arguments)})
	}
	u := usage(a)
	return obj{
		"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": name, "content": content,
		"stop_reason": f.stop(a), "stop_sequence": nil, "usage": obj{"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens},
	}
}

func (f anthropic) events(name string, n int, a Answer) []string {
	words, calls := parts(a, n)
	u := usage(a)
	event := func(v obj) string { return fmt.Sprintf("event: %s\n%s", v["type"], line(v)) }
	out := []string{event(obj{"type": "message_start", "message": obj{
		"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": name, "content": []obj{}, "stop_reason": nil,
		"usage": obj{"input_tokens": u.InputTokens, "output_tokens": 1},
	}}), event(obj{"type": "ping"})}
	index := 0
	block := func(start obj, deltas ...obj) {
		out = append(out, event(obj{"type": "content_block_start", "index": index, "content_block": start}))
		for _, d := range deltas {
			out = append(out, event(obj{"type": "content_block_delta", "index": index, "delta": d}))
		}
		out = append(out, event(obj{"type": "content_block_stop", "index": index}))
		index++
	}
	if a.Thinking != "" {
		block(obj{"type": "thinking", "thinking": "", "signature": ""},
			obj{"type": "thinking_delta", "thinking": a.Thinking}, obj{"type": "signature_delta", "signature": "c2ln"})
	}
	if len(words) > 0 {
		deltas := make([]obj, len(words))
		for i, w := range words {
			deltas[i] = obj{"type": "text_delta", "text": w}
		}
		block(obj{"type": "text", "text": ""}, deltas...)
	}
	for _, c := range calls {
		half := len(c.Arguments) / 2
		block(obj{"type": "tool_use", "id": c.ID, "name": c.Name, "input": obj{}},
			obj{"type": "input_json_delta", "partial_json": c.Arguments[:half]}, obj{"type": "input_json_delta", "partial_json": c.Arguments[half:]})
	}
	return append(out,
		event(obj{"type": "message_delta", "delta": obj{"stop_reason": f.stop(a), "stop_sequence": nil}, "usage": obj{"output_tokens": u.OutputTokens}}),
		event(obj{"type": "message_stop"}))
}

func (anthropic) failure(class model.Class) (int, any) {
	rows := map[model.Class]struct {
		status        int
		typ, messages string
	}{
		model.RateLimited:   {http.StatusTooManyRequests, "rate_limit_error", "This request would exceed your rate limit."},
		model.Quota:         {http.StatusBadRequest, "billing_error", "Your credit balance is too low: go to billing."},
		model.Overloaded:    {529, "overloaded_error", "Overloaded"},
		model.PromptTooLong: {http.StatusBadRequest, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"},
		model.Auth:          {http.StatusUnauthorized, "authentication_error", "invalid x-api-key"},
	}
	row, ok := rows[class]
	if !ok {
		row.status, row.typ, row.messages = http.StatusBadRequest, "invalid_request_error", "The script has no answer to this request."
	}
	return row.status, obj{"type": "error", "error": obj{"type": row.typ, "message": row.messages}}
}
