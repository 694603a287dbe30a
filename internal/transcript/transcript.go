package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Format is a message format.
type Format string

// The formats.
const (
	OpenAI    Format = "openai"
	Anthropic Format = "anthropic"
)

// Formats lists the formats.
func Formats() []Format { return []Format{OpenAI, Anthropic} }

// Document is a history in a foreign format. As JSON it is what the input of a
// submission takes.
type Document struct {
	Format   Format          `json:"format"`
	System   json.RawMessage `json:"system,omitempty"` // of anthropic: text, or blocks
	Messages json.RawMessage `json:"messages"`
}

// Export returns messages in a format. It omits tombstoned and compacted messages (A12), and content that the format
// cannot express. In place of a file it has a text that names the file, and a text for a use of a provider's tool.
// OpenAI's format has no thinking, and does not mark error results, whose content stays; images of results follow them
// in a message of the user. Anthropic's has system messages only at the beginning, so Export moves their texts there,
// and of thinking it has only what Anthropic's models signed or redacted. It has no blank texts, and no images in error
// results, which follow all results.
func Export(f Format, messages []state.Message) (Document, error) {
	d := Document{Format: f}
	var b bytes.Buffer
	if err := Write(&b, f, slices.Values(messages)); err != nil {
		return d, err
	}
	if err := json.Unmarshal(b.Bytes(), &d); err != nil {
		return d, fmt.Errorf("encode transcript: %w", err)
	}
	return d, nil
}

// Write writes the document that Export returns as JSON, piece by piece: it holds at most one message of the document,
// or the text of all system messages. It may read messages twice. It reports an unknown format before it writes
// anything.
func Write(w io.Writer, f Format, messages iter.Seq[state.Message]) error {
	if err := f.Check(); err != nil {
		return err
	}
	seen := func(yield func(state.Message) bool) {
		for m := range messages {
			if !m.Tombstoned && !m.Compacted && !yield(m) {
				return
			}
		}
	}
	enc := json.NewEncoder(untilNewline{w})
	enc.SetEscapeHTML(false)
	before := `{"format":"` + string(f) + `"`
	write := func(v any) error {
		if _, err := io.WriteString(w, before); err != nil {
			return fmt.Errorf("write transcript: %w", err)
		}
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("write transcript: %w", err)
		}
		return nil
	}
	if f == Anthropic {
		if system := anthropicSystem(seen); system != "" {
			before += `,"system":`
			if err := write(system); err != nil {
				return err
			}
			before = ""
		}
	}
	before += `,"messages":[`
	add := func(v any) error {
		err := write(v)
		before = ","
		return err
	}
	convert := toOpenAI
	if f == Anthropic {
		convert = toAnthropic
	}
	if err := convert(seen, add); err != nil {
		return err
	}
	end := "]}\n"
	if before != "," {
		end = before + end // there is no message
	}
	if _, err := io.WriteString(w, end); err != nil {
		return fmt.Errorf("write transcript: %w", err)
	}
	return nil
}

// untilNewline drops the line break that a json.Encoder writes at the end.
type untilNewline struct{ w io.Writer }

func (u untilNewline) Write(b []byte) (int, error) {
	n, err := u.w.Write(bytes.TrimSuffix(b, []byte("\n")))
	if err == nil {
		n = len(b)
	}
	return n, err
}

// Import reads a document. The error names the place of the mistake. Import ignores fields
// that are not part of the history. The caller must check that every call has its result.
func Import(d Document) ([]state.Message, error) {
	if len(bytes.TrimSpace(d.Messages)) == 0 {
		return nil, fmt.Errorf("messages is missing: give a list of messages")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(d.Messages, &list); err != nil {
		return nil, fmt.Errorf("messages is not a list: give a list of messages")
	}
	var out []state.Message
	one := fromOpenAI
	switch d.Format {
	case OpenAI:
		if len(d.System) > 0 && string(d.System) != "null" {
			return nil, fmt.Errorf("system is not a field of the format openai: send a message of role system instead")
		}
	case Anthropic:
		one = fromAnthropic
		system, err := systemOf(d.System)
		if err != nil {
			return nil, err
		}
		out = append(out, system...)
	default:
		return nil, unknown(d.Format)
	}
	for i, raw := range list {
		more, err := one(raw)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]%w", i, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

// Check returns an error that names the formats if f is not one of them.
func (f Format) Check() error {
	if f != OpenAI && f != Anthropic {
		return unknown(f)
	}
	return nil
}

func unknown(f Format) error { return fmt.Errorf("format is %q: use openai or anthropic", f) }

// encode writes v without escaping what is only special in HTML.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode transcript: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// at is an error about a part of a message.
func at(place, format string, args ...any) error {
	return fmt.Errorf(".%s: %s", place, fmt.Sprintf(format, args...))
}

// image returns an image part of a URL, which may hold the data itself.
func image(place, url string) (state.Part, error) {
	rest, inline := strings.CutPrefix(url, "data:")
	if !inline {
		if url == "" {
			return state.Part{}, at(place, "the URL of the image is missing: give it")
		}
		return state.Part{Type: state.PartImage, URL: url}, nil
	}
	media, data, ok := strings.Cut(rest, ";base64,")
	if !ok || media == "" {
		return state.Part{}, at(place, "the data URL is not valid: write data:<media type>;base64,<data>")
	}
	return state.Part{Type: state.PartImage, MediaType: media, Data: data}, nil
}

func textPart(text string) state.Part { return state.Part{Type: state.PartText, Text: text} }
