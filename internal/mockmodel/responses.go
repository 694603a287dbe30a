package mockmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// responsesAPI is the format of OpenAI's Responses API. Keys and errors are those of chat completions.
type responsesAPI struct{ openAI }

// item has the fields of an item of a request's input that the server reads.
type item struct {
	Type      string  `json:"type"`
	Role      string  `json:"role"`
	Content   content `json:"content"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    content `json:"output"`
}

// inputItems is the input of a request: a string, or items.
type inputItems []item

// UnmarshalJSON decodes a string or a list of items.
func (l *inputItems) UnmarshalJSON(b []byte) error {
	var text content
	if json.Unmarshal(b, &text.text) == nil {
		*l = inputItems{{Role: "user", Content: text}}
		return nil
	}
	return json.Unmarshal(b, (*[]item)(l))
}

func (responsesAPI) parse(body []byte) (query, error) {
	var r struct {
		Model        string     `json:"model"`
		Stream       bool       `json:"stream"`
		Instructions string     `json:"instructions"`
		Input        inputItems `json:"input"`
		Metadata     struct {
			Conversation ID `json:"conversation"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return query{}, err
	}
	q := query{model: r.Model, conversation: string(r.Metadata.Conversation), tokens: int64(len(body)/4) + 1, stream: r.Stream}
	var text strings.Builder
	first, speaking := r.Instructions, false
	if first != "" {
		fmt.Fprintf(&text, "system: %s\n", first)
	}
	for _, i := range r.Input {
		role, said := i.Role, i.Content.text
		switch i.Type {
		case "function_call":
			role, said = "assistant", i.Name+i.Arguments
		case "function_call_output":
			role, said = "tool", i.Output.text
		case "reasoning", "web_search_call", "code_interpreter_call":
			role = "assistant"
		}
		// One response of a model is several items of the next request.
		if assistant := role == "assistant"; assistant && !speaking {
			q.assistants++
		}
		speaking = role == "assistant"
		if said != "" {
			fmt.Fprintf(&text, "%s: %s\n", role, said)
		}
		if q.assistants == 0 {
			first += "\x00" + said
		}
	}
	q.text, q.key = text.String(), hashKey(r.Model, first)
	return q, nil
}

