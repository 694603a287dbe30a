package service

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// inputOf returns the first messages of a run: the agent's instructions, unless the input is
// a transcript that starts with them, then the input.
func inputOf(raw json.RawMessage, instructions string) ([]state.Message, error) {
	messages, err := submitted(raw)
	if err != nil {
		return nil, err
	}
	if len(messages) > maxMessages {
		return nil, invalid("input has %d messages, at most %d are allowed: send fewer", len(messages), maxMessages)
	}
	if err := paired(messages); err != nil {
		return nil, invalid("input: %v", err)
	}
	if instructions == "" || messages[0].Role == state.RoleSystem && messages[0].Text() == instructions {
		return messages, nil
	}
	system := state.Message{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: instructions}}}
	return append([]state.Message{system}, messages...), nil
}

func submitted(raw json.RawMessage) ([]state.Message, error) {
	var text string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		if strings.TrimSpace(text) == "" {
			return nil, invalid("input is empty: send a text or messages")
		}
		return []state.Message{state.UserText(text)}, nil
	}
	if len(raw) > 0 && raw[0] == '{' {
		return imported(raw)
	}
	var list []json.RawMessage
	switch err := json.Unmarshal(raw, &list); {
	case len(raw) == 0 || string(raw) == "null":
		return nil, invalid("input is missing: send a string, a list of messages, or a transcript {format, messages}")
	case err != nil:
		return nil, invalid("input is of the wrong type: send a string, a list of messages, or a transcript {format, messages}")
	case len(list) == 0:
		return nil, invalid("input is an empty list: send a string, a list of messages, or a transcript {format, messages}")
	}
	var messages []state.Message
	for i, item := range list {
		m, err := messageOf(item, false)
		if err != nil {
			return nil, invalid("input[%d]: %v", i, err)
		}
		// A full transcript includes messages that the model no longer saw. The new run omits them.
		if !m.Tombstoned && !m.Compacted {
			messages = append(messages, m)
		}
	}
	if len(messages) == 0 {
		return nil, invalid("input has no message that the model would see: add a message with content")
	}
	return messages, nil
}

// imported reads a transcript in another format.
func imported(raw json.RawMessage) ([]state.Message, error) {
	var doc transcript.Document
	if err := api.Decode(raw, &doc); err != nil {
		return nil, invalid("input: %v", err)
	}
	messages, err := transcript.Import(doc)
	if err != nil {
		return nil, invalid("input.%v", err)
	}
	if len(messages) == 0 {
		return nil, invalid("input.messages is empty: send at least one message")
	}
	return messages, nil
}

// messageIn is a message as a client writes it, {role, content: "text"} or {role,
// parts: [...]}, or as it was read from a transcript, which may begin another run.
type messageIn struct {
	Role    state.Role `json:"role"`
	Content *string    `json:"content"`
	Parts   []partIn   `json:"parts"`

	Model       string `json:"model"`
	Synthetic   bool   `json:"synthetic"`
	Undelivered bool   `json:"undelivered"` // accepted because transcripts have it
	Tombstoned  bool   `json:"tombstoned"`
	Compacted   bool   `json:"compacted"`

	// ignored: each run assigns its own.
	ID   string     `json:"id"`
	Turn int        `json:"turn"`
	At   state.Time `json:"at"`
}

