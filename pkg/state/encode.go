package state

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// encoder writes JSON as encoding/json does, without reflection: entries are written
// twice a turn, for the store and for those who watch.
type encoder struct {
	b   []byte
	err error
}

// EncodeEntry encodes one entry of a log.
func EncodeEntry(e Entry) ([]byte, error) {
	w := encoder{b: make([]byte, 0, room(&e))}
	w.b = append(w.b, '{')
	w.num(`"seq":`, e.Seq)
	w.text(`"type":`, string(e.Type))
	w.num(`"turn":`, int64(e.Turn))
	w.numOr(`"attempt":`, int64(e.Attempt))
	w.time(`"at":`, e.At)
	w.entry(&e)
	return w.end()
}

// EncodeEvent encodes an entry of a run's log as the event that it is. Attempt is
// always there; it is 0 where no worker was at work.
func EncodeEvent(id RunID, e Entry) ([]byte, error) {
	return encodeEvent(id, &e, strconv.AppendInt([]byte(`"seq":`), e.Seq, 10))
}

// EncodeLive encodes what no log has as an event without a number.
func EncodeLive(id RunID, e Entry) ([]byte, error) {
	return encodeEvent(id, &e, []byte(`"seq":null`))
}

func encodeEvent(id RunID, e *Entry, seq []byte) ([]byte, error) {
	w := encoder{b: make([]byte, 0, room(e)+len(id)+32)}
	w.b = append(append(w.b, '{'), seq...)
	w.text(`"run_id":`, string(id))
	w.text(`"type":`, string(e.Type))
	w.num(`"turn":`, int64(e.Turn))
	w.num(`"attempt":`, int64(e.Attempt))
	w.time(`"at":`, e.At)
	w.entry(e)
	return w.end()
}

// room is a guess at the length of an encoded entry.
func room(e *Entry) int {
	n := 320 + len(e.Detail)
	if e.Message != nil {
		for i := range e.Message.Parts {
			p := &e.Message.Parts[i]
			n += 96 + len(p.Text) + len(p.Arguments) + len(p.Content) + len(p.Data) + len(p.Opaque)
		}
	}
	return n
}

func (w *encoder) end() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return append(w.b, '}'), nil
}

// entry writes what entries and events have in common.
func (w *encoder) entry(e *Entry) {
	w.textOr(`"reason":`, string(e.Reason))
	w.textOr(`"detail":`, e.Detail)
	w.numOr(`"version":`, e.Version)
	w.textOr(`"status":`, string(e.Status))
	w.textOr(`"worker":`, e.Worker)
	w.numOr(`"duration_ms":`, e.DurationMS)
	if len(e.Messages) > 0 {
		w.key(`"messages":`)
		w.b = append(w.b, '[')
		for i := range e.Messages {
			w.comma()
			w.message(&e.Messages[i])
		}
		w.b = append(w.b, ']')
	}
	if e.Message != nil {
		w.key(`"message":`)
		w.message(e.Message)
	}
	w.textOr(`"stop_reason":`, e.StopReason)
	if e.Usage != nil {
		w.key(`"usage":`)
		w.usage(e.Usage)
	}
	w.numOr(`"failed_calls":`, int64(e.FailedCalls))
	w.textOr(`"call_id":`, e.CallID)
	w.textOr(`"name":`, e.Name)
	w.yesOr(`"is_error":`, e.IsError)
	w.textOr(`"arguments":`, e.Arguments)
	w.any(`"message_ids":`, e.MessageIDs, len(e.MessageIDs) > 0)
	w.any(`"waiting":`, e.Waiting, e.Waiting != nil)
	if e.Output != nil {
		w.text(`"output":`, *e.Output)
	}
	w.any(`"structured_output":`, e.StructuredOutput, len(e.StructuredOutput) > 0)
	w.any(`"error":`, e.Error, e.Error != nil)
	w.numOr(`"step":`, int64(e.Step))
	w.textOr(`"action":`, e.Action)
	w.textOr(`"target":`, e.Target)
	w.textOr(`"limit":`, e.Limit)
	w.any(`"used_fraction":`, e.UsedFraction, e.UsedFraction != 0)
	w.any(`"confidence":`, e.Confidence, e.Confidence != nil)
	w.any(`"confidence_delta":`, e.ConfidenceDelta, e.ConfidenceDelta != 0)
	w.textOr(`"assessment":`, e.Assessment)
	w.textOr(`"guidance":`, e.Guidance)
}

func (w *encoder) message(m *Message) {
	w.b = append(w.b, '{')
	w.text(`"id":`, m.ID)
	w.text(`"role":`, string(m.Role))
	w.num(`"turn":`, int64(m.Turn))
	w.time(`"at":`, m.At)
	w.textOr(`"model":`, m.Model)
	w.yesOr(`"synthetic":`, m.Synthetic)
	w.yesOr(`"tombstoned":`, m.Tombstoned)
	w.yesOr(`"compacted":`, m.Compacted)
	w.key(`"parts":`)
	if m.Parts == nil {
		w.b = append(w.b, "null}"...)
		return
	}
	w.b = append(w.b, '[')
	for i := range m.Parts {
		w.comma()
		w.part(&m.Parts[i])
	}
	w.b = append(w.b, "]}"...)
}

