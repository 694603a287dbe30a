package transcript

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      *string          `json:"text,omitempty"`
	Thinking  *string          `json:"thinking,omitempty"`
	Signature string           `json:"signature,omitempty"`
	Data      string           `json:"data,omitempty"` // of redacted_thinking
	ID        string           `json:"id,omitempty"`
	Name      string           `json:"name,omitempty"`
	Input     json.RawMessage  `json:"input,omitempty"`
	ToolUseID string           `json:"tool_use_id,omitempty"`
	Content   json.RawMessage  `json:"content,omitempty"`
	IsError   bool             `json:"is_error,omitempty"`
	Source    *anthropicSource `json:"source,omitempty"`
}

type anthropicSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// anthropicProvider marks thinking that only this provider's models get back.
const anthropicProvider = "anthropic"

type anthropicOpaque struct {
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// anthropicOut is an anthropicMessage whose content is not encoded yet.
type anthropicOut struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

// anthropicSystem returns the system messages that are not blank as one text: all of them stand at the beginning.
func anthropicSystem(messages iter.Seq[state.Message]) string {
	var systems []string
	for m := range messages {
		if text := m.Text(); m.Role == state.RoleSystem && strings.TrimSpace(text) != "" {
			systems = append(systems, text)
		}
	}
	return strings.Join(systems, "\n\n")
}

// toAnthropic hands over each message, until add returns an error.
func toAnthropic(messages iter.Seq[state.Message], add func(any) error) error {
	var results, images []anthropicBlock
	write := func(role string, blocks []anthropicBlock) error {
		switch {
		case len(blocks) == 0:
			return nil
		case len(blocks) == 1 && blocks[0].Type == "text":
			return add(anthropicOut{role, *blocks[0].Text})
		default:
			return add(anthropicOut{role, blocks})
		}
	}
	for m := range messages {
		if m.Role == state.RoleTool {
			// The results of one response stand in one message, before the images of errors, which may have only text.
			results = append(results, blocksOf(m)...)
			for _, p := range m.Parts {
				for _, i := range p.Images {
					if p.IsError {
						images = append(images, imageBlock(i))
					}
				}
			}
			continue
		}
		if err := write("user", append(results, images...)); err != nil {
			return err
		}
		results, images = nil, nil
		if m.Role == state.RoleSystem {
			continue
		}
		if err := write(string(m.Role), blocksOf(m)); err != nil {
			return err
		}
	}
	return write("user", append(results, images...))
}

func blocksOf(m state.Message) []anthropicBlock {
	var blocks []anthropicBlock
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartText:
			if strings.TrimSpace(p.Text) != "" { // the API takes no other text
				blocks = append(blocks, anthropicBlock{Type: "text", Text: &p.Text})
			}
		case state.PartThinking:
			var o anthropicOpaque
			switch {
			case !strings.HasPrefix(p.OpaqueBy, anthropicProvider) || json.Unmarshal(p.Opaque, &o) != nil:
			case o.Redacted != "":
				blocks = append(blocks, anthropicBlock{Type: "redacted_thinking", Data: o.Redacted})
			case o.Signature != "":
				blocks = append(blocks, anthropicBlock{Type: "thinking", Thinking: &p.Text, Signature: o.Signature})
			}
		case state.PartToolCall:
			b := anthropicBlock{Type: "tool_use", ID: p.ID, Name: p.Name}
			if object, ok := state.CompactObject(p.Arguments); ok {
				b.Input = json.RawMessage(object)
			} else {
				b.Input = json.RawMessage(fmt.Sprintf(`{"invalid_arguments":%s}`, quote(p.Arguments)))
			}
			blocks = append(blocks, b)
		case state.PartToolResult:
			blocks = append(blocks, anthropicBlock{Type: "tool_result", ToolUseID: p.CallID, Content: resultContent(p), IsError: p.IsError})
		case state.PartProviderTool:
			text := p.AsText().Text
			blocks = append(blocks, anthropicBlock{Type: "text", Text: &text})
		case state.PartImage:
			blocks = append(blocks, imageBlock(p.Image()))
		case state.PartFile: // its content may be elsewhere
			label := p.FileLabel()
			blocks = append(blocks, anthropicBlock{Type: "text", Text: &label})
		}
	}
	return blocks
}

// resultContent is a text, or blocks if images came with it. The text of an error is not blank.
func resultContent(p state.Part) json.RawMessage {
	for _, f := range p.Files { // their content is elsewhere
		p.Content = strings.TrimPrefix(p.Content+"\n"+f.FileLabel(), "\n")
	}
	if p.IsError && strings.TrimSpace(p.Content) == "" {
		p.Content = "The tool failed without a message."
	}
	if p.IsError || len(p.Images) == 0 {
		return quote(p.Content)
	}
	var blocks []anthropicBlock
	if p.Content != "" {
		blocks = append(blocks, anthropicBlock{Type: "text", Text: &p.Content})
	}
	for _, i := range p.Images {
		blocks = append(blocks, imageBlock(i))
	}
	b, err := encode(blocks)
	if err != nil {
		return quote(p.Content) // texts and images always encode
	}
	return b
}

func quote(text string) json.RawMessage {
	b, err := encode(text)
	if err != nil {
		return json.RawMessage(`""`) // a text always encodes
	}
	return b
}

