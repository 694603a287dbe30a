package state

import (
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// encoder writes events as encoding/json does without escaping HTML (ADR 31).
type encoder struct{ wire.Writer }

// EncodeEvent encodes an entry of a run's log as an event. Attempt is always present; it is 0 if no
// worker was involved.
func EncodeEvent(id RunID, e Entry) ([]byte, error) {
	return encodeEvent(id, &e, strconv.AppendInt([]byte(`"seq":`), e.Seq, 10))
}

// EncodeLive encodes an event that is in no log, without a number.
func EncodeLive(id RunID, e Entry) ([]byte, error) {
	return encodeEvent(id, &e, []byte(`"seq":null`))
}

func encodeEvent(id RunID, e *Entry, seq []byte) ([]byte, error) {
	w := encoder{wire.Writer{B: append(make([]byte, 0, 320+3*estimate(e)/2), '{')}}
	w.B = append(w.B, seq...)
	w.Text(`"run_id":`, string(id))
	w.Text(`"type":`, string(e.Type))
	w.Num(`"turn":`, int64(e.Turn))
	w.Num(`"attempt":`, int64(e.Attempt))
	w.Time(`"at":`, e.At.Time)
	w.entry(e)
	return w.end()
}

func (w *encoder) end() ([]byte, error) {
	w.B = append(w.B, '}')
	return w.Bytes()
}

// entry writes the fields that entries and events share.
func (w *encoder) entry(e *Entry) {
	w.TextOr(`"reason":`, string(e.Reason))
	w.TextOr(`"detail":`, e.Detail)
	w.NumOr(`"version":`, e.Version)
	w.TextOr(`"status":`, string(e.Status))
	w.TextOr(`"worker":`, e.Worker)
	w.NumOr(`"duration_ms":`, e.DurationMS)
	w.Any(`"by":`, e.By, e.By != nil)
	w.Any(`"asked":`, e.Requesters, len(e.Requesters) > 0)
	if len(e.Messages) > 0 {
		w.Key(`"messages":`)
		w.B = append(w.B, '[')
		for i := range e.Messages {
			w.Comma()
			w.message(&e.Messages[i])
		}
		w.B = append(w.B, ']')
	}
	if e.Message != nil {
		w.Key(`"message":`)
		w.message(e.Message)
	}
	w.TextOr(`"stop_reason":`, e.StopReason)
	if e.Usage != nil {
		w.Key(`"usage":`)
		w.usage(e.Usage)
	}
	w.NumOr(`"failed_calls":`, int64(e.FailedCalls))
	w.TextOr(`"cache":`, e.Cache)
	w.TextOr(`"call_id":`, e.CallID)
	w.TextOr(`"name":`, e.Name)
	w.YesOr(`"is_error":`, e.IsError)
	w.TextOr(`"arguments":`, e.Arguments)
	w.Any(`"approval":`, e.Approval, e.Approval != nil)
	w.Any(`"message_ids":`, e.MessageIDs, len(e.MessageIDs) > 0)
	w.Any(`"handoff":`, e.Handoff, e.Handoff != nil)
	w.Any(`"forked_from":`, e.ForkedFrom, e.ForkedFrom != nil)
	w.Any(`"waiting":`, e.Waiting, e.Waiting != nil)
	if e.Output != nil {
		w.Text(`"output":`, *e.Output)
	}
	w.Any(`"structured_output":`, e.StructuredOutput, len(e.StructuredOutput) > 0)
	w.Any(`"error":`, e.Error, e.Error != nil)
	w.NumOr(`"step":`, int64(e.Step))
	w.TextOr(`"action":`, e.Action)
	w.TextOr(`"target":`, e.Target)
	w.TextOr(`"limit":`, e.Limit)
	w.Any(`"used_fraction":`, e.UsedFraction, e.UsedFraction != 0)
	w.Any(`"confidence":`, e.Confidence, e.Confidence != nil)
	w.Any(`"confidence_delta":`, e.ConfidenceDelta, e.ConfidenceDelta != 0)
	w.TextOr(`"assessment":`, e.Assessment)
	w.TextOr(`"guidance":`, e.Guidance)
}

func (w *encoder) message(m *Message) {
	w.B = append(w.B, '{')
	w.Text(`"id":`, m.ID)
	w.Text(`"role":`, string(m.Role))
	w.Num(`"turn":`, int64(m.Turn))
	w.Time(`"at":`, m.At.Time)
	w.TextOr(`"model":`, m.Model)
	w.YesOr(`"synthetic":`, m.Synthetic)
	w.YesOr(`"undelivered":`, m.Undelivered)
	w.YesOr(`"tombstoned":`, m.Tombstoned)
	w.YesOr(`"compacted":`, m.Compacted)
	w.Key(`"parts":`)
	if m.Parts == nil {
		w.B = append(w.B, "null}"...)
		return
	}
	w.B = append(w.B, '[')
	for i := range m.Parts {
		w.Comma()
		w.part(&m.Parts[i])
	}
	w.B = append(w.B, "]}"...)
}

// part writes a part with the fields of its type always present, and arguments as a JSON object if
// the model produced one, else as a string.
func (w *encoder) part(p *Part) {
	w.B = append(w.B, '{')
	w.Text(`"type":`, string(p.Type))
	if p.Type == PartText || p.Type == PartThinking {
		w.Text(`"text":`, p.Text)
	}
	w.TextOr(`"id":`, p.ID)
	w.TextOr(`"name":`, p.Name)
	if p.Type == PartToolCall || p.Type == PartProviderTool && p.Arguments != "" {
		if wire.CompactObject(p.Arguments) {
			w.Raw(`"arguments":`, p.Arguments)
		} else {
			w.Text(`"arguments":`, p.Arguments)
		}
	}
	w.TextOr(`"call_id":`, p.CallID)
	if p.Type == PartToolResult || p.Type == PartProviderTool {
		w.Text(`"content":`, p.Content)
		w.Yes(`"is_error":`, p.IsError)
	}
	w.Any(`"images":`, p.Images, len(p.Images) > 0)
	w.Any(`"files":`, p.Files, len(p.Files) > 0)
	w.TextOr(`"media_type":`, p.MediaType)
	w.TextOr(`"data":`, p.Data)
	w.TextOr(`"url":`, p.URL)
	w.TextOr(`"file_id":`, p.FileID)
	if p.Bytes != 0 {
		w.Num(`"bytes":`, p.Bytes)
	}
	w.TextOr(`"origin":`, string(p.Origin))
	w.Any(`"opaque":`, p.Opaque, len(p.Opaque) > 0)
	w.TextOr(`"opaque_by":`, p.OpaqueBy)
	w.B = append(w.B, '}')
}

func (w *encoder) usage(u *Usage) {
	w.B = append(w.B, '{')
	w.Num(`"input_tokens":`, u.InputTokens)
	w.Num(`"output_tokens":`, u.OutputTokens)
	w.Num(`"cache_read_tokens":`, u.CacheReadTokens)
	w.Num(`"cache_write_tokens":`, u.CacheWriteTokens)
	if u.CacheHourTokens != 0 {
		w.Num(`"cache_write_1h_tokens":`, u.CacheHourTokens)
	}
	w.Num(`"cache_expired_tokens":`, u.CacheExpiredTokens)
	if u.CacheExpiredCostUSD != nil {
		w.Key(`"cache_expired_cost_usd":`)
		w.B = wire.AppendMillionths(w.B, int64(*u.CacheExpiredCostUSD))
	}
	if u.WebSearches != 0 {
		w.Num(`"web_searches":`, u.WebSearches)
	}
	if u.WebFetches != 0 {
		w.Num(`"web_fetches":`, u.WebFetches)
	}
	if u.CodeExecutions != 0 {
		w.Num(`"code_executions":`, u.CodeExecutions)
	}
	w.Num(`"model_calls":`, u.ModelCalls)
	w.Num(`"tool_calls":`, u.ToolCalls)
	w.Key(`"cost_usd":`)
	if u.CostUSD == nil {
		w.B = append(w.B, "null"...)
	} else {
		w.B = wire.AppendMillionths(w.B, int64(*u.CostUSD))
	}
	w.YesOr(`"estimated":`, u.Estimated)
	w.B = append(w.B, '}')
}

// MarshalJSON encodes p with the fields of its type always present.
func (p Part) MarshalJSON() ([]byte, error) {
	var w encoder
	w.part(&p)
	return w.Bytes()
}
