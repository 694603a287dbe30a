package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"
)

// Time is an instant in UTC that encodes as RFC 3339 with milliseconds.
type Time struct{ time.Time }

// At returns t in UTC, cut to milliseconds so that it survives its own codec.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// writable reports whether RFC 3339 can write t in UTC: it has four digits for
// the year.
func (t Time) writable() bool {
	y := t.UTC().Year()
	return y >= 0 && y <= 9999
}

// MarshalJSON encodes t, and the zero time as null.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, len(`"2006-01-02T15:04:05.000Z"`)))
}

// UnmarshalJSON accepts any RFC 3339 time that MarshalJSON can write, or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*t = Time{}
		return nil
	}
	var v time.Time
	if err := v.UnmarshalJSON(b); err != nil || !(Time{v}).writable() {
		return fmt.Errorf("time %s is not RFC 3339, as in \"2026-11-20T15:04:05Z\"", b)
	}
	*t = At(v)
	return nil
}

// MicroUSD is an amount of money in millionths of a US dollar. It encodes as
// dollars, so 500000 is 0.5 in JSON.
type MicroUSD int64

// MarshalJSON encodes m as a JSON number of dollars, exactly.
func (m MicroUSD) MarshalJSON() ([]byte, error) {
	return m.append(nil), nil
}

func (m MicroUSD) append(b []byte) []byte {
	n := uint64(m)
	if m < 0 {
		b, n = append(b, '-'), -n
	}
	b = strconv.AppendUint(b, n/1_000_000, 10)
	if n %= 1_000_000; n > 0 {
		b = bytes.TrimRight(digits(append(b, '.'), int(n), 6), "0") //nolint:gosec // below a million
	}
	return b
}

// UnmarshalJSON reads a JSON number of dollars, rounded to a micro-dollar.
func (m *MicroUSD) UnmarshalJSON(b []byte) error {
	// A float64 cannot hold every amount; 128 bits hold all that there are.
	f, _, err := big.ParseFloat(string(b), 10, 128, big.ToNearestEven)
	if err != nil {
		return fmt.Errorf("amount %s is not a number of dollars", b)
	}
	// The exponent first: sums and integers of a billion digits are not worth
	// making.
	switch exp := f.MantExp(nil); {
	case f.IsInf() || exp > 64:
		return fmt.Errorf("amount %s is more than any number of dollars", b)
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
		return fmt.Errorf("amount %s is more than any number of dollars", b)
	}
	*m = MicroUSD(n.Int64())
	return nil
}

// partWire is a part as it is read: arguments are a JSON object where the model
// produced one, and a JSON string that holds the model's text where it did not.
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
	MediaType string          `json:"media_type,omitempty"`
	Data      string          `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
	Opaque    json.RawMessage `json:"opaque,omitempty"`
	OpaqueBy  string          `json:"opaque_by,omitempty"`
}

// CompactObject returns the JSON object in text without white space, and false
// if text is anything but one JSON object.
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
		Type: w.Type, ID: w.ID, Name: w.Name, Arguments: string(w.Arguments), CallID: w.CallID, Images: w.Images,
		MediaType: w.MediaType, Data: w.Data, URL: w.URL, Opaque: w.Opaque, OpaqueBy: w.OpaqueBy,
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

// marshal encodes without escaping HTML, so text costs its own length.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Format is the version of what this build stores of a run: header, log, journal and
// inbox. A build goes on with runs of every format up to its own, which makes them
// runs of its own format, and leaves those of a newer one alone (ADR 11).
const Format = 1

// ErrFormat reports a run, or an agent, that only a newer build can deal with. Nothing
// was changed: what was to be done is to be left to one.
var ErrFormat = errors.New("written by a newer build")

// Formatted returns s in this build's format, or in its own if that is newer.
func (s State) Formatted() State {
	s.Format = max(s.Format, Format)
	return s
}

// CheckFormat returns ErrFormat if the run is of a format that this build does not know.
func (s State) CheckFormat() error {
	if s.Format > Format {
		return fmt.Errorf("run %s has format %d, this build knows up to %d: %w", s.ID, s.Format, Format, ErrFormat)
	}
	return nil
}

// DecodeState decodes a header; its log is empty.
func DecodeState(b []byte) (State, error) {
	var d decoder
	d.begin(string(b))
	var s State
	if d.state(&s); d.done() && s.Format <= Format {
		return s, nil
	}
	return decodeState(b)
}

// decodeState is DecodeState of what another encoder has written.
func decodeState(b []byte) (State, error) {
	var s State
	err := json.Unmarshal(b, &s)
	if err != nil {
		// It may be what a newer build makes of a state: no fault of it.
		var newer struct {
			ID     RunID `json:"id"`
			Format int   `json:"format"`
		}
		_ = json.Unmarshal(b, &newer) // what cannot be read has no format
		s = State{ID: newer.ID, Format: newer.Format}
	}
	if err := cmp.Or(s.CheckFormat(), err); err != nil {
		return State{}, fmt.Errorf("decode state: %w", err)
	}
	return s, nil
}

// DecodeEntry decodes one entry of a log. The strings of the entry are parts of text if
// that is one, or of one copy of it (ADR 15).
func DecodeEntry[T string | []byte](text T) (Entry, error) {
	var d decoder
	d.begin(string(text))
	var e Entry
	if d.entry(&e); d.done() {
		return e, nil
	}
	return decodeEntry([]byte(text))
}

// decodeEntry is DecodeEntry of what another encoder has written.
func decodeEntry(b []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	return e, nil
}
