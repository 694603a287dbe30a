package state_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// event is an entry with the common fields of events in front and always present; they shadow their namesakes
// in the entry.
type event struct {
	Seq     int64           `json:"seq"`
	RunID   state.RunID     `json:"run_id"`
	Type    state.EntryType `json:"type"`
	Turn    int             `json:"turn"`
	Attempt int             `json:"attempt"`
	At      state.Time      `json:"at"`
	state.Entry
}

// reflected returns the encoding/json form of a value.
func reflected(t interface{ Fatal(...any) }, v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// failer is the common part of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}

// checkEvent compares the event of an entry with encoding/json.
func checkEvent(t failer, e state.Entry) {
	t.Helper()
	got, err := state.EncodeEvent("run_1", e)
	if err != nil {
		t.Fatal(err)
	}
	w := event{Seq: e.Seq, RunID: "run_1", Type: e.Type, Turn: e.Turn, Attempt: e.Attempt, At: e.At, Entry: e}
	if want := reflected(t, w); string(got) != want {
		t.Errorf("event encodes as\n%s\nwant\n%s", got, want)
	}
}

// checkEntry stores an entry and reads it back, and compares the stored bytes with the Protocol Buffers
// library.
func checkEntry(t failer, want state.Entry) {
	t.Helper()
	b, err := state.EncodeEntry(&want)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b)
	got, err := state.DecodeEntry(want.Seq, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := equal(want, got); diff != "" {
		t.Errorf("entry changed:\n%s", diff)
	}
}

// checkState does the same with a header, in one part and in two.
func checkState(t failer, want state.State) {
	t.Helper()
	b, err := state.EncodeState(want)
	if err != nil {
		t.Fatal(err)
	}
	fixed, changing, err := state.EncodeHeader(&want)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(changing)+string(fixed) {
		t.Errorf("a header in one part is %q, in two %q and %q", b, changing, fixed)
	}
	wellFormed(t, b)
	for _, parts := range [][2]string{{"", string(b)}, {string(fixed), string(changing)}} {
		got, err := state.DecodeHeader(parts[0], parts[1])
		if err != nil {
			t.Fatal(err)
		}
		if diff := equal(want, *got); diff != "" {
			t.Errorf("state changed:\n%s", diff)
		}
	}
}

// wellFormed reads all fields of a message with the library, and requires ascending numbers.
func wellFormed(t failer, b []byte) {
	t.Helper()
	for last := protowire.Number(0); len(b) > 0; {
		field, _, n := protowire.ConsumeField(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		if field < last {
			t.Errorf("field %d follows %d", field, last)
		}
		b, last = b[n:], field
	}
}

// An event's bytes equal those of encoding/json.
func TestEventsLikeTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkEvent(t, drawEntry(t)) })
	for _, s := range odd {
		checkEvent(t, state.Entry{Detail: s, Output: &s, Messages: []state.Message{state.UserText(s), {}}})
	}
}

// Stored strings keep their bytes, also those that are not UTF-8.
var odd = []string{"", "\x00\x1f\x7f\"\\/\b\f\n\r\t", "<&>", "\u2028\u2029é😀", "\xff\xc3(\xed\xa0\x80", "x\xffy"}

func TestKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, s := range odd {
		checkEntry(t, state.Entry{Detail: s, Output: &s, Messages: []state.Message{state.UserText(s), {}}, MessageIDs: []string{s, s}})
		checkState(t, state.State{Format: state.Format, Output: &s, Metadata: map[string]string{s: s, "k": s}, Warned: []string{s}})
	}
}

// A field that the encoder omits is lost, so each is checked.
func TestEncodesEveryField(t *testing.T) {
	t.Parallel()
	var e state.Entry
	fill(reflect.ValueOf(&e).Elem())
	for _, typ := range []state.PartType{state.PartText, state.PartThinking, state.PartToolCall, state.PartToolResult, state.PartImage, state.PartFile, "text"} {
		e.Message.Parts[0].Type = typ
		checkEntry(t, e)
		checkEvent(t, e)
	}
	var s state.State
	fill(reflect.ValueOf(&s).Elem())
	s.Format, s.Log = state.Format, nil
	checkState(t, s)
}

// A field that repeats others in a message is not stored, and one that differs is.
func TestRepetitions(t *testing.T) {
	t.Parallel()
	e := done("call_1")
	e.Seq, e.Turn, e.At = 17, 6, moment
	same := e
	same.Message = new(*e.Message)
	same.Message.ID, same.Message.Turn, same.Message.At = "msg_17_0", 6, moment
	short, err := state.EncodeEntry(&same)
	if err != nil {
		t.Fatal(err)
	}
	checkEntry(t, same)
	for name, change := range map[string]func(*state.Message){
		"id": func(m *state.Message) { m.ID = "" }, "turn": func(m *state.Message) { m.Turn = 0 }, "time": func(m *state.Message) { m.At = state.Time{} },
		"call": func(m *state.Message) { m.Parts = []state.Part{{Type: state.PartToolResult}} }, "no parts": func(m *state.Message) { m.Parts = []state.Part{} },
	} {
		other := same
		other.Message = new(*same.Message)
		change(other.Message)
		checkEntry(t, other)
		b, err := state.EncodeEntry(&other)
		if err != nil || name != "call" && name != "no parts" && len(b) <= len(short) {
			t.Errorf("with another %s it has %d bytes, %v, and %d otherwise", name, len(b), err, len(short))
		}
		got, err := state.DecodeEntry(17, b)
		if err != nil || (got.Message.Parts == nil) != (other.Message.Parts == nil) {
			t.Errorf("with another %s: parts %#v, %v, want %#v", name, got.Message.Parts, err, other.Message.Parts)
		}
	}
}

