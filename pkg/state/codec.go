package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// Time is a time in UTC that encodes as RFC 3339 with milliseconds.
type Time struct{ time.Time }

// At returns t in UTC, truncated to milliseconds so that it survives encoding.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// MarshalJSON encodes t, and the zero time as null.
func (t Time) MarshalJSON() ([]byte, error) {
	return wire.AppendTime(make([]byte, 0, len(`"2006-01-02T15:04:05.000Z"`)), t.Time)
}

// UnmarshalJSON accepts any RFC 3339 time that MarshalJSON can write, which it converts as At does, or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*t = Time{}
		return nil
	}
	var v time.Time
	err := v.UnmarshalJSON(b)
	switch {
	case err == nil && !wire.Writable(v):
		return fmt.Errorf("time %s is not in the years 0 to 9999 in UTC: write one such as \"2026-11-20T15:04:05Z\"", b)
	case err != nil:
		return fmt.Errorf("time %s is not in the format of RFC 3339: write one such as \"2026-11-20T15:04:05Z\"", b)
	}
	*t = At(v)
	return nil
}

// MicroUSD is an amount of money in millionths of a US dollar. It encodes as
// dollars, so 500000 is 0.5 in JSON.
type MicroUSD int64

// MarshalJSON encodes m as a JSON number of dollars, exactly.
func (m MicroUSD) MarshalJSON() ([]byte, error) {
	return wire.AppendMillionths(nil, int64(m)), nil
}

// UnmarshalJSON reads a JSON number of dollars, rounded to a micro-dollar.
func (m *MicroUSD) UnmarshalJSON(b []byte) error {
	// A float64 cannot hold every amount; 128 bits hold all of them.
	f, _, err := big.ParseFloat(string(b), 10, 128, big.ToNearestEven)
	if err != nil {
		return fmt.Errorf("amount %s is not a number: write US dollars as a JSON number, as in 0.5", b)
	}
	// The exponent first: sums and integers of a billion digits are not worth making.
	switch exp := f.MantExp(nil); {
	case f.IsInf() || exp > 64:
		return fmt.Errorf("amount %s is out of range: write 0 to %d US dollars", b, math.MaxInt64/1_000_000)
	case exp < -64:
		*m = 0
		return nil
	}
	half := big.NewFloat(0.5)
	if f.Signbit() {
		half.Neg(half)
	}
	f.Add(f.Mul(f, big.NewFloat(1e6)), half)
	n, _ := f.Int(nil)
	if !n.IsInt64() {
		return fmt.Errorf("amount %s is out of range: write 0 to %d US dollars", b, math.MaxInt64/1_000_000)
	}
	*m = MicroUSD(n.Int64())
	return nil
}

// partWire is the form in which a part is read: arguments are a JSON object if the model produced
// one, and otherwise a JSON string with the model's text.
type partWire struct {
	Type      PartType        `json:"type"`
	Text      *string         `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Content   *string         `json:"content,omitempty"`
	IsError   *bool           `json:"is_error,omitempty"`
	Images    []Image         `json:"images,omitempty"`
	Files     []Part          `json:"files,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
	Data      string          `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
	FileID    string          `json:"file_id,omitempty"`
	Bytes     int64           `json:"bytes,omitempty"`
	Opaque    json.RawMessage `json:"opaque,omitempty"`
	OpaqueBy  string          `json:"opaque_by,omitempty"`
	Origin    Origin          `json:"origin,omitempty"`
}

// CompactObject returns the JSON object in text without white space, and false if text is not
// exactly one JSON object.
func CompactObject(text string) (string, bool) {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil || b.Len() == 0 || b.Bytes()[0] != '{' {
		return "", false
	}
	return b.String(), true
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (p *Part) UnmarshalJSON(b []byte) error {
	var w partWire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*p = Part{
		Type: w.Type, ID: w.ID, Name: w.Name, Arguments: string(w.Arguments), CallID: w.CallID, Images: w.Images, Files: w.Files,
		MediaType: w.MediaType, Data: w.Data, URL: w.URL, FileID: w.FileID, Bytes: w.Bytes, Opaque: w.Opaque, OpaqueBy: w.OpaqueBy, Origin: w.Origin,
	}
	if w.Text != nil {
		p.Text = *w.Text
	}
	if len(w.Arguments) > 0 && w.Arguments[0] == '"' {
		if err := json.Unmarshal(w.Arguments, &p.Arguments); err != nil {
			return err
		}
	}
	if w.Content != nil {
		p.Content = *w.Content
	}
	if w.IsError != nil {
		p.IsError = *w.IsError
	}
	return nil
}
