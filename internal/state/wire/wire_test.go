package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
)

// read reads all fields of a message, and returns the number of well-formed ones.
func read(message string) (fields int, err error) {
	u := wire.Unpack(message)
	for u.Next() {
		fields++
	}
	return fields, u.Err()
}

// ascending reports how the library reads a message, and whether the numbers of its fields ascend.
func ascending(b []byte) (fields int, ok bool) {
	for last := protowire.Number(0); len(b) > 0; fields++ {
		field, kind, n := protowire.ConsumeField(b)
		if n < 0 || field < last || field > 1<<20 || kind == protowire.StartGroupType {
			return fields, false
		}
		b, last = b[n:], field
	}
	return fields, true
}

// Any bytes are read as the library reads them, or refused.
func FuzzUnpack(f *testing.F) {
	p := wire.Packer{}
	p.Num(1, math.MaxInt64)
	p.Text(2, "text")
	p.Float(3, 1.0/3)
	f.Add(p.B)
	f.Add([]byte("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"))
	f.Add([]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte{0x0d, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := read(string(b))
		if want, ok := ascending(b); (err == nil) != ok || ok && fields != want {
			t.Errorf("%q has %d fields, %v; the library reads %d, %t", b, fields, err, want, ok)
		}
	})
}

// A nested length is encoded in place, whatever its size.
func TestNested(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 125, 126, 127, 128, 16_380, 16_384, 3_000_000} {
		var p wire.Packer
		outer := p.Open(1)
		p.Text(2, "before")
		inner := p.Open(3)
		p.TextOr(4, strings.Repeat("x", n))
		p.Close(inner)
		p.Num(5, 7)
		p.Close(outer)
		_, _, size := protowire.ConsumeField(p.B)
		u := wire.Unpack(string(p.B))
		if !u.Next() || size != len(p.B) {
			t.Fatalf("%d bytes: %v, field of %d bytes in %d", n, u.Err(), size, len(p.B))
		}
		u = wire.Unpack(u.Text())
		got := 0
		for u.Next() {
			if u.Field() == 3 {
				in := wire.Unpack(u.Text())
				for in.Next() {
					got = len(in.Text())
				}
			}
		}
		if got != n || u.Field() != 5 || u.Num() != 7 || u.Err() != nil {
			t.Errorf("%d bytes come back as %d, then field %d: %v", n, got, u.Field(), u.Err())
		}
	}
}

// A value of an unexpected kind makes the message malformed.
func TestKinds(t *testing.T) {
	t.Parallel()
	words := wire.NewWords("first", "second")
	var p wire.Packer
	p.Num(1, 3)
	p.Text(1, "text")
	p.Float(1, 1.0/3)
	for name, get := range map[string]struct {
		read func(*wire.Unpacker)
		want string // per field: y if it is accepted
	}{
		"number": {func(u *wire.Unpacker) { u.Num() }, "ynn"}, "text": {func(u *wire.Unpacker) { u.Text() }, "nyn"}, "float": {func(u *wire.Unpacker) { u.Float() }, "yny"},
		"time": {func(u *wire.Unpacker) { u.Time() }, "ynn"}, "word": {func(u *wire.Unpacker) { u.Word(words) }, "nyn"}, "value": {func(u *wire.Unpacker) { u.Raw() }, "nnn"},
	} {
		u := wire.Unpack(string(p.B))
		for i := range 3 {
			if !u.Next() {
				t.Fatal(u.Err())
			}
			at := u
			if get.read(&at); at.OK() != (get.want[i] == 'y') {
				t.Errorf("%s, field %d: accepted %t", name, i, at.OK())
			}
		}
	}
}

// Floats keep all their bits.
func TestFloats(t *testing.T) {
	t.Parallel()
	check := func(t interface{ Errorf(string, ...any) }, want float64) {
		var p wire.Packer
		p.Float(1, want)
		u := wire.Unpack(string(p.B))
		if u.Next(); math.Float64bits(u.Float()) != math.Float64bits(want) || u.Err() != nil {
			t.Errorf("%v decodes to %v, %v", want, u.Float(), u.Err())
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Float64().Draw(t, "float")) })
	for _, f := range []float64{0, math.Copysign(0, -1), 0.8, 0.000001, 1, 999_999.999999, 1e6, -0.5, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		check(t, f)
	}
	var p wire.Packer
	if p.Float(1, 0.8); len(p.B) > 4 {
		t.Errorf("0.8 takes %d bytes", len(p.B))
	}
}

// Times have milliseconds, and the years that RFC 3339 can express.
func TestTimes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := time.UnixMilli(rapid.Int64Range(-62_135_596_799_999, 253_402_300_799_999).Draw(t, "time"))
		var p wire.Packer
		p.TimeOr(1, want)
		u := wire.Unpack(string(p.B))
		if got := u.Next() && u.Time().Equal(want); !got || p.Err != nil || u.Err() != nil {
			t.Errorf("%s does not decode: %v, %v", want, p.Err, u.Err())
		}
	})
	var p wire.Packer
	if p.TimeOr(1, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)); p.Err == nil {
		t.Error("the year 10000 is stored")
	}
}

// FuzzCompact compares the values that compact accepts with encoding/json.
func FuzzCompact(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-0.5e+3,true,false,null,"\u00e9\n😀"]}`, `[`, `[]x`, `{"a" :1}`, "\"\xff\"", strings.Repeat("[", 1001), `"\x"`, "01", "-", "1.", "1e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := wire.Compact(text)
		if n >= 0 && !json.Valid([]byte(text[:n])) {
			t.Errorf("%q is accepted as a value", text[:n])
		}
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(text)); err == nil && b.String() == text && n != len(text) && strings.Count(text, "[")+strings.Count(text, "{") < 1000 {
			t.Errorf("%q is not accepted as a value", text)
		}
	})
}
