package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// The kinds of values in the wire format of Protocol Buffers.
const (
	kindNumber = 0
	kindDouble = 1
	kindBytes  = 2
	kindSingle = 5
)

const million = 1e6

// Packer writes a message in the wire format of Protocol Buffers: each field is its number and a
// value. Write fields in ascending order of their numbers, which may repeat: an Unpacker refuses any
// other order. The zero value is ready to use; B is the output.
type Packer struct {
	B   []byte
	Err error // about the last value that cannot be stored
}

// Bytes returns the output, or Err.
func (p *Packer) Bytes() ([]byte, error) {
	if p.Err != nil {
		return nil, p.Err
	}
	return p.B, nil
}

func (p *Packer) tag(field, kind int) {
	if field < 16 {
		p.B = append(p.B, byte(field<<3|kind))
		return
	}
	p.B = binary.AppendUvarint(p.B, uint64(field)<<3|uint64(kind)) //nolint:gosec // neither is negative
}

// Num writes a whole number. Negative ones take ten bytes.
func (p *Packer) Num(field int, n int64) {
	p.tag(field, kindNumber)
	p.B = binary.AppendUvarint(p.B, uint64(n)) //nolint:gosec // two's complement
}

// NumOr writes a number unless it is 0; the other methods ending in Or also omit empty values.
func (p *Packer) NumOr(field int, n int64) {
	if n != 0 {
		p.Num(field, n)
	}
}

// YesOr is NumOr of a boolean.
func (p *Packer) YesOr(field int, yes bool) {
	if yes {
		p.Num(field, 1)
	}
}

// Text writes a string, byte for byte.
func (p *Packer) Text(field int, s string) {
	p.tag(field, kindBytes)
	p.B = binary.AppendUvarint(p.B, uint64(len(s)))
	p.B = append(p.B, s...)
}

// TextOr is NumOr of a string.
func (p *Packer) TextOr(field int, s string) {
	if s != "" {
		p.Text(field, s)
	}
}

// Texts writes a field once for each string.
func (p *Packer) Texts(field int, list []string) {
	for _, s := range list {
		p.Text(field, s)
	}
}

// Map writes the pairs of a map in the order of the keys: each is the field twice.
func (p *Packer) Map(field int, m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		p.Text(field, key)
		p.Text(field, m[key])
	}
}

// WordOr is NumOr of a string that is usually one of words: those are stored as their number.
func (p *Packer) WordOr(field int, words Words, s string) {
	if n, ok := words.numbers[s]; ok {
		p.Num(field, n)
	} else {
		p.TextOr(field, s)
	}
}

// TimeOr is NumOr of an instant, which it stores in milliseconds.
func (p *Packer) TimeOr(field int, t time.Time) {
	if t.IsZero() {
		return
	}
	if !Writable(t) {
		p.Err = fmt.Errorf("a time is in the year %d, which RFC 3339 cannot write: use a time in the years 0 to 9999", t.UTC().Year())
	}
	p.Num(field, t.UnixMilli())
}

// Float writes a number: as millionths if they are exact and few.
func (p *Packer) Float(field int, f float64) {
	if n := int64(math.Round(f * million)); !math.Signbit(f) && f < million && float64(n)/million == f {
		p.Num(field, n)
		return
	}
	p.tag(field, kindDouble)
	p.B = binary.LittleEndian.AppendUint64(p.B, math.Float64bits(f))
}

// FloatOr is NumOr of a float.
func (p *Packer) FloatOr(field int, f float64) {
	if f != 0 {
		p.Float(field, f)
	}
}

// RawOr is NumOr of JSON, byte for byte.
func (p *Packer) RawOr(field int, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	if !json.Valid(raw) {
		p.Err = errors.New("a value is not valid JSON")
	}
	p.tag(field, kindBytes)
	p.B = binary.AppendUvarint(p.B, uint64(len(raw)))
	p.B = append(p.B, raw...)
}

// Any writes rare values as JSON.
func (p *Packer) Any(field int, v any, there bool) {
	if !there {
		return
	}
	b, err := Marshal(v)
	if err != nil {
		p.Err = err
		return
	}
	p.RawOr(field, b)
}

// Open begins a message within the message, and Close, with the result of Open, ends it.
func (p *Packer) Open(field int) (start int) {
	p.tag(field, kindBytes)
	p.B = append(p.B, 0)
	return len(p.B)
}

// Close ends what Open began.
func (p *Packer) Close(start int) {
	n := len(p.B) - start
	if n < 0x80 {
		p.B[start-1] = byte(n)
		return
	}
	// The length takes more than the one byte that Open left for it.
	var length [binary.MaxVarintLen64]byte
	more := binary.PutUvarint(length[:], uint64(n)) //nolint:gosec // not negative
	p.B = append(p.B, length[:more-1]...)
	copy(p.B[start+more-1:], p.B[start:start+n])
	copy(p.B[start-1:], length[:more])
}

// Words are strings that are stored as their numbers in a list. The list is part of the stored format: only a new
// format may add or move a word. A string that is not in the list is stored as text.
type Words struct {
	texts   []string
	numbers map[string]int64
}

// NewWords numbers words from 1.
func NewWords[T ~string](list ...T) Words {
	w := Words{[]string{""}, map[string]int64{}}
	for i, s := range list {
		w.texts, w.numbers[string(s)] = append(w.texts, string(s)), int64(i+1)
	}
	return w
}
