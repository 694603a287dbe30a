package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The kinds of content block that become parts, together with those of hosted.go.
const (
	kindText     = "text"
	kindThinking = "thinking"
	kindRedacted = "redacted_thinking"
	kindToolUse  = "tool_use"
)

// contentBlock is a content block in flight.
type contentBlock struct {
	kind      string
	id, name  string
	text      strings.Builder // text, thinking, or the JSON of the input
	input     string          // input that came with the start
	signature string
	redacted  string
	stopped   bool
	raw       json.RawMessage // a block of a provider's tool, as it was received
	useID     string          // id of the use, for a result
	citations []json.RawMessage
	slot      int // index among the tool calls
}

// blocks assembles a response from its content blocks.
type blocks struct {
	list    []*contentBlock
	byIndex map[int64]*contentBlock
	calls   int
	prefix  string // of generated call ids
	seal    string // OpaqueBy of thinking
}

func newBlocks(modelCall int, name string) *blocks {
	return &blocks{byIndex: map[int64]*contentBlock{}, prefix: fmt.Sprintf("call_%d_", modelCall), seal: model.SealedBy(provider, name)}
}

// start begins a block and returns its first delta.
func (s *blocks) start(index int64, b contentBlock, text string) model.Delta {
	if b.kind == kindToolUse {
		b.slot = s.calls
		s.calls++
		if b.id == "" {
			b.id = fmt.Sprintf("%s%d", s.prefix, b.slot)
		}
	}
	added := &b
	s.list = append(s.list, added)
	s.byIndex[index] = added
	if b.kind == kindToolUse {
		return model.Delta{Index: b.slot, CallID: b.id, Name: b.name}
	}
	return s.write(index, text)
}

// write adds text, thinking or JSON to the block with that number. It drops a delta for a block that has not begun or
// has stopped.
func (s *blocks) write(index int64, text string) model.Delta {
	b := s.byIndex[index]
	if b == nil || b.stopped {
		return model.Delta{}
	}
	b.text.WriteString(text)
	switch b.kind {
	case kindText:
		return model.Delta{Text: text}
	case kindThinking:
		return model.Delta{Thinking: text}
	case kindToolUse:
		return model.Delta{Index: b.slot, Arguments: text}
	default:
		return model.Delta{}
	}
}

func (s *blocks) sign(index int64, signature string) {
	if b := s.byIndex[index]; b != nil {
		b.signature += signature
	}
}

func (s *blocks) cite(index int64, raw string) {
	if b := s.byIndex[index]; b != nil && raw != "" {
		b.citations = append(b.citations, json.RawMessage(raw))
	}
}

// keep stores a block of a provider's tool unchanged.
func (b *contentBlock) keep(raw string) {
	if b.kind == kindHostedUse || resultKinds[b.kind] != "" {
		b.raw = json.RawMessage(raw)
	}
}

func (s *blocks) stop(index int64) {
	if b := s.byIndex[index]; b != nil {
		b.stopped = true
	}
}

func (b *contentBlock) arguments() string {
	switch {
	case strings.TrimSpace(b.text.String()) != "":
		return b.text.String()
	case b.input != "":
		return b.input
	default:
		return "{}"
	}
}

// whole reports whether a tool call may run: its streamed arguments are a complete object, or the API has stopped its
// block. cut reports that the output limit or a refusal may have cut the block off. The API stops such a block as well,
// so then only a complete object counts.
func (b *contentBlock) whole(cut bool) bool {
	_, ok := state.CompactObject(b.text.String())
	return ok || b.stopped && !cut
}

// parts returns the parts of a finished response.
func (s *blocks) parts(stop model.Stop) []state.Part {
	var parts []state.Part
	said, last := false, s.last()
	cut := stop == model.StopMaxOutputTokens || stop == model.StopRefusal
	uses, skip := &model.Uses{Seal: s.seal}, false
	for i, b := range s.list {
		if skip {
			skip = false
			continue
		}
		if resultKinds[b.kind] != "" {
			said = true
			parts = append(parts, s.result(b, uses))
			continue
		}
		switch b.kind {
		case kindText:
			if b.text.Len() > 0 {
				said = true
				parts = append(parts, s.textPart(b))
			}
		case kindHostedUse:
			var next *contentBlock
			if i+1 < len(s.list) {
				next = s.list[i+1]
			}
			p, merged, ok := s.use(b, next, stop == model.StopPause, uses)
			if ok {
				said = true
				parts = append(parts, p)
			}
			skip = merged
		case kindThinking:
			if b.signature != "" || b.text.Len() > 0 {
				parts = append(parts, s.thinking(b, opaque{Signature: b.signature}))
			}
		case kindRedacted:
			parts = append(parts, s.thinking(b, opaque{Redacted: b.redacted}))
		case kindToolUse:
			if b.whole(cut && b == last) {
				said = true
				parts = append(parts, b.call())
			}
		}
	}
	if !said {
		parts = append(parts, state.Part{Type: state.PartText})
	}
	return parts
}

// last returns the block that an output limit may have cut off: the last block of a known kind.
func (s *blocks) last() *contentBlock {
	for _, b := range slices.Backward(s.list) {
		switch b.kind {
		case kindText, kindThinking, kindRedacted, kindToolUse, kindHostedUse:
			return b
		}
	}
	return nil
}

// known returns the tool calls that are complete although the response is not. The output limit may have stopped the
// last block.
func (s *blocks) known() []state.Part {
	var parts []state.Part
	last := s.last()
	for _, b := range s.list {
		if b.kind == kindToolUse && b.stopped && b.whole(b == last) {
			parts = append(parts, b.call())
		}
	}
	return parts
}

func (b *contentBlock) call() state.Part {
	return state.Part{Type: state.PartToolCall, ID: b.id, Name: b.name, Arguments: b.arguments()}
}

func (s *blocks) thinking(b *contentBlock, o opaque) state.Part {
	p := state.Part{Type: state.PartThinking, Text: b.text.String()}
	if raw, err := json.Marshal(o); err == nil && o != (opaque{}) {
		p.Opaque, p.OpaqueBy = raw, s.seal
	}
	return p
}

// said returns the text received so far.
func (s *blocks) said() string {
	var text string
	for _, b := range s.list {
		if b.kind == kindText {
			text += b.text.String()
		}
	}
	return text
}
