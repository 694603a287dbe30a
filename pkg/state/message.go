package state

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Role is the author role of a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// PartType names the kind of one part of a message.
type PartType string

// The part types.
const (
	PartText       PartType = "text"
	PartThinking   PartType = "thinking"
	PartToolCall   PartType = "tool_call"
	PartToolResult PartType = "tool_result"
	PartImage      PartType = "image"
	PartFile       PartType = "file"

	// PartProviderTool is a use of a tool that the model's provider ran during the response, with its
	// result. It is not a tool call: no worker runs it, and it needs no tool result.
	PartProviderTool PartType = "provider_tool"
)

// Origin is the source of a part that neither a user nor the model wrote.
type Origin string

// The origins. A tool result without one has OriginTool.
const (
	OriginTool   Origin = "tool"
	OriginWeb    Origin = "web"    // a tool that requested a web address
	OriginAgent  Origin = "agent"  // another agent: its answer, or the task that it gave
	OriginPerson Origin = "person" // a person's answer
)

// Farther returns the less trusted of two origins. From least to most trusted: OriginWeb, OriginAgent,
// OriginTool, and all others. If both are others, such as OriginPerson, it returns "".
func (o Origin) Farther(than Origin) Origin {
	for _, far := range []Origin{OriginWeb, OriginAgent, OriginTool} {
		if o == far || than == far {
			return far
		}
	}
	return ""
}

// Untrusted reports whether an untrusted party may have written the part: it came from a tool, the
// web or another agent.
func (p *Part) Untrusted() bool { return p.Source() != "" }

// Source returns the untrusted party that may have written the part, or "" without one. A tool result or a use of a
// provider's tool without an Origin has OriginTool.
func (p *Part) Source() Origin {
	switch {
	case p.Origin == OriginPerson, p.Origin == "" && p.Type != PartToolResult && p.Type != PartProviderTool:
		return ""
	case p.Origin == "":
		return OriginTool
	}
	return p.Origin
}

// ArgumentSource is a place where a value of an argument also occurs: a tool result, or a message
// of another agent. It need not be the model's source of the value.
type ArgumentSource struct {
	Argument string `json:"argument"` // a name, or a path such as items[0].id
	Origin   Origin `json:"origin"`
	Turn     int    `json:"turn"`
	CallID   string `json:"call_id,omitempty"`
	Tool     string `json:"tool,omitempty"` // the tool that was called
}

// String describes s: iban also occurs in the web content that fetch returned in turn 1.
func (s ArgumentSource) String() string {
	where := "the result of a tool"
	switch {
	case s.Origin == OriginWeb && s.Tool != "":
		where = fmt.Sprintf("the web content that %s returned", s.Tool)
	case s.Origin == OriginWeb:
		where = "content from the web"
	case s.Origin == OriginAgent && s.Tool != "":
		where = fmt.Sprintf("the answer of the agent behind %s", s.Tool)
	case s.Origin == OriginAgent:
		where = "the answer of another agent"
	case s.Tool != "":
		where = "the result of " + s.Tool
	}
	if s.Turn > 0 {
		where += fmt.Sprintf(" in turn %d", s.Turn)
	}
	return s.Argument + " also occurs in " + where
}

// Part is one piece of a message. Type determines which fields are set.
type Part struct {
	Type PartType `json:"type"`

	// Text of a text or thinking part.
	Text string `json:"text,omitempty"`

	// ID, Name and Arguments of a tool call, or of a use of a provider's tool. Arguments is the model's JSON
	// text, byte for byte; it need not be valid JSON. Name is also that of a file, which may have none.
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"-"`

	// CallID, Content, IsError, Images and Files of a tool result; Files are parts of type file. A part of
	// a provider's tool has Content and IsError: the part of the result that the provider shows, cut at a
	// limit. Such a part with an ID and without Arguments is the result of an earlier one with the same ID.
	CallID  string  `json:"call_id,omitempty"`
	Content string  `json:"content,omitempty"`
	IsError bool    `json:"is_error,omitempty"`
	Images  []Image `json:"images,omitempty"`
	Files   []Part  `json:"files,omitempty"`

	// An image or a file has Data (base64) with its MediaType, or a URL. A file that was uploaded has FileID instead
	// of both, because histories never contain its content. Bytes is the size of a file, 0 if it is not known.
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
	FileID    string `json:"file_id,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`

	// Origin of a part that neither a user nor the model wrote. On a tool result and on a part of a
	// provider's tool, empty means OriginTool.
	Origin Origin `json:"origin,omitempty"`

	// Opaque is provider-specific content, such as the signature of a thinking block. Adapters send
	// it back byte for byte, and only to models of the provider and family that made it, which OpaqueBy
	// names: see model.SealedBy. If it names only the provider, they send it to all its models.
	Opaque   json.RawMessage `json:"opaque,omitempty"`
	OpaqueBy string          `json:"opaque_by,omitempty"`
}

