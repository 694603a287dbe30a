package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
)

// Format is the newest version of a run's stored data (header, log, journal and inbox) that this
// build knows. A build continues runs of every format up to this one, and does not touch those in a
// newer one (ADR 11).
const Format = 1

// ErrFormat reports a run, or an agent, that only a newer build can read. The store has changed
// nothing: leave the work to that build.
var ErrFormat = errors.New("written by a newer build")

// FormatSetting holds the format that a store writes; stores embed it. The zero value is the oldest
// format.
type FormatSetting struct{ n atomic.Int32 }

// SetFormat implements Store.
func (f *FormatSetting) SetFormat(n int) {
	f.n.Store(int32(min(max(n, 1), Format))) //nolint:gosec // between the two
}

// Written returns the format that the store writes.
func (f *FormatSetting) Written() int { return max(1, int(f.n.Load())) }

// Formatted returns s in the format in which a store writes it: write, or its own format if that is
// newer.
func (s State) Formatted(write int) State {
	s.Format = max(s.Format, write)
	return s
}

// CheckFormat returns ErrFormat if this build does not know the format of the run.
func (s State) CheckFormat() error {
	if s.Format > Format {
		return fmt.Errorf("run %s has format %d, this build knows up to %d: %w", s.ID, s.Format, Format, ErrFormat)
	}
	return nil
}

// EncodeState encodes a complete header without its log, in its own format, or the newest if it has
// none.
func EncodeState(s State) ([]byte, error) {
	w := newEncoder(512)
	w.Num(`"format":`, int64(s.format()))
	w.fixed(&s)
	w.changing(&s)
	return w.end()
}

// EncodeHeader encodes a header in two parts. The first is fixed at submission.
func EncodeHeader(s State) (fixed, changing []byte, err error) {
	w := newEncoder(256)
	w.fixed(&s)
	if fixed, err = w.end(); err != nil {
		return nil, nil, err
	}
	changing, err = EncodeChanging(s)
	return fixed, changing, err
}

// EncodeChanging encodes only the second part.
func EncodeChanging(s State) ([]byte, error) {
	w := newEncoder(512)
	w.Num(`"format":`, int64(s.format()))
	w.changing(&s)
	return w.end()
}

// format returns the format in which s is encoded.
func (s State) format() int { return cmp.Or(s.Format, Format) }

// DecodeState decodes a complete header; its log is empty. The strings of the state share the
// memory of text if that is a string, or of one copy of it.
func DecodeState[T string | []byte](text T) (State, error) {
	return DecodeHeader("", text)
}

// DecodeHeader decodes the two parts of a header. The first is empty if the second holds the
// complete header.
func DecodeHeader[T string | []byte](fixed string, changing T) (State, error) {
	text := string(changing)
	s, ok := readHeader(fixed, text)
	if ok && s.Format <= Format {
		return s, nil
	}
	s, err := parseHeader(fixed, text)
	if err := cmp.Or(s.CheckFormat(), err); err != nil {
		return State{}, fmt.Errorf("decode state: %w", err)
	}
	return s, nil
}

// readHeader decodes the encoder's own output, and reports whether the texts are that.
func readHeader(fixed, text string) (s State, ok bool) {
	var d decoder
	d.Begin(text)
	d.Must(`{"format":`)
	s.Format = d.Int()
	if fixed == "" {
		d.fixed(`,"id":`, &s)
		d.changing(&s)
		return s, d.Done() && s.Format > 0
	}
	var f decoder
	f.Begin(fixed)
	f.fixed(`{"id":`, &s)
	f.Must(`}`)
	d.changing(&s)
	return s, f.Done() && d.Done() && s.Format > 0
}

// parseHeader decodes the output of other encoders, such as that of a build that knows more fields.
// With an error it returns the id and the format, as far as it can read them.
func parseHeader(fixed, text string) (State, error) {
	var is struct {
		ID     RunID `json:"id"`
		Format int   `json:"format"`
	}
	err := json.Unmarshal([]byte(text), &is)
	if err == nil && is.Format <= 0 {
		err = errors.New("the header has no format")
	}
	var h header
	if err == nil && fixed != "" {
		err = json.Unmarshal([]byte(fixed), &h)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &h)
	}
	if err != nil {
		return State{ID: is.ID, Format: is.Format}, err
	}
	return h.state(), nil
}

// MarshalJSON encodes a header as EncodeState does.
func (s State) MarshalJSON() ([]byte, error) { return EncodeState(s) }

// UnmarshalJSON decodes a header. If it returns an error, s has the id and the format, as
// far as it can read them.
func (s *State) UnmarshalJSON(b []byte) error {
	text := string(b)
	if read, ok := readHeader("", text); ok {
		*s = read
		return nil
	}
	var err error
	*s, err = parseHeader("", text)
	return err
}
