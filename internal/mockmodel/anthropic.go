package mockmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// anthropic is the format of Anthropic's messages API.
type anthropic struct{}

func (anthropic) key(h http.Header) string {
	if k := h.Get("X-Api-Key"); k != "" {
		return k
	}
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
}

func (anthropic) parse(body []byte) (query, error) {
	var r struct {
		Model    string  `json:"model"`
		Stream   bool    `json:"stream"`
		System   content `json:"system"`
		Metadata struct {
			Conversation ID `json:"conversation"`
		} `json:"metadata"`
		Messages []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return query{}, err
	}
	q := query{model: r.Model, conversation: string(r.Metadata.Conversation), tokens: int64(len(body)/4) + 1, stream: r.Stream}
	var text strings.Builder
	first := r.System.text
	if first != "" {
		fmt.Fprintf(&text, "system: %s\n", first)
	}
	for _, m := range r.Messages {
		fmt.Fprintf(&text, "%s: %s\n", m.Role, m.Content.text)
		if m.Role == "assistant" {
			q.assistants++
		}
		if q.assistants == 0 {
			first += "\x00" + m.Content.text
		}
	}
	q.text, q.key = text.String(), hashKey(r.Model, first)
	return q, nil
}

func (anthropic) finish(r reply) string {
	switch {
	case r.Stop == model.StopMaxOutputTokens:
		return "max_tokens"
	case r.Stop == model.StopRefusal || r.Stop == model.StopContentFilter:
		return "refusal"
	case r.Stop == model.StopPause:
		return "pause_turn"
	case len(r.calls) > 0:
		return "tool_use"
	default:
		return "end_turn"
	}
}

func (anthropic) count(r reply, output int64) object {
	u := r.usage
	count := object{
		"input_tokens":  max(0, u.InputTokens-u.CacheReadTokens-u.CacheWriteTokens),
		"output_tokens": output, "cache_read_input_tokens": u.CacheReadTokens, "cache_creation_input_tokens": u.CacheWriteTokens,
	}
	if u.CacheWriteTokens > 0 {
		count["cache_creation"] = object{"ephemeral_5m_input_tokens": u.CacheWriteTokens - r.hour, "ephemeral_1h_input_tokens": r.hour}
	}
	if len(r.ProviderTools) > 0 {
		count["server_tool_use"] = object{"web_search_requests": r.uses(model.WebSearch), "web_fetch_requests": r.uses(model.WebFetch)}
	}
	return count
}

// signature returns a signature of a thinking text, so that a client which changes one of the two can be detected.
func signature(thinking string) string {
	return base64.StdEncoding.EncodeToString([]byte(hashKey(thinking)))
}

// input returns arguments as the JSON object that the format requires.
func input(args string) json.RawMessage {
	if o, ok := state.CompactObject(args); ok {
		return json.RawMessage(o)
	}
	return json.RawMessage("{}")
}

func (f anthropic) whole(r reply, q query) any {
	blocks := []object{}
	if r.Thinking != "" {
		blocks = append(blocks, object{"type": "thinking", "thinking": r.Thinking, "signature": signature(r.Thinking)})
	}
	blocks = append(blocks, f.hosted(r)...)
	if r.text != "" {
		blocks = append(blocks, object{"type": "text", "text": r.text})
	}
	for _, c := range r.calls {
		blocks = append(blocks, object{"type": "tool_use", "id": c.id, "name": c.name, "input": input(c.args)})
	}
	return object{
		"id": "msg_" + r.id, "type": "message", "role": "assistant", "model": q.model, "content": blocks,
		"stop_reason": f.finish(r), "stop_sequence": nil, "usage": f.count(r, r.usage.OutputTokens),
	}
}

func (f anthropic) events(r reply, q query) (body, end []event) {
	add := func(name string, data object) {
		data["type"] = name
		body = append(body, event{name, data})
	}
	index := 0
	block := func(start object, deltas []object) {
		add("content_block_start", object{"index": index, "content_block": start})
		for _, d := range deltas {
			add("content_block_delta", object{"index": index, "delta": d})
		}
		add("content_block_stop", object{"index": index})
		index++
	}
	deltas := func(kind, field, text string) []object {
		var out []object
		for _, piece := range r.pieces(text) {
			out = append(out, object{"type": kind, field: piece})
		}
		return out
	}
	add("message_start", object{"message": object{
		"id": "msg_" + r.id, "type": "message", "role": "assistant", "model": q.model, "content": []object{},
		"stop_reason": nil, "stop_sequence": nil, "usage": f.count(r, 1),
	}})
	add("ping", object{})
	if r.Thinking != "" {
		d := deltas("thinking_delta", "thinking", r.Thinking)
		block(object{"type": "thinking", "thinking": "", "signature": ""},
			append(d, object{"type": "signature_delta", "signature": signature(r.Thinking)}))
	}
	for _, b := range f.hosted(r) {
		args, _ := b["input"].(json.RawMessage)
		if args == nil {
			block(b, nil)
			continue
		}
		b["input"] = object{}
		block(b, deltas("input_json_delta", "partial_json", string(args)))
	}
	if r.text != "" {
		block(object{"type": "text", "text": ""}, deltas("text_delta", "text", r.text))
	}
	for _, c := range r.calls {
		block(object{"type": "tool_use", "id": c.id, "name": c.name, "input": object{}}, deltas("input_json_delta", "partial_json", c.args))
	}
	end = []event{
		{"message_delta", object{
			"type": "message_delta", "delta": object{"stop_reason": f.finish(r), "stop_sequence": nil},
			"usage": f.count(r, r.usage.OutputTokens),
		}},
		{"message_stop", object{"type": "message_stop"}},
	}
	return body, end
}

func (anthropic) refuse(w http.ResponseWriter, p problem) {
	kind := "invalid_request_error"
	switch p.kind {
	case "not_found":
		kind = "not_found_error"
	case "script_exhausted", "request_too_large":
		kind = p.kind
	}
	anthropicError(w, p.status, kind, p.message)
}

func anthropicError(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Request-Id", "req_mock")
	writeJSON(w, status, object{"type": "error", "error": object{"type": kind, "message": message}, "request_id": "req_mock"})
}

// statusOverloaded is the status that Anthropic responds with while it is overloaded.
const statusOverloaded = 529

func (anthropic) fail(w http.ResponseWriter, class model.Class, retryAfter time.Duration) {
	setRetryAfter(w.Header(), retryAfter)
	switch class {
	case model.RateLimited:
		anthropicError(w, http.StatusTooManyRequests, "rate_limit_error",
			"This request would exceed your organization's rate limit of 50,000 input tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later.")
	case model.Overloaded:
		anthropicError(w, statusOverloaded, "overloaded_error", "Overloaded")
	case model.Quota:
		anthropicError(w, http.StatusBadRequest, "invalid_request_error",
			"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")
	case model.PromptTooLong:
		anthropicError(w, http.StatusBadRequest, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum")
	case model.Auth:
		anthropicError(w, http.StatusUnauthorized, "authentication_error", "invalid x-api-key")
	case model.ContentFilter:
		anthropicError(w, http.StatusBadRequest, "invalid_request_error", "Output blocked by content filtering policy")
	case model.Timeout:
		anthropicError(w, http.StatusGatewayTimeout, "timeout_error", "Request timed out")
	default:
		anthropicError(w, http.StatusBadRequest, "invalid_request_error", "messages: at least one message is required")
	}
}