// Image is a picture in a tool result: Data in base64 with its MediaType, or a URL.
type Image struct {
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// Link returns the image as a URL: its own, or one that holds the data.
func (i Image) Link() string {
	if i.URL != "" {
		return i.URL
	}
	return "data:" + i.MediaType + ";base64," + i.Data
}

// maxURL is the maximum of the URL of an image or a file, in bytes.
const maxURL = 8 << 10

// CheckURL returns nil if text, the URL of an image or a file, is empty, or an http or https
// URL with a host, without a user and a password, which the history would keep, and of at most
// 8 KiB. Providers load these URLs, not Turnpike.
func CheckURL(text string) error {
	if text == "" {
		return nil
	}
	at, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return fmt.Errorf("the url has %d bytes, at most %d are allowed: send the content in data instead", len(text), maxURL)
	case err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "":
		return fmt.Errorf("the url %.80q is not an http or https URL, and providers load no others: write one such as https://example.com/a.png", text)
	case at.User != nil:
		return errors.New("the url has a user or a password, which the stored history would expose: use a signed URL instead")
	default:
		return nil
	}
}

// Check returns nil if the image is complete: either a URL, or data in base64 with a media type. The URL may
// also be the content, as in data:image/png;base64,… .
func (i Image) Check() error {
	if (i.Data == "") == (i.URL == "") {
		return errors.New("an image needs data or url: give exactly one of them")
	}
	data, err := base64.StdEncoding.DecodeString(i.Data)
	if err != nil {
		return errors.New("the image's data is not base64: encode it in base64, without a prefix such as data:")
	}
	if i.Data != "" && i.MediaType == "" {
		return errors.New("the image has data without media_type: set media_type, as in image/png")
	}
	if i.Data != "" && len(data) == 0 { // line ends alone are base64
		return errors.New("the image's data is empty: send the content in base64")
	}
	if strings.HasPrefix(i.URL, "data:") {
		return nil
	}
	return CheckURL(i.URL)
}

// Image returns the image of a part of type image.
func (p Part) Image() Image { return Image{p.MediaType, p.Data, p.URL} }

// FileLabel describes a part of type file for people: [file a.pdf application/pdf file_01…].
func (p Part) FileLabel() string {
	label := "[file"
	for _, text := range []string{p.Name, p.MediaType, p.FileID, p.URL} {
		if text != "" {
			label += " " + text
		}
	}
	return label + "]"
}

// FileIDs returns the ids of the uploaded files that messages name, also in tool results, each once, in
// their order.
func FileIDs(messages ...Message) []string {
	var ids []string
	add := func(p Part) {
		if p.Type == PartFile && p.FileID != "" && !slices.Contains(ids, p.FileID) {
			ids = append(ids, p.FileID)
		}
	}
	for _, m := range messages {
		for _, p := range m.Parts {
			add(p)
			for _, f := range p.Files {
				add(f)
			}
		}
	}
	return ids
}

// AsText describes a use of a provider's tool in a text part, for models that cannot read the part
// itself. The text keeps the origin.
func (p Part) AsText() Part {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s, run by the model's provider", p.Name)
	if p.Arguments != "" {
		fmt.Fprintf(&b, ", with %s", p.Arguments)
	}
	if p.Content != "" {
		what := "returned"
		if p.IsError {
			what = "failed"
		}
		fmt.Fprintf(&b, ". It %s:\n%s\n", what, p.Content)
	}
	b.WriteString("]\n")
	return Part{Type: PartText, Text: b.String(), Origin: p.Source()}
}

// Message is one entry of the transcript. Messages are values: they never change once they are in a
// log.
type Message struct {
	ID   string `json:"id"`
	Role Role   `json:"role"`
	Turn int    `json:"turn"`
	At   Time   `json:"at"`

	// Model that wrote an assistant message.
	Model string `json:"model,omitempty"`

	// Synthetic marks a message that Turnpike wrote: a nudge, a continuation prompt, the result of
	// a call that an abort cut short.
	Synthetic bool `json:"synthetic,omitempty"`

	// Undelivered marks a user message to a run that ended before its next turn. If the run is
	// continued, it precedes the message that continues it.
	Undelivered bool `json:"undelivered,omitempty"`

	// Only FullView sets Tombstoned and Compacted.
	Tombstoned bool `json:"tombstoned,omitempty"`
	Compacted  bool `json:"compacted,omitempty"`

	Parts []Part `json:"parts"`
}

// Text returns the text parts of m, joined without a separator.
func (m Message) Text() string {
	var s string
	for _, p := range m.Parts {
		if p.Type == PartText {
			s += p.Text
		}
	}
	return s
}

// Calls returns the tool calls of m in the order in which the model made them.
func (m Message) Calls() []Part {
	var calls []Part
	for _, p := range m.Parts {
		if p.Type == PartToolCall {
			calls = append(calls, p)
		}
	}
	return calls
}

// UserText returns a user message with the given text.
func UserText(text string) Message {
	return Message{Role: RoleUser, Parts: []Part{{Type: PartText, Text: text}}}
}

// ToolResult returns the message that answers one tool call.
func ToolResult(callID, content string, isError bool, images ...Image) Message {
	return Message{Role: RoleTool, Parts: []Part{{Type: PartToolResult, CallID: callID, Content: content, IsError: isError, Images: images}}}
}