// part writes a part with the fields of its type always present, and arguments as a
// JSON object where the model produced one, as a string where it did not.
func (w *encoder) part(p *Part) {
	w.b = append(w.b, '{')
	w.text(`"type":`, string(p.Type))
	if p.Type == PartText || p.Type == PartThinking {
		w.text(`"text":`, p.Text)
	}
	w.textOr(`"id":`, p.ID)
	w.textOr(`"name":`, p.Name)
	if p.Type == PartToolCall {
		if compactObject(p.Arguments) {
			w.key(`"arguments":`)
			w.b = append(w.b, p.Arguments...)
		} else {
			w.text(`"arguments":`, p.Arguments)
		}
	}
	w.textOr(`"call_id":`, p.CallID)
	if p.Type == PartToolResult {
		w.text(`"content":`, p.Content)
		w.key(`"is_error":`)
		w.b = strconv.AppendBool(w.b, p.IsError)
	}
	w.any(`"images":`, p.Images, len(p.Images) > 0)
	w.textOr(`"media_type":`, p.MediaType)
	w.textOr(`"data":`, p.Data)
	w.textOr(`"url":`, p.URL)
	w.any(`"opaque":`, p.Opaque, len(p.Opaque) > 0)
	w.textOr(`"opaque_by":`, p.OpaqueBy)
	w.b = append(w.b, '}')
}

func (w *encoder) usage(u *Usage) {
	w.b = append(w.b, '{')
	w.num(`"input_tokens":`, u.InputTokens)
	w.num(`"output_tokens":`, u.OutputTokens)
	w.num(`"cache_read_tokens":`, u.CacheReadTokens)
	w.num(`"cache_write_tokens":`, u.CacheWriteTokens)
	w.num(`"model_calls":`, u.ModelCalls)
	w.num(`"tool_calls":`, u.ToolCalls)
	w.key(`"cost_usd":`)
	if u.CostUSD == nil {
		w.b = append(w.b, "null"...)
	} else {
		w.b = u.CostUSD.append(w.b)
	}
	w.b = append(w.b, '}')
}

func (w *encoder) comma() {
	if last := w.b[len(w.b)-1]; last != '{' && last != '[' {
		w.b = append(w.b, ',')
	}
}

// key begins a field; names come with their quotes and colon.
func (w *encoder) key(name string) {
	w.comma()
	w.b = append(w.b, name...)
}

func (w *encoder) num(name string, n int64) {
	w.key(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *encoder) numOr(name string, n int64) {
	if n != 0 {
		w.num(name, n)
	}
}

func (w *encoder) yesOr(name string, yes bool) {
	if yes {
		w.key(name)
		w.b = append(w.b, "true"...)
	}
}

func (w *encoder) text(name, s string) {
	w.key(name)
	w.b = appendString(w.b, s)
}

func (w *encoder) textOr(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *encoder) time(name string, t Time) {
	w.key(name)
	var err error
	if w.b, err = t.append(w.b); err != nil {
		w.err = err
	}
}

// any writes what is rare the slow way.
func (w *encoder) any(name string, v any, there bool) {
	if !there {
		return
	}
	w.key(name)
	b, err := marshal(v)
	if err != nil {
		w.err = err
	}
	w.b = append(w.b, b...)
}

// MarshalJSON encodes p with the fields of its type always present.
func (p Part) MarshalJSON() ([]byte, error) {
	var w encoder
	w.part(&p)
	return w.b, w.err
}

func (t Time) append(b []byte) ([]byte, error) {
	if t.IsZero() {
		return append(b, "null"...), nil
	}
	if !t.writable() {
		return b, fmt.Errorf("time in the year %d has no form in RFC 3339", t.UTC().Year())
	}
	u := t.UTC()
	year, month, day := u.Date()
	hour, minute, second := u.Clock()
	b = append(b, '"')
	b = digits(b, year, 4)
	b = digits(append(b, '-'), int(month), 2)
	b = digits(append(b, '-'), day, 2)
	b = digits(append(b, 'T'), hour, 2)
	b = digits(append(b, ':'), minute, 2)
	b = digits(append(b, ':'), second, 2)
	b = digits(append(b, '.'), u.Nanosecond()/1e6, 3)
	return append(b, 'Z', '"'), nil
}

// digits appends n with as many digits as there are places.
func digits(b []byte, n, places int) []byte {
	for range places {
		b = append(b, '0')
	}
	for i := len(b) - 1; n > 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
	return b
}

// compactObject reports whether text is an object that survives encoding/json byte for
// byte, which strips white space; anything else travels as a string.
func compactObject(text string) bool {
	return text != "" && text[0] == '{' && compactValue(text, maxNested) == len(text)
}

const hexDigits = "0123456789abcdef"

// appendString writes a string as encoding/json does without escaping HTML, so text
// costs its own length.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; ; {
		i += plain(s[i:])
		if i == len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\b':
				b = append(b, '\\', 'b')
			case '\f':
				b = append(b, '\\', 'f')
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(append(b, s[start:i]...), `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			b = append(append(b, s[start:i]...), '\\', 'u', '2', '0', '2', hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	return append(append(b, s[start:]...), '"')
}
