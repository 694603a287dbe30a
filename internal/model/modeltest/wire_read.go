package modeltest

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Anthropic is the format of the messages API.
func Anthropic() Wire {
	return Wire{
		Named: true, First: "message_start", Read: readAnthropic,
		Unknown: []string{
			`{"type":"ping"}`, `{"type":"weather_report","index":0,"sky":{"clouds":[]}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"scent_delta","scent":"rose"}}`,
			`{"type":"content_block_start","index":97,"content_block":{"type":"hologram","content":{"x":1}}}`,
		},
		Errors: map[string]model.Class{
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`:                    model.Overloaded,
			`{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate"}}`: model.RateLimited,
			`{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`:                                     model.Overloaded,
		},
	}
}

// Chat is the format of OpenAI's chat completions.
func Chat() Wire {
	return Wire{
		End: "[DONE]", Read: readChat,
		Unknown: []string{
			`{"id":"x","object":"chat.completion.novelty","choices":[]}`, `{"type":"keepalive"}`, `{}`,
			`{"choices":[{"index":0,"delta":{"scent":"rose"},"finish_reason":null,"mood":3}]}`,
			`{"choices":[{"index":1,"delta":{"content":"another choice"},"finish_reason":"stop"}]}`,
		},
		Errors: map[string]model.Class{
			`{"error":{"message":"The server had an error while processing your request","type":"server_error","param":null,"code":null}}`: model.Overloaded,
			`{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`:                                    model.RateLimited,
			`{"error":{"message":"Provider returned error","code":502}}`:                                                                   model.Overloaded,
		},
	}
}

// Responses is the format of OpenAI's Responses API.
func Responses() Wire {
	failed := func(code, message string) string {
		return `{"type":"response.failed","sequence_number":9,"response":{"id":"resp_1","object":"response","status":"failed","error":{"code":"` +
			code + `","message":"` + message + `"},"output":[],"usage":null}}`
	}
	return Wire{
		Named: true, First: "response.created", Read: readResponses,
		Unknown: []string{
			`{"type":"keepalive","sequence_number":3}`, `{"type":"response.weather_report.delta","delta":{"sky":1},"item_id":"w_1","output_index":0}`,
			`{"type":"response.output_item.added","output_index":97,"item":{"type":"hologram_call","id":"h_1","status":"in_progress","code":{"x":[]}}}`,
			`{"type":"response.output_item.done","output_index":97,"item":{"type":"hologram_call","id":"h_1","status":"completed","output":"text"}}`,
			`{"type":"response.content_part.added","item_id":"nobody","output_index":98,"content_index":5,"part":{"type":"scent","scent":"rose"}}`,
		},
		Errors: map[string]model.Class{
			`{"type":"error","sequence_number":2,"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota","param":null}}`: model.Quota,
			`{"type":"error","sequence_number":2,"code":"rate_limit_exceeded","message":"Rate limit reached","param":null}`:                                                   model.RateLimited,
			failed("server_error", "An error occurred while processing your request."):                                                                                        model.Overloaded,
			failed("context_length_exceeded", "Your input exceeds the context window of this model."):                                                                         model.PromptTooLong,
		},
	}
}

// unreadable is the outcome of a stream that contains something other than JSON.
var unreadable = Outcome{Class: model.Transport}

func readAnthropic(events []string) Outcome {
	type block struct {
		Type, ID, Name, Text, Thinking string
		Input                          json.RawMessage
		json                           string
		stopped                        bool
	}
	type counts struct {
		In    *int64 `json:"input_tokens"`
		Out   *int64 `json:"output_tokens"`
		Read  *int64 `json:"cache_read_input_tokens"`
		Write *int64 `json:"cache_creation_input_tokens"`
	}
	var (
		o       Outcome
		order   []*block
		byIndex = map[int]*block{}
		id      string
		reason  string
		total   [4]int64
	)
	count := func(c counts) {
		for i, n := range []*int64{c.In, c.Out, c.Read, c.Write} {
			if n != nil {
				total[i] = *n
			}
		}
	}
	for _, data := range events {
		var e struct {
			Type    string
			Index   int
			Message struct {
				ID      string
				Stop    string `json:"stop_reason"`
				Content []*block
				Usage   counts
			}
			Block block `json:"content_block"`
			Delta struct {
				Type, Text, Thinking string
				Partial              string `json:"partial_json"`
				Stop                 string `json:"stop_reason"`
			}
			Usage counts
			Error struct{ Type string }
		}
		if json.Unmarshal([]byte(data), &e) != nil {
			return unreadable
		}
		b := byIndex[e.Index]
		switch e.Type {
		case "message_start":
			if id != e.Message.ID {
				order, byIndex = e.Message.Content, map[int]*block{}
				reason, o.Whole = e.Message.Stop, false
				for i, b := range order {
					b.stopped = true
					byIndex[i] = b
				}
			}
			id, total = e.Message.ID, [4]int64{}
			count(e.Message.Usage)
		case "content_block_start":
			byIndex[e.Index] = &e.Block
			order = append(order, &e.Block)
		case "content_block_delta":
			if b != nil && !b.stopped {
				b.Text += e.Delta.Text
				b.Thinking += e.Delta.Thinking
				b.json += e.Delta.Partial
			}
		case "content_block_stop":
			if b != nil {
				b.stopped = true
			}
		case "message_delta":
			if e.Delta.Stop != "" {
				reason, o.Whole = e.Delta.Stop, true
			}
			count(e.Usage)
		case "message_stop":
			o.Whole = true
		case "error":
			if !o.Whole {
				o.Class = map[string]model.Class{"overloaded_error": model.Overloaded, "rate_limit_error": model.RateLimited}[e.Error.Type]
				return o
			}
		}
	}
	var last *block
	for _, b := range order {
		if b.Type == "text" || b.Type == "thinking" || b.Type == "tool_use" {
			last = b
		}
	}
	for _, b := range order {
		switch {
		case b.Type == "text":
			o.Text += b.Text
		case b.Type == "thinking":
			o.Thinking += b.Thinking
		case b.Type == "tool_use" && b.stopped && (reason != "max_tokens" && reason != "refusal" || b != last || json.Valid([]byte(b.json))):
			if b.json == "" && len(b.Input) > 0 {
				b.json = string(b.Input)
			}
			o.Calls = append(o.Calls, Call{b.ID, b.Name, arguments(b.json)})
		}
	}
	o.Usage = state.Usage{
		InputTokens: total[0] + total[2] + total[3], OutputTokens: total[1], CacheReadTokens: total[2], CacheWriteTokens: total[3],
	}
	o.Stop = map[string]model.Stop{
		"max_tokens": model.StopMaxOutputTokens, "refusal": model.StopRefusal, "pause_turn": model.StopPause,
	}[reason]
	return o.ended()
}

// ended fills in the stop reason that follows from the rest.
func (o Outcome) ended() Outcome {
	switch {
	case o.Stop != "":
	case len(o.Calls) > 0:
		o.Stop = model.StopToolCalls
	default:
		o.Stop = model.StopEnd
	}
	return o
}

func readChat(events []string) Outcome {
	var (
		o     Outcome
		last  int
		stop  string
		calls []Call
	)
	refused := false
	for _, data := range events {
		var e struct {
			Error   json.RawMessage
			Choices []struct {
				Index  int
				Text   string
				Finish string `json:"finish_reason"`
				Delta  struct {
					Content   any // a text, or a list
					Refusal   string
					Reasoning string `json:"reasoning_content"`
					Calls     []struct {
						Index    int
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
			Usage *struct {
				In      int64 `json:"prompt_tokens"`
				Out     int64 `json:"completion_tokens"`
				Details struct {
					Cached int64 `json:"cached_tokens"`
					Write  int64 `json:"cache_write_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if json.Unmarshal([]byte(data), &e) != nil {
			if o.Whole {
				break
			}
			return unreadable
		}
		if len(e.Error) > 0 {
			if o.Whole {
				break
			}
			return Outcome{Class: model.Overloaded}
		}
		if u := e.Usage; u != nil {
			o.Usage = state.Usage{
				InputTokens: u.In, OutputTokens: u.Out, CacheReadTokens: u.Details.Cached, CacheWriteTokens: u.Details.Write,
			}
		}
		for _, c := range e.Choices {
			if c.Index != 0 {
				continue
			}
			switch content := c.Delta.Content.(type) {
			case string:
				o.Text += content
			case []any:
				for _, e := range content {
					entry, _ := e.(map[string]any)
					said, _ := entry["text"].(string)
					thoughts, _ := entry["thinking"].([]any)
					o.Text += said
					for _, e := range thoughts {
						entry, _ := e.(map[string]any)
						said, _ := entry["text"].(string)
						o.Thinking += said
					}
				}
			}
			o.Text += c.Delta.Refusal + c.Text
			refused = refused || c.Delta.Refusal != ""
			o.Thinking += c.Delta.Reasoning
			for _, d := range c.Delta.Calls {
				for len(calls) <= d.Index {
					calls = append(calls, Call{})
				}
				call := &calls[d.Index]
				last = d.Index
				if call.ID == "" {
					call.ID = d.ID
				}
				if call.Name == "" {
					call.Name = d.Function.Name
				}
				call.Arguments += d.Function.Arguments
			}
			if c.Finish != "" {
				o.Whole, stop = true, c.Finish
			}
		}
	}
	if stop == "error" || stop == "abort" {
		return Outcome{Class: model.Overloaded}
	}
	for i, c := range calls {
		if c.Arguments = arguments(c.Arguments); stop != "length" && stop != "content_filter" || i != last || json.Valid([]byte(c.Arguments)) {
			o.Calls = append(o.Calls, c)
		}
	}
	o.Stop = map[string]model.Stop{"length": model.StopMaxOutputTokens, "content_filter": model.StopContentFilter}[stop]
	if o.Stop == "" && refused {
		o.Stop = model.StopRefusal
	}
	return o.ended()
}

func readResponses(events []string) Outcome {
	type item struct {
		Type, ID, Name, Status string
		CallID                 string `json:"call_id"`
		Arguments              any    // a text, except for some of the provider's own tools
		Summary, Content       []struct{ Type, Text, Refusal string }
	}
	var o Outcome
	var items []item
	seen := map[string]bool{}
	for _, data := range events {
		var e struct {
			Type     string
			Delta    any
			Item     item
			Response struct {
				Status  string
				Output  []item
				Details struct{ Reason string } `json:"incomplete_details"`
				Usage   struct {
					In      int64 `json:"input_tokens"`
					Out     int64 `json:"output_tokens"`
					Details struct {
						Cached int64 `json:"cached_tokens"`
						Write  int64 `json:"cache_write_tokens"`
					} `json:"input_tokens_details"`
				}
			}
		}
		if json.Unmarshal([]byte(data), &e) != nil {
			return unreadable
		}
		switch e.Type {
		case "response.output_text.delta", "response.refusal.delta":
			piece, _ := e.Delta.(string)
			o.Shown += piece
			continue
		case "response.output_item.done":
			if e.Item.ID == "" || !seen[e.Item.ID] {
				seen[e.Item.ID] = true
				items = append(items, e.Item)
			}
			continue
		case "error", "response.failed":
			return Outcome{Class: model.Overloaded}
		case "response.completed", "response.incomplete":
		default:
			continue
		}
		if len(items) == 0 {
			items = e.Response.Output
		}
		u := e.Response.Usage
		o.Whole = true
		o.Usage = state.Usage{
			InputTokens: u.In, OutputTokens: u.Out, CacheReadTokens: u.Details.Cached, CacheWriteTokens: u.Details.Write,
		}
		cut := e.Response.Status == "incomplete" || e.Response.Details.Reason != ""
		if e.Response.Details.Reason == "content_filter" {
			o.Stop = model.StopContentFilter
		} else if cut {
			o.Stop = model.StopMaxOutputTokens
		}
		for _, i := range items {
			switch i.Type {
			case "reasoning":
				var said []string
				for _, s := range i.Summary {
					said = append(said, s.Text)
				}
				o.Thinking += strings.Join(said, "\n\n")
			case "message":
				for _, c := range i.Content {
					o.Text += c.Text + c.Refusal
					if c.Refusal != "" && o.Stop == "" {
						o.Stop = model.StopRefusal
					}
				}
			case "function_call":
				args, _ := i.Arguments.(string)
				if !cut || json.Valid([]byte(args)) && i.Status != "incomplete" {
					o.Calls = append(o.Calls, Call{i.CallID, i.Name, arguments(args)})
				}
			}
		}
		return o.ended()
	}
	return o
}