func outputText(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

// output returns the items of a response.
func (f responsesAPI) output(r reply) []object {
	items := []object{}
	if r.Thinking != "" {
		items = append(items, object{
			"type": "reasoning", "id": "rs_" + r.id, "summary": []object{{"type": "summary_text", "text": r.Thinking}},
			"encrypted_content": signature(r.Thinking),
		})
	}
	items = append(items, f.hosted(r)...)
	if r.text != "" {
		part := outputText(r.text)
		if r.Stop == model.StopRefusal {
			part = object{"type": "refusal", "refusal": r.text}
		}
		items = append(items, object{
			"type": "message", "id": "msg_" + r.id, "role": "assistant", "status": "completed", "content": []object{part},
		})
	}
	for i, c := range r.calls {
		items = append(items, object{
			"type": "function_call", "id": fmt.Sprintf("fc_%s_%d", r.id, i), "call_id": c.id, "name": c.name, "arguments": c.args,
			"status": "completed",
		})
	}
	if len(items) > 0 && r.Stop == model.StopMaxOutputTokens && r.Thinking == "" {
		items[len(items)-1]["status"] = "incomplete"
	}
	return items
}

// response returns a response with a status.
func (f responsesAPI) response(r reply, q query, status string, output []object) object {
	o := object{
		"id": "resp_" + r.id, "object": "response", "created_at": created, "completed_at": nil, "status": status, "background": false,
		"error": nil, "incomplete_details": nil, "instructions": nil, "max_output_tokens": nil, "max_tool_calls": nil,
		"metadata": object{}, "model": q.model, "output": output, "parallel_tool_calls": true, "previous_response_id": nil,
		"reasoning": object{"effort": nil, "summary": nil}, "store": false, "temperature": 1, "top_p": 1, "tool_choice": "auto",
		"text": object{"format": object{"type": "text"}}, "tools": []object{}, "truncation": "disabled", "usage": nil,
	}
	switch status {
	case "completed":
		o["completed_at"] = created
	case "incomplete":
		o["incomplete_details"] = object{"reason": string(r.Stop)}
	}
	if status != "in_progress" {
		u := r.usage
		o["usage"] = object{
			"input_tokens": u.InputTokens, "input_tokens_details": object{"cached_tokens": u.CacheReadTokens, "cache_write_tokens": u.CacheWriteTokens},
			"output_tokens": u.OutputTokens, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": u.InputTokens + u.OutputTokens,
		}
	}
	return o
}

// status returns the status of a response.
func (responsesAPI) status(r reply) string {
	if r.Stop == model.StopMaxOutputTokens || r.Stop == model.StopContentFilter {
		return "incomplete"
	}
	return "completed"
}

func (f responsesAPI) whole(r reply, q query) any {
	return f.response(r, q, f.status(r), f.output(r))
}

func (f responsesAPI) events(r reply, q query) (body, end []event) {
	number := 0
	numbered := func(kind string, data object) event {
		data["type"], data["sequence_number"] = kind, number
		number++
		return event{name: kind, data: data}
	}
	output := f.output(r)
	begun := object{"response": f.response(r, q, "in_progress", []object{})}
	body = append(body, numbered("response.created", maps.Clone(begun)), numbered("response.in_progress", begun))
	for i, item := range output {
		add := func(kind string, data object) {
			data["output_index"] = i
			if data["item"] == nil {
				data["item_id"] = item["id"]
			}
			body = append(body, numbered(kind, data))
		}
		// text adds the events of a text of an item, in pieces and then whole.
		text := func(kind, field, text string, more object) {
			for _, piece := range r.pieces(text) {
				if piece != "" {
					d := maps.Clone(more)
					d["delta"] = piece
					add(kind+".delta", d)
				}
			}
			more[field] = text
			add(kind+".done", more)
		}
		added := maps.Clone(item)
		switch item["type"] {
		case "reasoning":
			added["summary"] = []object{}
			add("response.output_item.added", object{"item": added})
			add("response.reasoning_summary_part.added", object{"summary_index": 0, "part": object{"type": "summary_text", "text": ""}})
			text("response.reasoning_summary_text", "text", r.Thinking, object{"summary_index": 0})
			add("response.reasoning_summary_part.done", object{"summary_index": 0, "part": object{"type": "summary_text", "text": r.Thinking}})
		case "message":
			added["content"], added["status"] = []object{}, "in_progress"
			add("response.output_item.added", object{"item": added})
			if r.Stop == model.StopRefusal {
				text("response.refusal", "refusal", r.text, object{"content_index": 0})
				break
			}
			add("response.content_part.added", object{"content_index": 0, "part": outputText("")})
			text("response.output_text", "text", r.text, object{"content_index": 0, "logprobs": []object{}})
			add("response.content_part.done", object{"content_index": 0, "part": outputText(r.text)})
		case "web_search_call", "code_interpreter_call":
			added["status"] = "in_progress"
			add("response.output_item.added", object{"item": added})
		case "function_call":
			added["arguments"], added["status"] = "", "in_progress"
			add("response.output_item.added", object{"item": added})
			args, _ := item["arguments"].(string)
			text("response.function_call_arguments", "arguments", args, object{"name": item["name"]})
		}
		add("response.output_item.done", object{"item": item})
	}
	status := f.status(r)
	return body, []event{numbered("response."+status, object{"response": f.response(r, q, status, output)})}
}

func (f responsesAPI) fail(w http.ResponseWriter, class model.Class, retryAfter time.Duration) {
	if class != model.PromptTooLong {
		f.openAI.fail(w, class, retryAfter)
		return
	}
	writeJSON(w, http.StatusBadRequest, object{"error": object{
		"message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
		"type":    "invalid_request_error", "param": "input", "code": "context_length_exceeded",
	}})
}
