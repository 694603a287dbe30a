package state

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// decoder reads only what an encoder writes; encoding/json reads everything else.
type decoder struct{ wire.Reader }

// entry reads what EncodeEntry writes.
func (d *decoder) entry(e *Entry) {
	d.Must(`{"seq":`)
	e.Seq = d.Num()
	d.Must(`,"type":`)
	e.Type = EntryType(d.Text())
	d.Must(`,"turn":`)
	e.Turn = d.Int()
	d.IntOr(`,"attempt":`, &e.Attempt)
	d.Must(`,"at":`)
	e.At = Time{d.Time()}
	wire.TextOr(&d.Reader, `,"reason":`, &e.Reason)
	wire.TextOr(&d.Reader, `,"detail":`, &e.Detail)
	d.NumOr(`,"version":`, &e.Version)
	wire.TextOr(&d.Reader, `,"status":`, &e.Status)
	wire.TextOr(&d.Reader, `,"worker":`, &e.Worker)
	d.NumOr(`,"duration_ms":`, &e.DurationMS)
	wire.AnyOr(&d.Reader, `,"by":`, &e.By)
	wire.AnyOr(&d.Reader, `,"asked":`, &e.Requesters)
	if d.Key(`,"messages":[`) {
		e.Messages = []Message{}
		for d.More(len(e.Messages)) {
			e.Messages = append(e.Messages, Message{})
			d.message(&e.Messages[len(e.Messages)-1])
		}
	}
	if d.Key(`,"message":`) {
		e.Message = new(Message)
		d.message(e.Message)
	}
	wire.TextOr(&d.Reader, `,"stop_reason":`, &e.StopReason)
	if d.Key(`,"usage":`) {
		e.Usage = new(Usage)
		d.usage(e.Usage)
	}
	d.IntOr(`,"failed_calls":`, &e.FailedCalls)
	wire.TextOr(&d.Reader, `,"call_id":`, &e.CallID)
	wire.TextOr(&d.Reader, `,"name":`, &e.Name)
	d.YesOr(`,"is_error":`, &e.IsError)
	wire.TextOr(&d.Reader, `,"arguments":`, &e.Arguments)
	wire.AnyOr(&d.Reader, `,"approval":`, &e.Approval)
	wire.AnyOr(&d.Reader, `,"message_ids":`, &e.MessageIDs)
	wire.AnyOr(&d.Reader, `,"waiting":`, &e.Waiting)
	if d.Key(`,"output":`) {
		s := d.Text()
		e.Output = &s
	}
	d.RawOr(`,"structured_output":`, &e.StructuredOutput)
	wire.AnyOr(&d.Reader, `,"error":`, &e.Error)
	d.IntOr(`,"step":`, &e.Step)
	wire.TextOr(&d.Reader, `,"action":`, &e.Action)
	wire.TextOr(&d.Reader, `,"target":`, &e.Target)
	wire.TextOr(&d.Reader, `,"limit":`, &e.Limit)
	wire.AnyOr(&d.Reader, `,"used_fraction":`, &e.UsedFraction)
	wire.AnyOr(&d.Reader, `,"confidence":`, &e.Confidence)
	wire.AnyOr(&d.Reader, `,"confidence_delta":`, &e.ConfidenceDelta)
	wire.TextOr(&d.Reader, `,"assessment":`, &e.Assessment)
	wire.TextOr(&d.Reader, `,"guidance":`, &e.Guidance)
	d.Must(`}`)
}

func (d *decoder) message(m *Message) {
	d.Must(`{"id":`)
	m.ID = d.Text()
	d.Must(`,"role":`)
	m.Role = Role(d.Text())
	d.Must(`,"turn":`)
	m.Turn = d.Int()
	d.Must(`,"at":`)
	m.At = Time{d.Time()}
	wire.TextOr(&d.Reader, `,"model":`, &m.Model)
	d.YesOr(`,"synthetic":`, &m.Synthetic)
	d.YesOr(`,"undelivered":`, &m.Undelivered)
	d.YesOr(`,"tombstoned":`, &m.Tombstoned)
	d.YesOr(`,"compacted":`, &m.Compacted)
	d.Must(`,"parts":`)
	if !d.Key(`null`) {
		d.Must(`[`)
		var few [4]Part // so that the list has no spare capacity
		parts := few[:0]
		for d.More(len(parts)) {
			parts = append(parts, Part{})
			d.part(&parts[len(parts)-1])
		}
		m.Parts = append([]Part{}, parts...)
	}
	d.Must(`}`)
}

func (d *decoder) part(p *Part) {
	d.Must(`{"type":`)
	p.Type = PartType(d.Text())
	wire.TextOr(&d.Reader, `,"text":`, &p.Text)
	wire.TextOr(&d.Reader, `,"id":`, &p.ID)
	wire.TextOr(&d.Reader, `,"name":`, &p.Name)
	if d.Key(`,"arguments":`) {
		if d.At(`{`) {
			p.Arguments = d.Owned()
		} else {
			p.Arguments = d.Text()
		}
	}
	wire.TextOr(&d.Reader, `,"call_id":`, &p.CallID)
	wire.TextOr(&d.Reader, `,"content":`, &p.Content)
	d.YesOr(`,"is_error":`, &p.IsError)
	wire.AnyOr(&d.Reader, `,"images":`, &p.Images)
	wire.TextOr(&d.Reader, `,"media_type":`, &p.MediaType)
	wire.TextOr(&d.Reader, `,"data":`, &p.Data)
	wire.TextOr(&d.Reader, `,"url":`, &p.URL)
	wire.TextOr(&d.Reader, `,"origin":`, &p.Origin)
	d.RawOr(`,"opaque":`, &p.Opaque)
	wire.TextOr(&d.Reader, `,"opaque_by":`, &p.OpaqueBy)
	d.Must(`}`)
}

func (d *decoder) usage(u *Usage) {
	d.Must(`{"input_tokens":`)
	u.InputTokens = d.Num()
	d.Must(`,"output_tokens":`)
	u.OutputTokens = d.Num()
	d.Must(`,"cache_read_tokens":`)
	u.CacheReadTokens = d.Num()
	d.Must(`,"cache_write_tokens":`)
	u.CacheWriteTokens = d.Num()
	d.Must(`,"model_calls":`)
	u.ModelCalls = d.Num()
	d.Must(`,"tool_calls":`)
	u.ToolCalls = d.Num()
	d.Must(`,"cost_usd":`)
	if !d.Key(`null`) {
		u.CostUSD = new(MicroUSD)
		d.dollars(u.CostUSD)
	}
	d.YesOr(`,"estimated":`, &u.Estimated)
	d.Must(`}`)
}

// dollars reads an amount, without 128-bit arithmetic if possible.
func (d *decoder) dollars(m *MicroUSD) {
	n, raw, ok := d.Millionths()
	if ok {
		*m = MicroUSD(n)
		return
	}
	*m = wire.Library[MicroUSD](&d.Reader, raw)
}

// DecodeEntry decodes one entry of a log. The strings of the entry share the memory of text if that
// is a string, or of one copy of it (ADR 15).
func DecodeEntry[T string | []byte](text T) (Entry, error) {
	var d decoder
	d.Begin(string(text))
	var e Entry
	if d.entry(&e); d.Done() {
		return e, nil
	}
	return decodeEntry([]byte(text))
}

// decodeEntry is DecodeEntry for the output of other encoders.
func decodeEntry(b []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	return e, nil
}
