package state

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
)

// Format is the newest version of a run's stored data (header, log, journal and inbox) that this
// build knows. A build continues runs of every format up to this one, and does not touch those in a
// newer one (ADR 11).
const Format = 1

// ErrFormat reports a run, or an agent, that only a newer build can read. The store has changed
// nothing: the caller must leave the work to a process of that build.
var ErrFormat = errors.New("a newer build of Turnpike has written this data: upgrade this process")

// FormatSetting holds the format that a store writes; stores embed it. The zero value is the oldest
// format. It is safe for concurrent use.
type FormatSetting struct{ n atomic.Int32 }

// SetFormat implements Store.
func (f *FormatSetting) SetFormat(n int) {
	f.n.Store(int32(min(max(n, 1), Format))) //nolint:gosec // between the two
}

// Written returns the format that the store writes.
func (f *FormatSetting) Written() int { return max(1, int(f.n.Load())) }

// Formatted returns s in the format in which a store writes it: write, or its own format if that is
// newer. The result is s itself if it has that format, or else a copy.
func (s *State) Formatted(write int) *State {
	if s.Format >= write {
		return s
	}
	formatted := *s
	formatted.Format = write
	return &formatted
}

// CheckFormat returns ErrFormat if this build does not know the format of the run. The error does not name the run.
func (s *State) CheckFormat() error {
	if s.Format > Format {
		return fmt.Errorf("the format is %d, this build reads up to %d: %w", s.Format, Format, ErrFormat)
	}
	return nil
}

// EncodeState encodes a complete header without its log, in its own format, or the newest if it has
// none.
func EncodeState(s State) ([]byte, error) {
	p := newPacker(256)
	p.changing(&s)
	p.fixed(&s)
	return p.Bytes()
}

// EncodeHeader encodes a header in two parts. The first is fixed at submission.
func EncodeHeader(s *State) (fixed, changing []byte, err error) {
	p := newPacker(128)
	p.fixed(s)
	if fixed, err = p.Bytes(); err != nil {
		return nil, nil, err
	}
	changing, err = EncodeChanging(s)
	return fixed, changing, err
}

// EncodeChanging encodes only the second part.
func EncodeChanging(s *State) ([]byte, error) {
	p := newPacker(128)
	p.changing(s)
	return p.Bytes()
}

// formatOf returns the format in which s is encoded.
func formatOf(s *State) int { return cmp.Or(s.Format, Format) }

// DecodeState decodes a complete header; its log is empty. The strings of the state share the
// memory of text if that is a string, or of one copy of it.
func DecodeState[T string | []byte](text T) (State, error) {
	s, err := DecodeHeader("", text)
	return *s, err
}

// DecodeHeader decodes the two parts of a header. fixed is empty if changing holds the complete header.
// If neither part has the id, the caller must set it. The state is never nil. If the format is newer, DecodeHeader
// returns ErrFormat, and a State with nothing but a Format. Any other error means that the data is damaged.
func DecodeHeader[T string | []byte](fixed string, changing T) (*State, error) {
	text := string(changing)
	s := &State{Tenant: DefaultTenant, Format: formatIn(text)}
	if err := s.CheckFormat(); err != nil {
		return &State{Format: s.Format}, fmt.Errorf("decode state: %w", err)
	}
	if s.Format <= 0 {
		return new(State), fmt.Errorf("decode state: the header has no format: %w", ErrDamaged)
	}
	if err := cmp.Or(decodePart(s, fixed), decodePart(s, text)); err != nil {
		return new(State), fmt.Errorf("decode state: %w", err)
	}
	return s, nil
}

// formatIn returns the format of an encoded header; 0 if it has none.
func formatIn(text string) int {
	if u := unpack(text); u.Next() && u.Field() == 1 {
		return u.Int()
	}
	return 0
}

// decodePart sets the fields that a part of a header has.
func decodePart(s *State, part string) error {
	u := unpack(part)
	u.header(s)
	return u.Err()
}
