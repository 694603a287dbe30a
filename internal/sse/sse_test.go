package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/sse"
)

func readAll(r io.Reader) ([]sse.Event, error) {
	var all []sse.Event
	for in := sse.NewReader(r); ; {
		e, err := in.Next()
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	one := []sse.Event{{ID: "1", Type: "t", Data: []byte("x")}}
	tests := []struct {
		name, stream string
		want         []sse.Event
		err          error
	}{
		{"empty", "", nil, io.EOF},
		{"one", "id: 1\nevent: t\ndata: x\n\n", one, io.EOF},
		{"CR LF", "id: 1\r\nevent: t\r\ndata: x\r\n\r\n", one, io.EOF},
		{"CR", "id: 1\revent: t\rdata: x\r\r", one, io.EOF},
		{"byte order mark", "\ufeffid: 1\nevent: t\ndata: x\n\n", one, io.EOF},
		{"no space, comments, unknown fields, retry", ": hi\n\nretry: 10\nid:1\nevent:t\nwhat: x\ndata:x\n\n", one, io.EOF},
		{"several lines", "data: a\ndata:\ndata:  b\n\n", []sse.Event{{Data: []byte("a\n\n b")}}, io.EOF},
		{"no data is no event", "id: 1\nevent: t\n\ndata\n\n", []sse.Event{{Data: []byte{}}}, io.EOF},
		{"cut off in an event", "id: 1\nevent: t\ndata: x\n", nil, io.ErrUnexpectedEOF},
		{"cut off in a line", "id: 1\nevent: t\ndata: x\n\ndat", one, io.ErrUnexpectedEOF},
		{"NUL in an id", "id: 1\x002\ndata: x\n\n", []sse.Event{{Data: []byte("x")}}, io.EOF},
	}
	for _, tt := range tests {
		for _, in := range []io.Reader{strings.NewReader(tt.stream), iotest.OneByteReader(strings.NewReader(tt.stream))} {
			got, err := readAll(in)
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(bytes.Equal)); diff != "" || !errors.Is(err, tt.err) {
				t.Errorf("%s: error %v, want %v; events:\n%s", tt.name, err, tt.err, diff)
			}
		}
	}
}

// A line without an end must not use up memory.
func TestReaderBoundsLines(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader("data: "), iotest.DataErrReader(io.LimitReader(zeros{}, sse.MaxLine+10)))
	if _, err := readAll(endless); !errors.Is(err, sse.ErrTooLong) {
		t.Errorf("an endless line = %v, want ErrTooLong", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestCommentsAreSkipped(t *testing.T) {
	t.Parallel()
	b := sse.Append(sse.AppendComment(nil, "keep\n\nalive"), sse.Event{ID: "7", Data: []byte("{}")})
	got, err := readAll(bytes.NewReader(b))
	if !errors.Is(err, io.EOF) || len(got) != 1 || got[0].ID != "7" {
		t.Errorf("%q reads as %v, %v", b, got, err)
	}
}

// Written events read back unchanged, and no content breaks out of its frame.
func FuzzRoundTrip(f *testing.F) {
	f.Add("1", "run.finished", []byte(`{"seq":1}`))
	f.Add("a\nb", "x\r\n\r\ndata: y", []byte("l1\nl2\r\n\n"))
	f.Fuzz(func(t *testing.T, id, typ string, data []byte) {
		want := sse.Event{ID: clean(id), Type: clean(typ), Data: bytes.ReplaceAll(data, []byte("\r"), nil)}
		frame := sse.Append(nil, sse.Event{ID: id, Type: typ, Data: data})
		got, err := readAll(bytes.NewReader(append(frame, frame...)))
		if !errors.Is(err, io.EOF) || len(got) != 2 {
			t.Fatalf("%q reads as %d events, %v", frame, len(got), err)
		}
		for _, e := range got {
			if diff := cmp.Diff(want, e, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Fatalf("%q:\n%s", frame, diff)
			}
		}
	})
}

func clean(s string) string { return strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(s) }

func FuzzReader(f *testing.F) {
	f.Add([]byte("id: 1\r\ndata: x\r\n\r\n: c\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		a, errA := readAll(bytes.NewReader(stream))
		b, errB := readAll(iotest.OneByteReader(bytes.NewReader(stream)))
		if diff := cmp.Diff(a, b, cmp.Comparer(bytes.Equal)); diff != "" || !errors.Is(errB, errA) {
			t.Fatalf("cut differently, %q reads differently: %v, %v\n%s", stream, errA, errB, diff)
		}
	})
}
