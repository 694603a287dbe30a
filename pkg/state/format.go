package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
)

// Format is the newest version of what this build can store of a run: header, log, journal
// and inbox. A build goes on with runs of every format up to this one, and leaves those of
// a newer one alone (ADR 11).
const Format = 2

// OldFormat is what a store writes until it is told that every process of the deployment
// can read a newer one.
const OldFormat = 1

// ErrFormat reports a run, or an agent, that only a newer build can deal with. Nothing
// was changed: what was to be done is to be left to one.
var ErrFormat = errors.New("written by a newer build")

// FormatSetting is which format a store writes, for stores to embed. The zero value is
// OldFormat.
type FormatSetting struct{ n, limit atomic.Int32 }

// SetFormat implements Store.
func (f *FormatSetting) SetFormat(n int) { f.n.Store(known(n)) }

// LimitFormat makes n the newest format that SetFormat sets, if it is not 0: for a
// deployment with processes of which SetFormat's caller cannot know.
func (f *FormatSetting) LimitFormat(n int) {
	if n == 0 {
		n = Format
	}
	f.limit.Store(known(n))
}

// Written returns the format that is to be written.
func (f *FormatSetting) Written() int {
	n, limit := f.n.Load(), f.limit.Load()
	if limit != 0 {
		n = min(n, limit)
	}
	return int(known(int(n)))
}

// known returns the format nearest to n that this build writes.
func known(n int) int32 {
	return int32(min(max(n, OldFormat), Format)) //nolint:gosec // between the two
}

// Formatted returns s in the format in which a store that is to write a format stores it:
// its own if that is newer, and the oldest that can hold it otherwise.
func (s State) Formatted(write int) State {
	s.Format = max(s.Format, write)
	if _, fits := s.LoopState.phase(); !fits && s.Format < 2 {
		s.Format = 2
	}
	return s
}

// CheckFormat returns ErrFormat if the run is of a format that this build does not know.
func (s State) CheckFormat() error {
	if s.Format > Format {
		return fmt.Errorf("run %s has format %d, this build knows up to %d: %w", s.ID, s.Format, Format, ErrFormat)
	}
	return nil
}

// EncodeState encodes a header as a whole, without its log: in its format, or the newest
// if it has none.
func EncodeState(s State) ([]byte, error) {
	s = s.formatted()
	if s.Format == 1 {
		w := newEncoder(1024)
		w.first(&s)
		return w.end()
	}
	w := newEncoder(512)
	w.Num(`"format":`, int64(s.Format))
	w.fixed(&s)
	w.changing(&s)
	return w.end()
}

// EncodeHeader encodes a header in two parts. The first, which is what was fixed at
// submission, is empty in format 1: it is in the second then.
func EncodeHeader(s State) (fixed, changing []byte, err error) {
	s = s.formatted()
	if s.Format == 1 {
		changing, err = EncodeState(s)
		return nil, changing, err
	}
	w := newEncoder(256)
	w.fixed(&s)
	if fixed, err = w.end(); err != nil {
		return nil, nil, err
	}
	changing, err = EncodeChanging(s)
	return fixed, changing, err
}

// EncodeChanging encodes the second part only: all of it in format 1.
func EncodeChanging(s State) ([]byte, error) {
	s = s.formatted()
	if s.Format == 1 {
		return EncodeState(s)
	}
	w := newEncoder(512)
	w.Num(`"format":`, int64(s.Format))
	w.changing(&s)
	return w.end()
}

// formatted returns s in the format in which it can be encoded.
func (s State) formatted() State {
	if s.Format == 0 {
		return s.Formatted(Format)
	}
	return s.Formatted(0)
}

// DecodeState decodes a whole header of any format; its log is empty. The strings of the
// state are parts of text if that is a string, or of a copy of it.
func DecodeState[T string | []byte](text T) (State, error) {
	return DecodeHeader("", text)
}

// DecodeHeader decodes the two parts of a header, the first of which is empty if the second
// is all of it.
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

// readHeader decodes what the encoder writes, and reports whether the texts are that.
func readHeader(fixed, text string) (s State, ok bool) {
	var d decoder
	d.Begin(text)
	switch {
	case fixed != "":
		var f decoder
		f.Begin(fixed)
		f.fixed(`{"id":`, &s)
		f.Must(`}`)
		d.Must(`{"format":`)
		s.Format = d.Int()
		d.changing(&s)
		return s, f.Done() && d.Done() && s.Format >= 2
	case d.At(`{"format":1,`):
		d.first(&s)
		return s, d.Done()
	default:
		d.Must(`{"format":`)
		s.Format = d.Int()
		d.fixed(`,"id":`, &s)
		d.changing(&s)
		return s, d.Done() && s.Format >= 2
	}
}

// parseHeader decodes what another encoder has written, such as that of a build which
// knows more fields. With an error it returns what can be told of a run all the same.
func parseHeader(fixed, text string) (State, error) {
	var is struct {
		ID     RunID `json:"id"`
		Format int   `json:"format"`
	}
	err := json.Unmarshal([]byte(text), &is)
	if err == nil && is.Format < 2 {
		var h header1
		if err = json.Unmarshal([]byte(text), &h); err == nil {
			return h.state(), nil
		}
	} else if err == nil {
		var h header2
		if fixed != "" {
			err = json.Unmarshal([]byte(fixed), &h)
		}
		if err = cmp.Or(err, json.Unmarshal([]byte(text), &h)); err == nil {
			return h.state(), nil
		}
	}
	return State{ID: is.ID, Format: is.Format}, err
}

// MarshalJSON encodes a header as EncodeState does.
func (s State) MarshalJSON() ([]byte, error) { return EncodeState(s) }

// UnmarshalJSON decodes a header of any format; what can be told of one that a newer build
// has written is told with the error.
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
