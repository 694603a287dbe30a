package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"time"
)

// ErrDamaged is the error of a message that no Packer has written.
var ErrDamaged = errors.New("the stored data is damaged or truncated: restore the store from a backup")

// Unpacker reads what a Packer writes. Callers ignore fields that they do not know. Strings share
// the memory of the message. It allocates nothing itself, whatever the message claims.
type Unpacker struct {
	rest  string
	field int
	kind  int
	num   uint64
	text  string
	bad   bool
}

// Unpack returns an Unpacker of a message.
func Unpack(message string) Unpacker { return Unpacker{rest: message} }

// Next reads the next field, and returns false at the end of the message or if it is malformed.
func (u *Unpacker) Next() bool {
	if u.bad || u.rest == "" {
		return false
	}
	tag := u.uvarint()
	field := tag >> 3
	if field == 0 || field > 1<<20 || int(field) < u.field { //nolint:gosec // small
		u.bad = true
		return false
	}
	u.field, u.kind = int(field), int(tag&7) //nolint:gosec // as above
	switch u.kind {
	case kindNumber:
		u.num = u.uvarint()
	case kindBytes:
		n := u.uvarint()
		if n > uint64(len(u.rest)) {
			u.bad = true
			return false
		}
		u.text, u.rest = u.rest[:n], u.rest[n:]
	case kindDouble:
		u.num = u.fixed(8)
	case kindSingle:
		u.num = u.fixed(4)
	default:
		u.bad = true
	}
	return !u.bad
}

func (u *Unpacker) uvarint() uint64 {
	var n uint64
	for i := 0; i < len(u.rest) && i < binary.MaxVarintLen64; i++ {
		c := u.rest[i]
		if i == binary.MaxVarintLen64-1 && c > 1 {
			break
		}
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			u.rest = u.rest[i+1:]
			return n
		}
	}
	u.bad = true
	return 0
}

func (u *Unpacker) fixed(size int) (n uint64) {
	if len(u.rest) < size {
		u.bad = true
		return 0
	}
	for i := size - 1; i >= 0; i-- {
		n = n<<8 | uint64(u.rest[i])
	}
	u.rest = u.rest[size:]
	return n
}

// Field returns the number of the field that Next has read.
func (u *Unpacker) Field() int { return u.field }

// Check marks the message as malformed unless ok.
func (u *Unpacker) Check(ok bool) { u.bad = u.bad || !ok }

// OK reports whether the message was well formed up to here.
func (u *Unpacker) OK() bool { return !u.bad }

// Err returns an error unless the message was well formed up to here.
func (u *Unpacker) Err() error {
	if u.bad {
		return ErrDamaged
	}
	return nil
}

// Num returns the value of the field, as the other methods do; a value of another kind makes the
// message malformed.
func (u *Unpacker) Num() int64 {
	u.Check(u.kind == kindNumber)
	return int64(u.num) //nolint:gosec // two's complement
}

// Int is Num for an int.
func (u *Unpacker) Int() int { return int(u.Num()) }

// Yes is Num for a boolean.
func (u *Unpacker) Yes() bool { return u.Num() != 0 }

// Text returns a string, or the message within a message.
func (u *Unpacker) Text() string {
	u.Check(u.kind == kindBytes)
	return u.text
}

// Map adds one pair to a map. It reads the field twice.
func (u *Unpacker) Map(m *map[string]string) {
	field, key := u.field, u.Text()
	u.Check(u.Next() && u.field == field)
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = u.Text()
}

// Word returns a string that WordOr has written.
func (u *Unpacker) Word(words Words) string {
	if u.kind == kindBytes {
		return u.text
	}
	if n := u.Num(); n > 0 && n < int64(len(words.texts)) {
		return words.texts[n]
	}
	u.bad = true
	return ""
}

// Time returns an instant.
func (u *Unpacker) Time() time.Time {
	t := time.UnixMilli(u.Num()).UTC()
	u.Check(Writable(t))
	return t
}

// Float returns a number. JSON has no other than finite ones.
func (u *Unpacker) Float() float64 {
	if u.kind == kindNumber {
		return float64(u.num) / million
	}
	f := math.Float64frombits(u.num)
	u.Check(u.kind == kindDouble && !math.IsNaN(f) && !math.IsInf(f, 0))
	return f
}

// Raw returns JSON.
func (u *Unpacker) Raw() json.RawMessage {
	raw := json.RawMessage(u.Text())
	u.Check(json.Valid(raw))
	return raw
}

// Any decodes what Packer.Any has written.
func Any[T any](u *Unpacker) (v T) {
	if json.Unmarshal([]byte(u.Text()), &v) != nil {
		u.bad = true
	}
	return v
}
