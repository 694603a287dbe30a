package state

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// decoder reads JSON in the one form in which the encoder writes it, field by field in
// its order, and nothing else: whatever differs makes it fail, and encoding/json has the
// word. Field names come with what stands in front of them.
type decoder struct {
	rest string // what is not read yet; empty after a failure
	odd  bool   // the text has another form

	// copied takes all strings if some have to be rewritten; those that need not
	// be are parts of the text otherwise.
	copied strings.Builder
	copies bool

	// said is the time that was read last, and instant what it says: many are the same.
	said    string
	instant Time
}

// begin makes text what is to be read. The strings of what is decoded are parts of it,
// or of one copy without escapes.
func (d *decoder) begin(text string) {
	d.rest = text
	if n := strings.Count(text, `\`); n > 0 {
		d.copies = true
		d.copied.Grow(len(text) - n + strings.Count(text, `\\`)) // each escape is longer than what it stands for
	}
}

// done reports whether text was read to its end.
func (d *decoder) done() bool { return !d.odd && d.rest == "" }

func (d *decoder) fail() { d.rest, d.odd = "", true }

// entry reads what EncodeEntry writes.
func (d *decoder) entry(e *Entry) {
	d.must(`{"seq":`)
	e.Seq = d.num()
	d.must(`,"type":`)
	e.Type = EntryType(d.text())
	d.must(`,"turn":`)
	e.Turn = d.int()
	d.intOr(`,"attempt":`, &e.Attempt)
	d.must(`,"at":`)
	e.At = d.time()
	textOr(d, `,"reason":`, &e.Reason)
	textOr(d, `,"detail":`, &e.Detail)
	d.numOr(`,"version":`, &e.Version)
	textOr(d, `,"status":`, &e.Status)
	textOr(d, `,"worker":`, &e.Worker)
	d.numOr(`,"duration_ms":`, &e.DurationMS)
	if d.key(`,"messages":[`) {
		e.Messages = []Message{}
		for d.more(len(e.Messages)) {
			e.Messages = append(e.Messages, Message{})
			d.message(&e.Messages[len(e.Messages)-1])
		}
	}
	if d.key(`,"message":`) {
		e.Message = new(Message)
		d.message(e.Message)
	}
	textOr(d, `,"stop_reason":`, &e.StopReason)
	if d.key(`,"usage":`) {
		e.Usage = new(Usage)
		d.usage(e.Usage)
	}
	d.intOr(`,"failed_calls":`, &e.FailedCalls)
	textOr(d, `,"call_id":`, &e.CallID)
	textOr(d, `,"name":`, &e.Name)
	d.yesOr(`,"is_error":`, &e.IsError)
	textOr(d, `,"arguments":`, &e.Arguments)
	anyOr(d, `,"message_ids":`, &e.MessageIDs)
	anyOr(d, `,"waiting":`, &e.Waiting)
	if d.key(`,"output":`) {
		s := d.text()
		e.Output = &s
	}
	d.rawOr(`,"structured_output":`, &e.StructuredOutput)
	anyOr(d, `,"error":`, &e.Error)
	d.intOr(`,"step":`, &e.Step)
	textOr(d, `,"action":`, &e.Action)
	textOr(d, `,"target":`, &e.Target)
	textOr(d, `,"limit":`, &e.Limit)
	anyOr(d, `,"used_fraction":`, &e.UsedFraction)
	anyOr(d, `,"confidence":`, &e.Confidence)
	anyOr(d, `,"confidence_delta":`, &e.ConfidenceDelta)
	textOr(d, `,"assessment":`, &e.Assessment)
	textOr(d, `,"guidance":`, &e.Guidance)
	d.must(`}`)
}

func (d *decoder) message(m *Message) {
	d.must(`{"id":`)
	m.ID = d.text()
	d.must(`,"role":`)
	m.Role = Role(d.text())
	d.must(`,"turn":`)
	m.Turn = d.int()
	d.must(`,"at":`)
	m.At = d.time()
	textOr(d, `,"model":`, &m.Model)
	d.yesOr(`,"synthetic":`, &m.Synthetic)
	d.yesOr(`,"tombstoned":`, &m.Tombstoned)
	d.yesOr(`,"compacted":`, &m.Compacted)
	d.must(`,"parts":`)
	if !d.key(`null`) {
		d.must(`[`)
		var few [4]Part // so that the list is as long as it has to be
		parts := few[:0]
		for d.more(len(parts)) {
			parts = append(parts, Part{})
			d.part(&parts[len(parts)-1])
		}
		m.Parts = append([]Part{}, parts...)
	}
	d.must(`}`)
}

func (d *decoder) part(p *Part) {
	d.must(`{"type":`)
	p.Type = PartType(d.text())
	textOr(d, `,"text":`, &p.Text)
	textOr(d, `,"id":`, &p.ID)
	textOr(d, `,"name":`, &p.Name)
	if d.key(`,"arguments":`) {
		if strings.HasPrefix(d.rest, `{`) {
			if p.Arguments = d.raw(); d.copies {
				p.Arguments = strings.Clone(p.Arguments)
			}
		} else {
			p.Arguments = d.text()
		}
	}
	textOr(d, `,"call_id":`, &p.CallID)
	textOr(d, `,"content":`, &p.Content)
	d.yesOr(`,"is_error":`, &p.IsError)
	anyOr(d, `,"images":`, &p.Images)
	textOr(d, `,"media_type":`, &p.MediaType)
	textOr(d, `,"data":`, &p.Data)
	textOr(d, `,"url":`, &p.URL)
	d.rawOr(`,"opaque":`, &p.Opaque)
	textOr(d, `,"opaque_by":`, &p.OpaqueBy)
	d.must(`}`)
}

func (d *decoder) usage(u *Usage) {
	d.must(`{"input_tokens":`)
	u.InputTokens = d.num()
	d.must(`,"output_tokens":`)
	u.OutputTokens = d.num()
	d.must(`,"cache_read_tokens":`)
	u.CacheReadTokens = d.num()
	d.must(`,"cache_write_tokens":`)
	u.CacheWriteTokens = d.num()
	d.must(`,"model_calls":`)
	u.ModelCalls = d.num()
	d.must(`,"tool_calls":`)
	u.ToolCalls = d.num()
	d.must(`,"cost_usd":`)
	if !d.key(`null`) {
		u.CostUSD = new(MicroUSD)
		d.dollars(u.CostUSD)
	}
	d.must(`}`)
}

// key reads a field's name, or reports that another one stands there.
func (d *decoder) key(name string) bool {
	if !strings.HasPrefix(d.rest, name) {
		return false
	}
	d.rest = d.rest[len(name):]
	return true
}

func (d *decoder) must(name string) {
	if !d.key(name) {
		d.fail()
	}
}

// more reports whether a list goes on behind n elements, and reads what stands between
// them, or its end.
func (d *decoder) more(n int) bool {
	if d.odd || d.key(`]`) {
		return false
	}
	if n > 0 {
		d.must(`,`)
	}
	return !d.odd
}

func (d *decoder) num() int64 {
	s, n, i := d.rest, int64(0), 0
	minus := strings.HasPrefix(s, `-`)
	if minus {
		s = s[1:]
	}
	for ; i < len(s) && isDigit(s[i]); i++ {
		n = n*10 + int64(s[i]-'0')
	}
	var err error
	if i > 18 { // it may be too large
		n, err = strconv.ParseInt(d.rest[:len(d.rest)-len(s)+i], 10, 64)
	} else if minus {
		n = -n
	}
	if i == 0 || i > 1 && s[0] == '0' || err != nil {
		d.fail()
		return 0
	}
	d.rest = s[i:]
	return n
}

// dollars reads an amount without going through 128 bits, if it is as the encoder
// writes them and below a trillion.
func (d *decoder) dollars(m *MicroUSD) {
	raw := d.raw()
	whole, part, _ := strings.Cut(raw, ".")
	if len(whole) <= 12 && len(part) <= 6 {
		if n, err := strconv.ParseUint(whole+part+"000000"[len(part):], 10, 63); err == nil {
			*m = MicroUSD(n) //nolint:gosec // 63 bits
			return
		}
	}
	*m = library[MicroUSD](d, raw)
}

func (d *decoder) numOr(name string, v *int64) {
	if d.key(name) {
		*v = d.num()
	}
}

func (d *decoder) int() int {
	n := d.num()
	if strconv.IntSize < 64 && int64(int(n)) != n {
		d.fail()
	}
	return int(n)
}

func (d *decoder) intOr(name string, v *int) {
	if d.key(name) {
		*v = d.int()
	}
}

func (d *decoder) yesOr(name string, v *bool) {
	if d.key(name) {
		if *v = d.key(`true`); !*v {
			d.must(`false`)
		}
	}
}

func textOr[T ~string](d *decoder, name string, v *T) {
	if d.key(name) {
		*v = T(d.text())
	}
}

func (d *decoder) time() Time {
	const form = `"2006-01-02T15:04:05.000Z"`
	s := d.rest
	if len(s) < len(form) || s[5] != '-' || s[8] != '-' || s[11] != 'T' || s[14] != ':' || s[17] != ':' || s[20] != '.' || s[24:len(form)] != `Z"` {
		d.must(`null`)
		return Time{}
	}
	if s[:len(form)] == d.said {
		d.rest = s[len(form):]
		return d.instant
	}
	year, month, day := d.number(s[1:5]), time.Month(d.number(s[6:8])), d.number(s[9:11])
	hour, minute, second, ms := d.number(s[12:14]), d.number(s[15:17]), d.number(s[18:20]), d.number(s[21:24])
	t := time.Date(year, month, day, hour, minute, second, ms*1e6, time.UTC)
	if d.odd || s[0] != '"' || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 ||
		day > 28 && t.Day() != day { // its month has no such day
		d.fail()
		return Time{}
	}
	d.rest, d.said, d.instant = s[len(form):], s[:len(form)], Time{t}
	return d.instant
}

func (d *decoder) timeOr(name string, t *Time) {
	if d.key(name) {
		*t = d.time()
	}
}

// number returns what some digits say.
func (d *decoder) number(digits string) int {
	n := 0
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			d.fail()
		}
		n = n*10 + int(digits[i]-'0')
	}
	return n
}

