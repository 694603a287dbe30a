package state

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// unpacker reads what a packer writes, and skips fields of newer builds.
type unpacker struct{ wire.Unpacker }

func unpack(message string) unpacker { return unpacker{wire.Unpack(message)} }

// DecodeEntry decodes entry number seq of a log. The strings of the entry share the memory of
// encoded if that is a string, or of one copy of it.
func DecodeEntry[T string | []byte](seq int64, encoded T) (Entry, error) {
	e := Entry{Seq: seq, Attempt: 1}
	if err := decodeEntry(&e, string(encoded)); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// AppendEntry decodes an entry with the number seq and appends it to log. If the entry is damaged, it returns the
// error, and the log unchanged.
func AppendEntry(log []Entry, seq int64, encoded string) ([]Entry, error) {
	n := len(log)
	log = append(log, Entry{})
	e := &log[n]
	e.Seq, e.Attempt = seq, 1
	if err := decodeEntry(e, encoded); err != nil {
		return log[:n], err
	}
	return log, nil
}

func decodeEntry(e *Entry, encoded string) error {
	u := unpack(encoded)
	u.entry(e)
	if err := u.Err(); err != nil {
		return fmt.Errorf("decode entry: %w", err)
	}
	return nil
}

func (u *unpacker) entry(e *Entry) {
	for u.Next() {
		switch u.Field() {
		case 1:
			e.Type = EntryType(u.Word(entryTypes))
		case 2:
			e.Turn = u.Int()
		case 3:
			e.Attempt = u.Int()
		case 4:
			e.At = Time{u.Time()}
		case 5:
			e.Reason = Reason(u.Word(reasons))
		case 6:
			e.Version = u.Num()
		case 7:
			e.Status = Status(u.Word(statuses))
		case 8:
			e.Worker = u.Text()
		case 9:
			e.DurationMS = u.Num()
		case 10:
			e.CallID = u.Text()
		case 11:
			e.Name = u.Text()
		case 12:
			e.Message = new(Message)
			u.message(e, e.Message, 0)
		case 13:
			e.Usage = new(Usage)
			u.usage(e.Usage)
		case 14:
			e.Messages = append(e.Messages, Message{})
			u.message(e, &e.Messages[len(e.Messages)-1], len(e.Messages)-1)
		case 15:
			e.IsError = u.Yes()
		default:
			u.rareOfEntry(e)
		}
	}
}

func (u *unpacker) rareOfEntry(e *Entry) {
	switch u.Field() {
	case 16:
		e.Detail = u.Text()
	case 17:
		e.By = new(By)
		u.by(e.By)
	case 18:
		e.Requesters = append(e.Requesters, u.Text())
	case 19:
		e.StopReason = u.Word(stopReasons)
	case 20:
		e.FailedCalls = u.Int()
	case 21:
		e.Arguments = u.Text()
	case 22:
		e.Approval = wire.Any[*Decided](&u.Unpacker)
	case 23:
		e.MessageIDs = append(e.MessageIDs, u.Text())
	case 24:
		e.Waiting = wire.Any[*Wait](&u.Unpacker)
	case 25:
		text := u.Text()
		e.Output = &text
	case 26:
		e.StructuredOutput = u.Raw()
	case 27:
		e.Error = wire.Any[*Error](&u.Unpacker)
	case 28:
		e.Step = u.Int()
	case 29:
		e.Action = u.Text()
	case 30:
		e.Target = u.Text()
	case 31:
		e.Limit = u.Text()
	case 32:
		e.UsedFraction = u.Float()
	case 33:
		f := u.Float()
		e.Confidence = &f
	case 34:
		e.ConfidenceDelta = u.Float()
	case 35:
		e.Assessment = u.Text()
	case 36:
		e.Guidance = u.Text()
	case 37:
		e.Handoff = wire.Any[*Handoff](&u.Unpacker)
	case 38:
		e.Cache = u.Text()
	case 39:
		e.ForkedFrom = wire.Any[*ForkSource](&u.Unpacker)
	case 40:
		e.Checkpoint = wire.Any[*Checkpoint](&u.Unpacker)
	case 41:
		if c := e.Checkpoint; c != nil {
			c.Messages = append(c.Messages, Message{})
			u.message(e, &c.Messages[len(c.Messages)-1], len(c.Messages)-1)
		}
	}
}

// message reads message number i of an entry.
func (u *unpacker) message(e *Entry, m *Message, i int) {
	m.Turn, m.At = e.Turn, e.At
	named := false
	text := u.Text()
	if n := parts(text); n > 0 {
		m.Parts = make([]Part, 0, n) // without spare capacity
	}
	in := unpack(text)
	for in.Next() {
		switch in.Field() {
		case 1:
			m.ID, named = in.Text(), true
		case 2:
			m.Role = Role(in.Word(roles))
		case 3:
			m.Turn = in.Int()
		case 4:
			m.At = Time{in.Time()}
		case 5:
			m.Model = in.Text()
		case 6:
			m.Synthetic = in.Yes()
		case 7:
			m.Undelivered = in.Yes()
		case 8:
			m.Tombstoned = in.Yes()
		case 9:
			m.Compacted = in.Yes()
		case 10:
			m.Parts = append(m.Parts, Part{})
			in.part(&m.Parts[len(m.Parts)-1], e.CallID)
		case 11:
			if m.Parts == nil {
				m.Parts = []Part{}
			}
		}
	}
	if !named {
		m.ID = string(appendID(nil, e.Seq, i))
	}
	u.Check(in.OK())
}

// parts returns the number of parts of an encoded message, as far as it is valid.
func parts(text string) int {
	n := 0
	for in := unpack(text); in.Next(); {
		if in.Field() == 10 {
			n++
		}
	}
	return n
}

func (u *unpacker) part(p *Part, callID string) {
	in := unpack(u.Text())
	for in.Next() {
		switch in.Field() {
		case 1:
			if p.Type = PartType(in.Word(partTypes)); p.Type == PartToolResult {
				p.CallID = callID
			}
		case 2:
			p.Text = in.Text()
		case 3:
			p.ID = in.Text()
		case 4:
			p.Name = in.Text()
		case 5:
			p.Arguments = in.Text()
		case 6:
			p.CallID = in.Text()
		case 7:
			p.Content = in.Text()
		case 8:
			p.IsError = in.Yes()
		case 9:
			p.Images = wire.Any[[]Image](&in.Unpacker)
		case 10:
			p.MediaType = in.Text()
		case 11:
			p.Data = in.Text()
		case 12:
			p.URL = in.Text()
		case 13:
			p.Origin = Origin(in.Word(origins))
		case 14:
			p.Opaque = in.Raw()
		case 15:
			p.OpaqueBy = in.Text()
		case 16:
			p.FileID = in.Text()
		case 17:
			p.Bytes = in.Num()
		case 18:
			p.Files = wire.Any[[]Part](&in.Unpacker)
		}
	}
	u.Check(in.OK())
}

func (u *unpacker) by(to *By) {
	in := unpack(u.Text())
	for in.Next() {
		switch in.Field() {
		case 1:
			to.Principal = in.Text()
		case 2:
			to.Tenant = in.Text()
		case 3:
			to.Via = in.Text()
		}
	}
	u.Check(in.OK())
}

func (u *unpacker) usage(to *Usage) {
	in := unpack(u.Text())
	for in.Next() {
		switch in.Field() {
		case 1:
			to.InputTokens = in.Num()
		case 2:
			to.OutputTokens = in.Num()
		case 3:
			to.CacheReadTokens = in.Num()
		case 4:
			to.CacheWriteTokens = in.Num()
		case 5:
			to.ModelCalls = in.Num()
		case 6:
			to.ToolCalls = in.Num()
		case 7:
			cost := MicroUSD(in.Num())
			to.CostUSD = &cost
		case 8:
			to.Estimated = in.Yes()
		case 9:
			to.CacheHourTokens = in.Num()
		case 10:
			to.CacheExpiredTokens = in.Num()
		case 11:
			to.WebSearches = in.Num()
		case 12:
			to.WebFetches = in.Num()
		case 13:
			to.CodeExecutions = in.Num()
		case 14:
			cost := MicroUSD(in.Num())
			to.CacheExpiredCostUSD = &cost
		}
	}
	u.Check(in.OK())
}
