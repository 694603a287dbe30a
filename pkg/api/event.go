package api

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Event is one event of a run, as it is read from a stream. Seq is 0 for a live event, which no log has.
type Event struct {
	state.Entry

	RunID string `json:"run_id"`

	// Delta is set for model.delta, and Progress for tool.progress.
	Delta    *model.Delta `json:"delta,omitempty"`
	Progress string       `json:"progress,omitempty"`

	// First is set on the first delta of a response. A turn can have several responses: if one breaks off, the worker
	// repeats the call.
	First bool `json:"first,omitempty"`

	// Data is the event as it was received, in JSON.
	Data json.RawMessage `json:"-"`
}

// DecodeEvent decodes one event. It copies data.
func DecodeEvent(data []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(data, &e); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	e.Data = bytes.Clone(data)
	return e, nil
}

// EncodeEvent returns a committed entry as an event of its run, in JSON. Attempt is 0 in entries that no worker wrote,
// such as run.submitted.
func EncodeEvent(id state.RunID, e state.Entry) ([]byte, error) {
	b, err := state.EncodeEvent(id, e)
	if err != nil {
		return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	return b, nil
}

// Live is a live event, which belongs to an attempt and is not stored.
type Live struct {
	Seq      *int64          `json:"seq"` // always null
	RunID    string          `json:"run_id"`
	Type     state.EntryType `json:"type"`
	Turn     int             `json:"turn"`
	Attempt  int             `json:"attempt"`
	At       state.Time      `json:"at"`
	Worker   string          `json:"worker,omitempty"`
	CallID   string          `json:"call_id,omitempty"`
	Name     string          `json:"name,omitempty"`
	Delta    *model.Delta    `json:"delta,omitempty"`
	First    bool            `json:"first,omitempty"` // the delta is the first piece of a response
	Progress string          `json:"progress,omitempty"`
}

// EncodeLive returns a live event of a run, in JSON. It sets Seq to null and RunID to id.
func EncodeLive(id state.RunID, l Live) []byte {
	if l.Delta == nil && l.Progress == "" {
		e := state.Entry{Type: l.Type, Turn: l.Turn, Attempt: l.Attempt, At: l.At, Worker: l.Worker, CallID: l.CallID, Name: l.Name}
		if b, err := state.EncodeLive(id, e); err == nil {
			return b
		}
	}
	l.Seq, l.RunID = nil, string(id)
	b, err := json.Marshal(l)
	if err != nil {
		// Strings, numbers and a time always encode.
		panic(err)
	}
	return b
}