// anyOr reads what is rare the slow way.
func anyOr[T any](d *decoder, name string, v *T) {
	if d.key(name) {
		*v = library[T](d, d.raw())
	}
}

// library returns what encoding/json makes of a value: not through a pointer into what is
// decoded, which it would move to the heap.
func library[T any](d *decoder, raw string) (v T) {
	if !d.odd && json.Unmarshal([]byte(raw), &v) != nil {
		d.fail()
	}
	return v
}

func (d *decoder) rawOr(name string, v *json.RawMessage) {
	if d.key(name) {
		*v = json.RawMessage(d.raw())
	}
}

// raw reads any value, as it stands there.
func (d *decoder) raw() string {
	n := compactValue(d.rest, maxNested)
	if n <= 0 {
		d.fail()
		return ""
	}
	raw := d.rest[:n]
	d.rest = d.rest[n:]
	return raw
}

func (d *decoder) text() string {
	if d.rest == "" || d.rest[0] != '"' {
		d.fail()
		return ""
	}
	s := d.rest[1:]
	start, written := d.copied.Len(), 0
	for i := 0; ; {
		i += plain(s[i:])
		if i == len(s) || s[i] < ' ' {
			break
		}
		switch s[i] {
		case '"':
			d.rest = s[i+1:]
			if !d.copies {
				return s[:i]
			}
			d.copied.WriteString(s[written:i])
			return d.copied.String()[start:]
		case '\\':
			d.copied.WriteString(s[written:i])
			n := d.unescape(s[i:])
			if n == 0 {
				d.fail()
				return ""
			}
			i += n
			written = i
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				d.fail()
				return ""
			}
			i += size
		}
	}
	d.fail()
	return ""
}

// unescape copies what s, which begins with a backslash, stands for, and returns how much
// of s that is, or 0 if the encoder never writes it.
func (d *decoder) unescape(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\':
		d.copied.WriteByte(s[1])
	case 'b':
		d.copied.WriteByte('\b')
	case 'f':
		d.copied.WriteByte('\f')
	case 'n':
		d.copied.WriteByte('\n')
	case 'r':
		d.copied.WriteByte('\r')
	case 't':
		d.copied.WriteByte('\t')
	case 'u':
		if len(s) < 6 {
			return 0
		}
		n, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil || !utf8.ValidRune(rune(n)) {
			return 0
		}
		d.copied.WriteRune(rune(n))
		return 6
	default:
		return 0
	}
	return 2
}