type partIn struct {
	Type      state.PartType  `json:"type"`
	Text      *string         `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	CallID    string          `json:"call_id"`
	Content   *string         `json:"content"`
	IsError   bool            `json:"is_error"`
	Images    []state.Image   `json:"images"`
	Files     []state.Part    `json:"files"`
	MediaType string          `json:"media_type"`
	Data      string          `json:"data"`
	URL       string          `json:"url"`
	FileID    string          `json:"file_id"`
	Bytes     int64           `json:"bytes"` // accepted because transcripts have it
	Opaque    json.RawMessage `json:"opaque"`
	OpaqueBy  string          `json:"opaque_by"`
	Origin    state.Origin    `json:"origin"`
}

func messageOf(raw json.RawMessage, onlyUser bool) (state.Message, error) {
	var in messageIn
	if err := api.Decode(raw, &in); err != nil {
		return state.Message{}, err
	}
	m := state.Message{Role: in.Role, Model: in.Model, Synthetic: in.Synthetic, Tombstoned: in.Tombstoned, Compacted: in.Compacted}
	if m.Role == "" {
		m.Role = state.RoleUser
	}
	if onlyUser && m.Role != state.RoleUser {
		return state.Message{}, fmt.Errorf("role is %q: write user, or omit it", m.Role)
	}
	if !slices.Contains([]state.Role{state.RoleSystem, state.RoleUser, state.RoleAssistant, state.RoleTool}, m.Role) {
		return state.Message{}, fmt.Errorf("role is %q: use system, user, assistant or tool", m.Role)
	}
	if in.Content != nil {
		in.Parts = append([]partIn{{Type: state.PartText, Text: in.Content}}, in.Parts...)
	}
	if len(in.Parts) == 0 {
		return state.Message{}, errors.New("the message has neither content nor parts: give one of them")
	}
	// A caller may not mark a tool result as Turnpike's: rules about content from outside would skip the result.
	m.Synthetic = m.Synthetic && m.Role != state.RoleTool
	for i, p := range in.Parts {
		part, err := p.of(m.Role)
		if err != nil {
			return state.Message{}, fmt.Errorf("parts[%d]: %w", i, err)
		}
		m.Parts = append(m.Parts, part)
	}
	return m, nil
}

// of returns the part. It is an error if the part is incomplete, or not allowed in a message of that role.
func (p partIn) of(role state.Role) (state.Part, error) {
	out := state.Part{Type: p.Type, Opaque: p.Opaque, OpaqueBy: p.OpaqueBy}
	switch p.Origin {
	case state.OriginWeb, state.OriginAgent:
		out.Origin = p.Origin
	case "", state.OriginTool, state.OriginPerson:
		// A caller may not mark a tool result as a person's.
	default:
		return out, fmt.Errorf("origin is %.40q: use tool, web, agent or person, or omit origin", p.Origin)
	}
	home := role != state.RoleTool
	switch p.Type {
	case state.PartText, state.PartThinking:
		home = home && (p.Type == state.PartText || role == state.RoleAssistant)
		if p.Text == nil {
			return out, errors.New("text is missing: give it")
		}
		if role == state.RoleUser && strings.TrimSpace(*p.Text) == "" {
			return out, errors.New("text is empty: give a text, or remove the part")
		}
		out.Text = *p.Text
	case state.PartToolCall:
		home = role == state.RoleAssistant
		out.ID, out.Name = p.ID, p.Name
		if p.ID == "" || p.Name == "" {
			return out, errors.New("the tool call has no id or no name: give both")
		}
		var err error
		if out.Arguments, err = argumentsOf(p.Arguments); err != nil {
			return out, err
		}
	case state.PartToolResult:
		home = role == state.RoleTool
		if p.CallID == "" || p.Content == nil {
			return out, errors.New("the tool result has no call_id or no content: give both")
		}
		out.CallID, out.Content, out.IsError, out.Images = p.CallID, *p.Content, p.IsError, p.Images
		for i, image := range p.Images {
			if err := image.Check(); err != nil {
				return out, fmt.Errorf("images[%d]: %w", i, err)
			}
		}
		var err error
		if out.Files, err = resultFiles(p.Files); err != nil {
			return out, fmt.Errorf("files: %w", err)
		}
	case state.PartProviderTool:
		home = role == state.RoleAssistant
		if p.Name == "" {
			return out, errors.New("the provider_tool part has no name: give the name of the provider's tool")
		}
		out.ID, out.Name, out.IsError = p.ID, p.Name, p.IsError
		if p.Content != nil {
			out.Content = *p.Content
		}
		if len(p.Arguments) > 0 {
			var err error
			if out.Arguments, err = argumentsOf(p.Arguments); err != nil {
				return out, err
			}
		}
	case state.PartImage:
		out.MediaType, out.Data, out.URL = p.MediaType, p.Data, p.URL
		if err := out.Image().Check(); err != nil {
			return out, err
		}
	case state.PartFile:
		home = role == state.RoleUser
		var err error
		if out, err = p.file(out); err != nil {
			return out, err
		}
	default:
		return out, fmt.Errorf("type is %q: use text, thinking, tool_call, tool_result, image, file or provider_tool", p.Type)
	}
	if !home {
		return out, fmt.Errorf("a message of role %[2]s cannot have a part of type %[1]q: remove the part, or change the role", p.Type, role)
	}
	return out, nil
}

// file returns a part of type file: an uploaded file with its id, or a file with its data or URL.
func (p partIn) file(out state.Part) (state.Part, error) {
	given := 0
	for _, text := range []string{p.FileID, p.Data, p.URL} {
		if text != "" {
			given++
		}
	}
	if given == 0 && p.MediaType != "" {
		return out, errors.New("the file has no content: give data, or a file_id or url instead")
	}
	if given != 1 {
		return out, errors.New("a file needs file_id, data or url: give exactly one of them")
	}
	if err := checkFileName(p.Name); err != nil {
		return out, err
	}
	out.FileID, out.Data, out.URL, out.Name = p.FileID, p.Data, p.URL, p.Name
	if p.FileID != "" {
		return out, nil // the file itself says the rest
	}
	if p.MediaType == "" {
		return out, errors.New("a file with data or url needs a media_type: give one such as application/pdf")
	}
	var err error
	if out.MediaType, err = mediaTypeOf(p.MediaType); err != nil {
		return out, err
	}
	if err := state.CheckURL(p.URL); err != nil {
		return out, err
	}
	if p.Data != "" {
		data, err := base64.StdEncoding.DecodeString(p.Data)
		if err != nil {
			return out, errors.New("the file's data is not base64: encode the content in base64")
		}
		if len(data) == 0 { // line ends alone are valid base64
			return out, errors.New("the file's data is empty: send the content in base64")
		}
		out.Bytes = int64(len(data))
	}
	return out, nil
}

// argumentsOf returns the arguments of a call: a JSON object, or a JSON string with the text that a model wrote instead
// of one, as in transcripts.
func argumentsOf(raw json.RawMessage) (string, error) {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "{}", nil
	case json.Unmarshal(raw, &text) == nil:
		return text, nil
	}
	args, ok := state.CompactObject(string(raw))
	if !ok {
		return "", errors.New("the arguments of the tool call are not a JSON object: send an object, such as {} for none")
	}
	return args, nil
}

// paired checks that the results of the tool calls of each message in a submitted history, one for each call, are in
// the tool messages directly after it. Models reuse ids, so an id is unique only within a message.
func paired(messages []state.Message) error {
	var open []string
	for _, m := range messages {
		if m.Role == state.RoleTool {
			for _, p := range m.Parts {
				k := slices.Index(open, p.CallID)
				if k < 0 {
					return fmt.Errorf("the result %.40q names the tool call %q, which is not a call of the preceding assistant message, or has a result already: remove this result, or correct the id in it", p.Content, p.CallID)
				}
				open = slices.Delete(open, k, k+1)
			}
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("the tool call %q has no result before %s: add its result directly after the message with the call", open[0], nameOf(m))
		}
		for _, c := range m.Calls() {
			if slices.Contains(open, c.ID) {
				return fmt.Errorf("two tool calls have the id %q: give each its own id", c.ID)
			}
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the tool call %q has no result: add its result directly after the message with the call", open[0])
	}
	return nil
}

// nameOf returns how an error names a message, so that its author finds it. An index would not do: the history has
// other messages than the request, for example the instructions of the agent.
func nameOf(m state.Message) string {
	const most = 40
	switch text := m.Text(); {
	case m.ID != "":
		return "message " + m.ID
	case text == "":
		return fmt.Sprintf("the next %s message", m.Role)
	case len(text) <= most:
		return fmt.Sprintf("the %s message %q", m.Role, text)
	default:
		return fmt.Sprintf("the %s message that begins with %.*q", m.Role, most, text)
	}
}
