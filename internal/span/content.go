package span

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Bounds of the content in one attribute, in bytes: spans wait in memory for their export, and
// collectors refuse large requests.
const (
	MaxPart    = 4 << 10
	MaxContent = 32 << 10
)

type message struct {
	Role         state.Role `json:"role"`
	Parts        []part     `json:"parts"`
	FinishReason string     `json:"finish_reason,omitempty"`
}

// part is one of several shapes of the conventions, which Type tells apart.
type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments any    `json:"arguments,omitempty"`
	Response  string `json:"response,omitempty"`
	MediaType string `json:"mime_type,omitempty"`
	Bytes     int    `json:"omitted_bytes,omitempty"`
}

// Input returns the input of a model call in the form of gen_ai.system_instructions and
// gen_ai.input.messages. It cuts texts at MaxPart, omits the last instructions and the oldest messages
// beyond MaxContent each, and always omits the data of images and files.
func Input(messages []state.Message) (instructions, input string) {
	var system []part
	said := []message{}
	left := MaxContent
	for _, m := range slices.Backward(messages) {
		if m.Role == state.RoleSystem {
			system = append(parts(m.Parts), system...)
			continue
		}
		all := parts(m.Parts)
		if left -= size(all); left >= 0 {
			said = append(said, message{Role: m.Role, Parts: all})
		}
	}
	slices.Reverse(said)
	if len(system) > 0 {
		instructions = encode(system[:fit(system)])
	}
	return instructions, encode(said)
}

// Output returns the output of a model in the form of gen_ai.output.messages, with the bounds of
// Input.
func Output(said []state.Part, reason string) string {
	all := parts(said)
	return encode([]message{{Role: state.RoleAssistant, Parts: all[:fit(all)], FinishReason: reason}})
}

// Text returns text, cut at MaxPart. It is valid UTF-8: one attribute that is not
// would cost a whole batch of spans.
func Text(text string) string {
	if len(text) <= MaxPart {
		return strings.ToValidUTF8(text, "�")
	}
	cut := MaxPart
	for cut > MaxPart-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.ToValidUTF8(text[:cut], "�") + "…"
}

func parts(all []state.Part) []part {
	out := make([]part, 0, len(all))
	for _, p := range all {
		switch p.Type {
		case state.PartText:
			out = append(out, part{Type: "text", Content: Text(p.Text)})
		case state.PartThinking:
			out = append(out, part{Type: "reasoning", Content: Text(p.Text)})
		case state.PartToolCall:
			out = append(out, part{Type: "tool_call", ID: p.ID, Name: p.Name, Arguments: arguments(p.Arguments)})
		case state.PartToolResult:
			out = append(out, part{Type: "tool_call_response", ID: p.CallID, Response: Text(p.Content)})
			for _, i := range p.Images {
				out = append(out, part{Type: "image", MediaType: i.MediaType, Bytes: len(i.Data)})
			}
			out = append(out, parts(p.Files)...)
		case state.PartProviderTool:
			out = append(out, part{Type: "tool_call", ID: p.ID, Name: p.Name, Arguments: arguments(p.Arguments)}, part{Type: "tool_call_response", ID: p.ID, Response: Text(p.Content)})
		case state.PartImage:
			out = append(out, part{Type: "image", MediaType: p.MediaType, Bytes: len(p.Data)})
		case state.PartFile:
			out = append(out, part{Type: "file", Name: p.Name, MediaType: p.MediaType, Bytes: int(p.Bytes)})
		default:
		}
	}
	return out
}

// arguments are an object where they are one and fit, and text otherwise.
func arguments(text string) any {
	if len(text) <= MaxPart && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return Text(text)
}

// fit returns how many of the parts, from the first, are within the limit.
func fit(all []part) int {
	left := MaxContent
	for i := range all {
		if left -= size(all[i : i+1]); left < 0 {
			return i
		}
	}
	return len(all)
}

func size(all []part) int {
	n := 0
	for _, p := range all {
		n += len(p.Content) + len(p.ID) + len(p.Name) + len(p.Response) + 64
		switch a := p.Arguments.(type) {
		case json.RawMessage:
			n += len(a)
		case string:
			n += len(a)
		default:
		}
	}
	return n
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