// The encoder refuses values that could not be read.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	late := state.Time{Time: time.Time{}.AddDate(math.MaxInt16, 0, 0)}
	for name, e := range map[string]state.Entry{
		"time": {At: late}, "message time": {Message: &state.Message{At: late}}, "value": {StructuredOutput: json.RawMessage("{")},
		"opaque": {Message: &state.Message{Parts: []state.Part{{Opaque: json.RawMessage("x")}}}},
	} {
		if b, err := state.EncodeEntry(&e); err == nil {
			t.Errorf("%s: it encodes as %q", name, b)
		}
	}
	for name, s := range map[string]state.State{"time": {CreatedAt: late}, "moved": {Transition: state.Transition{At: late}}, "schema": {OutputSchema: json.RawMessage("{}}")}} {
		if b, err := state.EncodeState(s); err == nil {
			t.Errorf("%s: it encodes as %q", name, b)
		}
	}
}

// Fields of a later build of the same format are skipped.
func TestSkipsFieldsOfLaterBuilds(t *testing.T) {
	t.Parallel()
	more := protowire.AppendTag(nil, 1000, protowire.BytesType)
	more = protowire.AppendString(more, "later")
	more = protowire.AppendFixed32(protowire.AppendTag(more, 1001, protowire.Fixed32Type), 7)
	e := sample()
	b, err := state.EncodeEntry(&e)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := state.DecodeEntry(17, append(b, more...)); err != nil || equal(sample(), got) != "" {
		t.Errorf("with more fields: %v, %v", err, equal(sample(), got))
	}
	s := header()
	s.Format = state.Format
	fixed, changing, err := state.EncodeHeader(&s)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := state.DecodeHeader(string(fixed)+string(more), string(changing)+string(more)); err != nil || equal(s, *got) != "" {
		t.Errorf("with more fields: %v, %v", err, equal(s, *got))
	}
}

// A truncated entry does not decode, except at the end of a field (D5).
func TestDecodesNothingCutShort(t *testing.T) {
	t.Parallel()
	e := sample()
	b, err := state.EncodeEntry(&e)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int]bool{}
	for at := 0; at < len(b); {
		ends[at] = true
		_, _, n := protowire.ConsumeField(b[at:])
		at += n
	}
	for i := range b {
		if _, err := state.DecodeEntry(1, b[:i]); (err == nil) != ends[i] {
			t.Errorf("%d of %d bytes: %v", i, len(b), err)
		}
	}
}

// The header part that turns change is small, and so is an entry apart from its text.
func TestStoredSizes(t *testing.T) {
	t.Parallel()
	e, s := sample(), header()
	e.Message.ID, e.Message.Turn, e.Message.At, e.Name = "msg_17_0", e.Turn, e.At, "search"
	b, err := state.EncodeEntry(&e)
	if err != nil {
		t.Fatal(err)
	}
	if payload := len(e.Message.Parts[0].Content) + len(e.Name) + len(e.CallID); len(b) > payload+35 {
		t.Errorf("an entry takes %d bytes for %d", len(b), payload)
	}
	s.Usage = state.Usage{InputTokens: 60_000, OutputTokens: 2_000, CacheReadTokens: 50_000, ModelCalls: 7, ToolCalls: 6}
	fixed, changing, err := state.EncodeHeader(&s)
	if err != nil || len(changing) > 50 || len(fixed) > 100 {
		t.Errorf("a header has %d fixed bytes and %d of each commit, %v; want 100 and 50 at most", len(fixed), len(changing), err)
	}
}

// The strings of an entry are in its text, or in one copy.
func TestDecodeAllocations(t *testing.T) { //nolint:paralleltest // counts allocations
	e := sample()
	b, err := state.EncodeEntry(&e)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if got := testing.AllocsPerRun(100, func() {
		if _, err := state.DecodeEntry(17, text); err != nil {
			t.Fatal(err)
		}
	}); got > 3 { // the message, its parts and its id
		t.Errorf("an entry takes %v allocations, want 3 at most", got)
	}
}

// fill sets every field to a non-zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.SetMapIndex(reflect.ValueOf("k"), value)
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
			if v.Type() == reflect.TypeFor[state.Part]() && v.Type().Field(i).Name == "Files" { // they have none of their own
				v.Field(i).Set(reflect.ValueOf([]state.Part{{Type: state.PartFile, FileID: "f", Name: "n", MediaType: "m", Bytes: 7}, {Type: state.PartFile, Data: "d"}}))
				continue
			}
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
		if _, err := state.EncodeEntry(&e); err != nil {
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
	e := sample()
	encoded, err := state.EncodeEntry(&e)
	if err != nil {
		b.Fatal(err)
	}
	text := string(encoded)
	for b.Loop() {
		if _, err := state.DecodeEntry(17, text); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend appends one turn to a log of 200 turns, and builds its view.
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

// BenchmarkDecodeLog decodes a log of 200 turns, as for the first read of a run.
func BenchmarkDecodeLog(b *testing.B) {
	var texts []string
	var err error
	for _, e := range longRun().Log {
		text, err := state.EncodeEntry(&e)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for b.Loop() {
		log := make([]state.Entry, len(texts))
		for i, text := range texts {
			if log[i], err = state.DecodeEntry(int64(i)+1, text); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// moment is an arbitrary time.
var moment = state.At(time.Date(2026, 11, 20, 15, 4, 5, 678_000_000, time.UTC))
