package state_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// event is an entry with the fields that every event has, in front and always there;
// they hide their namesakes in the entry.
type event struct {
	Seq     int64           `json:"seq"`
	RunID   state.RunID     `json:"run_id"`
	Type    state.EntryType `json:"type"`
	Turn    int             `json:"turn"`
	Attempt int             `json:"attempt"`
	At      state.Time      `json:"at"`
	state.Entry
}

// reflected is what encoding/json makes of a value.
func reflected(t interface{ Fatal(...any) }, v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func checkEncoding(t interface {
	Fatal(...any)
	Errorf(string, ...any)
}, e state.Entry,
) {
	got, err := state.EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := reflected(t, e); string(got) != want {
		t.Errorf("entry encodes as\n%s\nwant\n%s", got, want)
	}
	if got, err = state.EncodeEvent("run_1", e); err != nil {
		t.Fatal(err)
	}
	w := event{Seq: e.Seq, RunID: "run_1", Type: e.Type, Turn: e.Turn, Attempt: e.Attempt, At: e.At, Entry: e}
	if want := reflected(t, w); string(got) != want {
		t.Errorf("event encodes as\n%s\nwant\n%s", got, want)
	}
}

// The encoder has no opinion of its own: its bytes are those of encoding/json.
func TestEncodesLikeTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkEncoding(t, drawEntry(t)) })
	for _, s := range []string{"", "\x00\x1f\x7f\"\\/\b\f\n\r\t", "<&>", "\u2028\u2029é😀", "\xff\xc3(\xed\xa0\x80", "x\xffy"} {
		checkEncoding(t, state.Entry{Detail: s, Output: &s, Messages: []state.Message{state.UserText(s), {}}})
	}
}

// So are those of a header.
func TestEncodesHeadersLikeTheLibrary(t *testing.T) {
	t.Parallel()
	check := func(t interface {
		Fatal(...any)
		Errorf(string, ...any)
	}, s state.State,
	) {
		got, err := state.EncodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		want := reflected(t, state.Oracle(s))
		if string(got) != want {
			t.Errorf("header encodes as\n%s\nwant\n%s", got, want)
		}
		fixed, changing, err := state.EncodeHeader(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := state.DecodeHeader(string(fixed), changing); err != nil || s.Format <= state.Format && reflected(t, back) != string(got) {
			t.Errorf("%s and %s are read as %s, %v; want %s", fixed, changing, reflected(t, back), err, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, drawState(t)) })
	var all state.State
	fill(reflect.ValueOf(&all).Elem())
	all.Format = state.Format
	check(t, all)
	check(t, state.State{Usage: state.Usage{CostUSD: new(state.MicroUSD)}, Nudges: state.Nudges{LastDelta: 1}})
	all.CreatedAt.Time = time.Time{}.AddDate(math.MaxInt16, 0, 0)
	if b, err := state.EncodeState(all); err == nil {
		t.Errorf("a time that has no form encodes as %s", b)
	}
}

// A field that the encoder does not know is lost, so each is looked for.
func TestEncodesEveryField(t *testing.T) {
	t.Parallel()
	var e state.Entry
	fill(reflect.ValueOf(&e).Elem())
	for _, typ := range []state.PartType{state.PartText, state.PartThinking, state.PartToolCall, state.PartToolResult, state.PartImage} {
		e.Message.Parts[0].Type = typ
		checkEncoding(t, e)
	}
	e.At = state.Time{}
	e.At.Time = e.At.AddDate(math.MaxInt16, 0, 0)
	if b, err := state.EncodeEntry(e); err == nil {
		t.Errorf("a time that has no form encodes as %s", b)
	}
}

// fill sets every field to something.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"k": "v"}))
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":[1]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[state.Time]() {
			v.Set(reflect.ValueOf(moment))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.1)
	default:
		panic("no value for " + v.Type().String())
	}
}

func sample() state.Entry {
	e := done("call_1")
	e.Seq, e.Turn, e.Attempt, e.At = 17, 6, 1, moment
	e.Message.Parts[0].Content = string(bytes.Repeat([]byte("x"), 400))
	return e
}

func BenchmarkEncodeEntry(b *testing.B) {
	e := sample()
	for b.Loop() {
		if _, err := state.EncodeEntry(e); err != nil {
			b.Fatal(err)
		}
	}
}

func header() state.State {
	return state.State{
		ID: "run_01JD000000000000000000000", Agent: "bench", AgentVersion: 1, Loop: "react", Priority: state.Normal, Status: state.Queued,
		Transition: state.Transition{Reason: state.NextTurn, Turn: 6, Version: 7, At: moment}, Turn: 6, Version: 7, ModelRequests: 6,
		Limits: state.Limits{MaxTurns: 20}, CreatedAt: moment, StartedAt: moment, UpdatedAt: moment,
	}
}

func BenchmarkEncodeState(b *testing.B) {
	s := header()
	for b.Loop() {
		if _, err := state.EncodeState(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeState(b *testing.B) {
	text, err := state.EncodeState(header())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := state.DecodeState(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEntry(b *testing.B) {
	encoded, err := state.EncodeEntry(sample())
	if err != nil {
		b.Fatal(err)
	}
	text := string(encoded)
	for b.Loop() {
		if _, err := state.DecodeEntry(text); err != nil {
			b.Fatal(err)
		}
	}
}

// A turn's worth of appending at the end of a log of 200 turns, and the view of it.
func BenchmarkAppend(b *testing.B) {
	long := longRun()
	turn := []state.Entry{said("a", "call_1"), done("call_1"), {Type: state.EntryTransition}}
	for b.Loop() {
		s := long
		for _, e := range turn {
			s = s.Append(e)
		}
		long.Log = s.Log[:len(long.Log)]
		clear(s.Log[len(long.Log):])
	}
}

func BenchmarkView(b *testing.B) {
	log := longRun().Log
	for b.Loop() {
		if got := state.View(log); len(got) != 400 {
			b.Fatalf("the view has %d messages", len(got))
		}
	}
}

func longRun() state.State {
	var s state.State
	for range 200 {
		s = s.Append(said("a", "call_1")).Append(sample()).Append(state.Entry{Type: state.EntryTransition})
	}
	return s
}

// The log of 200 turns, as who sees the run for the first time reads it.
func BenchmarkDecodeLog(b *testing.B) {
	var texts []string
	var err error
	for _, e := range longRun().Log {
		text, err := state.EncodeEntry(e)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for b.Loop() {
		log := make([]state.Entry, len(texts))
		for i, text := range texts {
			if log[i], err = state.DecodeEntry(text); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// moment is any.
var moment = state.At(time.Date(2026, 11, 20, 15, 4, 5, 678_000_000, time.UTC))
