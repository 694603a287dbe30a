package transcript

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

type openAIMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"`
	Refusal    *string         `json:"refusal,omitempty"`
	ToolCalls  []openAICall    `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

type openAICall struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Function openAIFunction `json:"function"`
}

type openAIFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type openAIPart struct {
	Type     string       `json:"type"`
	Text     *string      `json:"text,omitempty"`
	Refusal  *string      `json:"refusal,omitempty"`
	ImageURL *openAIImage `json:"image_url,omitempty"`
}

type openAIImage struct {
	URL string `json:"url"`
}

// openAIOut is an openAIMessage whose content is not encoded yet.
type openAIOut struct {
	Role       string       `json:"role"`
	Content    any          `json:"content,omitempty"`
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

// toOpenAI hands over each message, until add returns an error.
func toOpenAI(messages iter.Seq[state.Message], add func(any) error) error {
	// A result is a text there: its images follow all results, as if the user showed
	// them.
	var images []state.Part
	show := func() error {
		if len(images) == 0 {
			return nil
		}
		shown := images
		images = nil
		return add(openAIOut{Role: "user", Content: openAIContent(shown)})
	}
	for m := range messages {
		if m.Role == state.RoleTool {
			for _, p := range m.Parts {
				if p.Type == state.PartToolResult {
					for _, f := range p.Files { // their content is elsewhere
						p.Content = strings.TrimPrefix(p.Content+"\n"+f.FileLabel(), "\n")
					}
					if err := add(openAIOut{Role: "tool", ToolCallID: p.CallID, Content: p.Content}); err != nil {
						return err
					}
				}
				for _, i := range p.Images {
					images = append(images, state.Part{Type: state.PartImage, MediaType: i.MediaType, Data: i.Data, URL: i.URL})
				}
			}
			continue
		}
		if err := show(); err != nil {
			return err
		}
		w := openAIOut{Role: string(m.Role), Content: openAIContent(m.Parts)}
		for _, c := range m.Calls() {
			w.ToolCalls = append(w.ToolCalls, openAICall{ID: c.ID, Type: "function", Function: openAIFunction{Name: c.Name, Arguments: c.Arguments}})
		}
		if w.Content == nil {
			if w.Content = json.RawMessage("null"); len(w.ToolCalls) == 0 {
				w.Content = ""
			}
		}
		if err := add(w); err != nil {
			return err
		}
	}
	return show()
}

// openAIContent is text if there is one text alone, parts otherwise, and nil of neither.
func openAIContent(parts []state.Part) any {
	var list []openAIPart
	for _, p := range parts {
		switch p.Type {
		case state.PartText:
			list = append(list, openAIPart{Type: "text", Text: &p.Text})
		case state.PartProviderTool:
			text := p.AsText().Text
			list = append(list, openAIPart{Type: "text", Text: &text})
		case state.PartImage:
			list = append(list, openAIPart{Type: "image_url", ImageURL: &openAIImage{p.Image().Link()}})
		case state.PartFile: // its content may be elsewhere
			label := p.FileLabel()
			list = append(list, openAIPart{Type: "text", Text: &label})
		default:
		}
	}
	switch {
	case len(list) == 0:
		return nil
	case len(list) == 1 && list[0].Text != nil:
		return *list[0].Text
	default:
		return list
	}
}

func fromOpenAI(raw json.RawMessage) ([]state.Message, error) {
	var w openAIMessage
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf(" is not a message of the OpenAI Chat Completions API (%w): correct this message", err)
	}
	switch w.Role {
	case "system", "developer", "user", "assistant":
	case "tool":
		return openAIResult(w)
	default:
		return nil, at("role", "it is %q: use system, developer, user, assistant or tool", w.Role)
	}
	m := state.Message{Role: state.Role(w.Role)}
	if w.Role == "developer" {
		m.Role = state.RoleSystem
	}
	parts, err := openAIParts(w.Content)
	if err != nil {
		return nil, err
	}
	m.Parts = parts
	if w.Refusal != nil && *w.Refusal != "" {
		m.Parts = append(m.Parts, textPart(*w.Refusal))
	}
	if len(w.ToolCalls) > 0 && m.Role != state.RoleAssistant {
		return nil, at("tool_calls", "only a message of role assistant can have tool_calls: remove them")
	}
	for i, c := range w.ToolCalls {
		if c.Type != "" && c.Type != "function" {
			return nil, at(index("tool_calls", i)+".type", "%q is not supported: write function", c.Type)
		}
		if c.ID == "" || c.Function.Name == "" {
			return nil, at(index("tool_calls", i), "the call has no id or no function.name: give both")
		}
		m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	if len(m.Parts) == 0 && m.Role != state.RoleAssistant {
		return nil, at("content", "it is empty: give a string or a list of parts")
	}
	if len(m.Parts) == 0 {
		return nil, at("content", "it is empty, and there are no tool_calls: give one of them")
	}
	return []state.Message{m}, nil
}

func openAIResult(w openAIMessage) ([]state.Message, error) {
	if w.ToolCallID == "" {
		return nil, at("tool_call_id", "it is missing: give the id of the tool call")
	}
	parts, err := openAIParts(w.Content)
	if err != nil {
		return nil, err
	}
	content := (state.Message{Parts: parts}).Text()
	return []state.Message{state.ToolResult(w.ToolCallID, content, false)}, nil
}

func openAIParts(content json.RawMessage) ([]state.Part, error) {
	var text string
	var list []openAIPart
	switch {
	case len(content) == 0 || string(content) == "null":
		return nil, nil
	case json.Unmarshal(content, &text) == nil:
		return []state.Part{textPart(text)}, nil
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, at("content", "it is of the wrong type: write a string or a list of parts")
	}
	var parts []state.Part
	for i, p := range list {
		place := index("content", i)
		switch {
		case p.Type == "text" && p.Text != nil:
			parts = append(parts, textPart(*p.Text))
		case p.Type == "refusal" && p.Refusal != nil:
			parts = append(parts, textPart(*p.Refusal))
		case p.Type == "image_url" && p.ImageURL != nil:
			part, err := image(place+".image_url.url", p.ImageURL.URL)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		case p.Type == "text" || p.Type == "refusal" || p.Type == "image_url":
			return nil, at(place+"."+p.Type, "it is missing: give it, since type is %q", p.Type)
		default:
			return nil, at(place+".type", "it is %q: use text, image_url or refusal", p.Type)
		}
	}
	return parts, nil
}