func imageBlock(i state.Image) anthropicBlock {
	source := &anthropicSource{Type: "url", URL: i.URL}
	if i.URL == "" {
		source = &anthropicSource{Type: "base64", MediaType: i.MediaType, Data: i.Data}
	}
	return anthropicBlock{Type: "image", Source: source}
}

func systemOf(raw json.RawMessage) ([]state.Message, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	blocks, err := anthropicBlocks(raw)
	if err != nil {
		return nil, fmt.Errorf("system%s", strings.TrimPrefix(err.Error(), ".content"))
	}
	m := state.Message{Role: state.RoleSystem}
	for i, b := range blocks {
		if b.Type != "text" || b.Text == nil {
			return nil, fmt.Errorf("system[%d] is not a text: remove it", i)
		}
		m.Parts = append(m.Parts, textPart(*b.Text))
	}
	return []state.Message{m}, nil
}

// anthropicBlocks reads content: a text, or a list of blocks.
func anthropicBlocks(raw json.RawMessage) ([]anthropicBlock, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(raw, &blocks); err != nil || len(blocks) == 0 {
		return nil, at("content", "it is empty or of the wrong type: write a string or a list of blocks")
	}
	return blocks, nil
}

func fromAnthropic(raw json.RawMessage) ([]state.Message, error) {
	var w anthropicMessage
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf(" is not a message of the Anthropic Messages API (%w): correct this message", err)
	}
	if w.Role != "user" && w.Role != "assistant" {
		return nil, at("role", "it is %q: use user or assistant", w.Role)
	}
	blocks, err := anthropicBlocks(w.Content)
	if err != nil {
		return nil, err
	}
	m := state.Message{Role: state.Role(w.Role)}
	var out []state.Message
	for i, b := range blocks {
		place := index("content", i)
		if b.Type == "tool_result" {
			result, err := anthropicResult(place, w.Role, b)
			if err != nil {
				return nil, err
			}
			out = append(out, result)
			continue
		}
		p, err := anthropicPart(place, w.Role, b)
		if err != nil {
			return nil, err
		}
		m.Parts = append(m.Parts, p)
	}
	if len(m.Parts) > 0 {
		out = append(out, m)
	}
	return out, nil
}

func anthropicPart(place, role string, b anthropicBlock) (state.Part, error) {
	switch {
	case b.Type == "text" && b.Text != nil:
		return textPart(*b.Text), nil
	case b.Type == "image" && b.Source != nil && role == "user":
		return sourceImage(place, b)
	case b.Type == "thinking" && b.Thinking != nil && role == "assistant":
		return sealed(*b.Thinking, anthropicOpaque{Signature: b.Signature}), nil
	case b.Type == "redacted_thinking" && b.Data != "" && role == "assistant":
		return sealed("", anthropicOpaque{Redacted: b.Data}), nil
	case b.Type == "tool_use" && role == "assistant":
		if b.ID == "" || b.Name == "" {
			return state.Part{}, at(place, "a tool_use has no id or no name: give both")
		}
		input, ok := state.CompactObject(string(b.Input))
		if !ok {
			return state.Part{}, at(place+".input", "it is not a JSON object: send one")
		}
		return state.Part{Type: state.PartToolCall, ID: b.ID, Name: b.Name, Arguments: input}, nil
	default:
		return state.Part{}, at(place+".type", "a block of type %q with this content is not allowed in a message of role %s: remove it", b.Type, role)
	}
}

func sourceImage(place string, b anthropicBlock) (state.Part, error) {
	if b.Source.Type == "url" {
		return image(place+".source.url", b.Source.URL)
	}
	if b.Source.Type != "base64" || b.Source.MediaType == "" || b.Source.Data == "" {
		return state.Part{}, at(place+".source", "the image has neither a url nor base64 with media_type and data: give one of them")
	}
	return state.Part{Type: state.PartImage, MediaType: b.Source.MediaType, Data: b.Source.Data}, nil
}

func sealed(text string, o anthropicOpaque) state.Part {
	p := state.Part{Type: state.PartThinking, Text: text}
	if o != (anthropicOpaque{}) {
		if raw, err := encode(o); err == nil {
			p.Opaque, p.OpaqueBy = raw, anthropicProvider
		}
	}
	return p
}

func anthropicResult(place, role string, b anthropicBlock) (state.Message, error) {
	if role != "user" {
		return state.Message{}, at(place+".type", "a tool_result is only allowed in a message of role user: move it")
	}
	if b.ToolUseID == "" {
		return state.Message{}, at(place+".tool_use_id", "it is missing: give the id of the tool call")
	}
	if len(b.Content) == 0 || string(b.Content) == "null" || string(b.Content) == "[]" {
		return state.ToolResult(b.ToolUseID, "", b.IsError), nil
	}
	inner, err := anthropicBlocks(b.Content)
	if err != nil {
		return state.Message{}, at(place+".content", "it is of the wrong type: write a string or a list of texts and images")
	}
	var text string
	var images []state.Image
	for i, c := range inner {
		here := fmt.Sprintf("%s.content[%d]", place, i)
		switch {
		case c.Type == "text" && c.Text != nil:
			text += *c.Text
		case c.Type == "image" && c.Source != nil:
			p, err := sourceImage(here, c)
			if err != nil {
				return state.Message{}, err
			}
			images = append(images, p.Image())
		default:
			return state.Message{}, at(here, "a tool_result cannot have a block of type %q: use texts and images only", c.Type)
		}
	}
	return state.ToolResult(b.ToolUseID, text, b.IsError, images...), nil
}

func index(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }
