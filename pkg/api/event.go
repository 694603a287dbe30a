package api

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Event is one event of a run as it is read from the stream. Seq is 0 for a live
// event.
type Event struct {
	state.Entry

	RunID string `json:"run_id"`

	// Delta of model.delta, Progress of tool.progress.
	Delta    *model.Delta `json:"delta,omitempty"`
	Progress string       `json:"progress,omitempty"`

	// Data is the event as it came.
	Data json.RawMessage `json:"-"`
}

// DecodeEvent reads one event.
func DecodeEvent(data []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(data, &e); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	e.Data = bytes.Clone(data)
	return e, nil
}

// EncodeEvent returns a committed entry as an event of its run.
func EncodeEvent(id state.RunID, e state.Entry) ([]byte, error) {
	entry, err := state.EncodeEntry(e)
	if err != nil {
		return nil, err
	}
	// The entry starts with its number; the run's id follows it.
	prefix := fmt.Sprintf(`{"seq":%d,`, e.Seq)
	rest, ok := bytes.CutPrefix(entry, []byte(prefix))
	if !ok {
		return nil, fmt.Errorf("entry %d is encoded as %.40s", e.Seq, entry)
	}
	out := make([]byte, 0, len(entry)+len(id)+12)
	out = append(out, prefix...)
	out = append(out, `"run_id":"`...)
	out = append(out, id...)
	out = append(out, `",`...)
	return append(out, rest...), nil
}

// Live is an event that belongs to an attempt and is not kept.
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
	Progress string          `json:"progress,omitempty"`
}

// EncodeLive returns a live event of a run.
func EncodeLive(id state.RunID, l Live) []byte {
	l.Seq, l.RunID = nil, string(id)
	b, err := json.Marshal(l)
	if err != nil {
		// Strings, numbers and a time always encode.
		panic(err)
	}
	return b
}
