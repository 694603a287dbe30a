package state

import (
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// packer writes the stored form of a run (ADR 31). The numbers of fields are part of the format: a
// new field takes a new number, and no number is used again.
type packer struct{ wire.Packer }

func newPacker(estimate int) packer {
	return packer{wire.Packer{B: make([]byte, 0, estimate)}}
}

// EncodeEntry encodes one entry of a log, without its number: that is its position in the log.
func EncodeEntry(e *Entry) ([]byte, error) {
	p := newPacker(estimate(e))
	p.entry(e)
	return p.Bytes()
}

// entry writes first what messages and parts may repeat: they omit it.
func (p *packer) entry(e *Entry) {
	p.WordOr(1, entryTypes, string(e.Type))
	p.NumOr(2, int64(e.Turn))
	if e.Attempt != 1 {
		p.Num(3, int64(e.Attempt))
	}
	p.TimeOr(4, e.At.Time)
	p.WordOr(5, reasons, string(e.Reason))
	p.NumOr(6, e.Version)
	p.WordOr(7, statuses, string(e.Status))
	p.TextOr(8, e.Worker)
	p.NumOr(9, e.DurationMS)
	p.TextOr(10, e.CallID)
	p.TextOr(11, e.Name)
	if e.Message != nil {
		p.message(12, e, e.Message, 0)
	}
	if e.Usage != nil {
		p.usage(13, e.Usage)
	}
	for i := range e.Messages {
		p.message(14, e, &e.Messages[i], i)
	}
	p.YesOr(15, e.IsError)
	p.TextOr(16, e.Detail)
	if e.By != nil {
		p.by(17, e.By)
	}
	p.Texts(18, e.Requesters)
	p.WordOr(19, stopReasons, e.StopReason)
	p.NumOr(20, int64(e.FailedCalls))
	p.TextOr(21, e.Arguments)
	p.Any(22, e.Approval, e.Approval != nil)
	p.Texts(23, e.MessageIDs)
	p.Any(24, e.Waiting, e.Waiting != nil)
	if e.Output != nil {
		p.Text(25, *e.Output)
	}
	p.RawOr(26, e.StructuredOutput)
	p.Any(27, e.Error, e.Error != nil)
	p.NumOr(28, int64(e.Step))
	p.TextOr(29, e.Action)
	p.TextOr(30, e.Target)
	p.TextOr(31, e.Limit)
	p.FloatOr(32, e.UsedFraction)
	if e.Confidence != nil {
		p.Float(33, *e.Confidence)
	}
	p.FloatOr(34, e.ConfidenceDelta)
	p.TextOr(35, e.Assessment)
	p.TextOr(36, e.Guidance)
	p.Any(37, e.Handoff, e.Handoff != nil)
	p.TextOr(38, e.Cache)
	p.Any(39, e.ForkedFrom, e.ForkedFrom != nil)
	// Builds that do not know the type must not take its messages for those of the history.
	if c := e.Checkpoint; c != nil {
		p.Any(40, c, true)
		for i := range c.Messages {
			p.message(41, e, &c.Messages[i], i)
		}
	}
}

// message writes message number i of an entry. It omits the id that the loop gives such a message,
// and the turn and the time of the entry.
func (p *packer) message(field int, e *Entry, m *Message, i int) {
	start := p.Open(field)
	if !usualID(m.ID, e.Seq, i) {
		p.Text(1, m.ID)
	}
	p.WordOr(2, roles, string(m.Role))
	if m.Turn != e.Turn {
		p.Num(3, int64(m.Turn))
	}
	if !m.At.Equal(e.At.Time) {
		p.time(4, m.At.Time)
	}
	p.TextOr(5, m.Model)
	p.YesOr(6, m.Synthetic)
	p.YesOr(7, m.Undelivered)
	p.YesOr(8, m.Tombstoned)
	p.YesOr(9, m.Compacted)
	for i := range m.Parts {
		p.part(10, &m.Parts[i], e.CallID)
	}
	p.YesOr(11, m.Parts != nil && len(m.Parts) == 0) // JSON distinguishes an empty list from none
	p.Close(start)
}

// time writes an instant, the zero time too.
func (p *packer) time(field int, t time.Time) {
	if t.IsZero() {
		p.Num(field, t.UnixMilli())
		return
	}
	p.TimeOr(field, t)
}

// part writes a part. A result omits its call id if that is the entry's.
func (p *packer) part(field int, part *Part, callID string) {
	start := p.Open(field)
	p.WordOr(1, partTypes, string(part.Type))
	p.TextOr(2, part.Text)
	p.TextOr(3, part.ID)
	p.TextOr(4, part.Name)
	p.TextOr(5, part.Arguments)
	if part.Type != PartToolResult {
		callID = ""
	}
	if part.CallID != callID {
		p.Text(6, part.CallID)
	}
	p.TextOr(7, part.Content)
	p.YesOr(8, part.IsError)
	p.Any(9, part.Images, len(part.Images) > 0)
	p.TextOr(10, part.MediaType)
	p.TextOr(11, part.Data)
	p.TextOr(12, part.URL)
	p.WordOr(13, origins, string(part.Origin))
	p.RawOr(14, part.Opaque)
	p.TextOr(15, part.OpaqueBy)
	p.TextOr(16, part.FileID)
	p.NumOr(17, part.Bytes)
	p.Any(18, part.Files, len(part.Files) > 0)
	p.Close(start)
}

func (p *packer) by(field int, by *By) {
	start := p.Open(field)
	p.TextOr(1, by.Principal)
	p.TextOr(2, by.Tenant)
	p.TextOr(3, by.Via)
	p.Close(start)
}

func (p *packer) usage(field int, u *Usage) {
	start := p.Open(field)
	p.NumOr(1, u.InputTokens)
	p.NumOr(2, u.OutputTokens)
	p.NumOr(3, u.CacheReadTokens)
	p.NumOr(4, u.CacheWriteTokens)
	p.NumOr(5, u.ModelCalls)
	p.NumOr(6, u.ToolCalls)
	if u.CostUSD != nil {
		p.Num(7, int64(*u.CostUSD))
	}
	p.YesOr(8, u.Estimated)
	p.NumOr(9, u.CacheHourTokens)
	p.NumOr(10, u.CacheExpiredTokens)
	p.NumOr(11, u.WebSearches)
	p.NumOr(12, u.WebFetches)
	p.NumOr(13, u.CodeExecutions)
	if u.CacheExpiredCostUSD != nil {
		p.Num(14, int64(*u.CacheExpiredCostUSD))
	}
	p.Close(start)
}

// appendID appends the id that the loop gives message number i of the entry number seq.
func appendID(b []byte, seq int64, i int) []byte {
	b = strconv.AppendInt(append(b, "msg_"...), seq, 10)
	return strconv.AppendInt(append(b, '_'), int64(i), 10)
}

func usualID(id string, seq int64, i int) bool {
	var b [48]byte
	return id == string(appendID(b[:0], seq, i))
}

// estimate estimates the length of an encoded entry.
func estimate(e *Entry) int {
	n := 80 + len(e.Detail)
	if e.Message != nil {
		n += estimateMessage(e.Message)
	}
	for i := range e.Messages {
		n += estimateMessage(&e.Messages[i])
	}
	if c := e.Checkpoint; c != nil {
		for i := range c.Messages {
			n += estimateMessage(&c.Messages[i])
		}
	}
	return n
}

func estimateMessage(m *Message) int {
	n := 48
	for i := range m.Parts {
		p := &m.Parts[i]
		n += 64 + len(p.Text) + len(p.Arguments) + len(p.Content) + len(p.Data) + len(p.Opaque)
	}
	return n
}
