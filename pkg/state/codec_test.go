package state_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// equal compares values as the codec does: instants by their time, and an empty list as an absent one.
func equal(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b state.Time) bool { return a.Equal(b.Time) }))
}

func drawTime(t *rapid.T, label string) state.Time {
	if rapid.Bool().Draw(t, label+" is zero") {
		return state.Time{}
	}
	return state.At(time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, label)))
}

// objects are JSON objects in the form that the encoder keeps.
func objects() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		b, err := json.Marshal(rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
}

// arguments are texts that models produce: objects, objects with white space, and text that only resembles one.
func arguments() *rapid.Generator[string] {
	odd := []string{"", "{", `{"a": 1}`, ` {"a":1}`, `{"a":1}{`, "[1]", "null", `"text"`, `{"a":"<&>"}`}
	return rapid.OneOf(objects(), rapid.SampledFrom(odd), rapid.String())
}

func drawPart(t *rapid.T) state.Part {
	p := state.Part{Type: rapid.SampledFrom([]state.PartType{
		state.PartText, state.PartThinking, state.PartToolCall, state.PartToolResult, state.PartImage, state.PartFile, state.PartProviderTool,
	}).Draw(t, "type")}
	s := rapid.String()
	switch p.Type {
	case state.PartText, state.PartThinking:
		p.Text = s.Draw(t, "text")
	case state.PartToolCall:
		p.ID, p.Name, p.Arguments = s.Draw(t, "id"), s.Draw(t, "name"), arguments().Draw(t, "arguments")
	case state.PartToolResult:
		p.CallID, p.Content, p.IsError = s.Draw(t, "call"), s.Draw(t, "content"), rapid.Bool().Draw(t, "error")
		p.Images = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.Image {
			return state.Image{MediaType: s.Draw(t, "media"), Data: s.Draw(t, "data"), URL: s.Draw(t, "url")}
		}), 1, 2).Draw(t, "images")
		p.Files = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.Part {
			return state.Part{Type: state.PartFile, FileID: s.Draw(t, "file"), Name: s.Draw(t, "name"), MediaType: s.Draw(t, "media"), Bytes: rapid.Int64().Draw(t, "bytes")}
		}), 1, 2).Draw(t, "files")
	case state.PartProviderTool:
		p.ID, p.Name, p.Arguments = s.Draw(t, "id"), s.Draw(t, "name"), arguments().Draw(t, "arguments")
		p.Content, p.IsError = s.Draw(t, "content"), rapid.Bool().Draw(t, "error")
	case state.PartImage:
		p.MediaType, p.Data, p.URL = s.Draw(t, "media"), s.Draw(t, "data"), s.Draw(t, "url")
	case state.PartFile:
		p.MediaType, p.FileID, p.Name, p.Bytes = s.Draw(t, "media"), s.Draw(t, "file"), s.Draw(t, "name"), rapid.Int64().Draw(t, "bytes")
	}
	if rapid.Bool().Draw(t, "opaque") {
		p.Opaque, p.OpaqueBy = json.RawMessage(objects().Draw(t, "opaque")), s.Draw(t, "by")
	}
	return p
}

func drawMessage(t *rapid.T) state.Message {
	s := rapid.String()
	return state.Message{
		ID: s.Draw(t, "id"), Role: state.Role(s.Draw(t, "role")), Turn: rapid.Int().Draw(t, "turn"), At: drawTime(t, "at"),
		Model: s.Draw(t, "model"), Synthetic: rapid.Bool().Draw(t, "synthetic"),
		Parts: rapid.SliceOfN(rapid.Custom(drawPart), 0, 4).Draw(t, "parts"),
	}
}

func drawUsage(t *rapid.T) state.Usage {
	n := rapid.Int64()
	u := state.Usage{
		Estimated:   rapid.Bool().Draw(t, "estimated"),
		InputTokens: n.Draw(t, "in"), OutputTokens: n.Draw(t, "out"), CacheReadTokens: n.Draw(t, "read"),
		CacheWriteTokens: n.Draw(t, "write"), ModelCalls: n.Draw(t, "models"), ToolCalls: n.Draw(t, "tools"),
		CacheHourTokens: n.Draw(t, "hour"), CacheExpiredTokens: n.Draw(t, "expired"),
		WebSearches: n.Draw(t, "searches"), WebFetches: n.Draw(t, "fetches"), CodeExecutions: n.Draw(t, "executions"),
	}
	if rapid.Bool().Draw(t, "priced") {
		cost := state.MicroUSD(rapid.Int64Range(-9e18, 9e18).Draw(t, "cost"))
		u.CostUSD = &cost
		expired := state.MicroUSD(rapid.Int64Range(-9e18, 9e18).Draw(t, "expired cost"))
		u.CacheExpiredCostUSD = &expired
	}
	return u
}

func drawWait(t *rapid.T) *state.Wait {
	s := rapid.String()
	source := rapid.Custom(func(t *rapid.T) state.ArgumentSource {
		return state.ArgumentSource{Argument: s.Draw(t, "argument"), Origin: state.Origin(s.Draw(t, "origin")), Turn: rapid.Int().Draw(t, "turn"), CallID: s.Draw(t, "call"), Tool: s.Draw(t, "tool")}
	})
	call := rapid.Custom(func(t *rapid.T) state.WaitCall {
		return state.WaitCall{
			ID: s.Draw(t, "id"), Tool: s.Draw(t, "tool"), Arguments: json.RawMessage(objects().Draw(t, "arguments")), Message: s.Draw(t, "message"),
			Hash: s.Draw(t, "hash"), Risk: s.Draw(t, "risk"), ArgsFromUntrusted: rapid.Bool().Draw(t, "from"), UntrustedSeen: rapid.Bool().Draw(t, "seen"),
			Sources: rapid.SliceOfN(source, 0, 2).Draw(t, "sources"),
		}
	})
	return &state.Wait{
		Reason: state.Reason(s.Draw(t, "reason")), Since: drawTime(t, "since"), ExpiresAt: drawTime(t, "expires"),
		Calls: rapid.SliceOfN(call, 0, 3).Draw(t, "calls"), Question: s.Draw(t, "question"),
	}
}

func drawEntry(t *rapid.T) state.Entry {
	s, f := rapid.String(), rapid.Float64Range(-1e9, 1e9)
	e := state.Entry{
		Seq: rapid.Int64().Draw(t, "seq"), Type: state.EntryType(s.Draw(t, "type")), Turn: rapid.Int().Draw(t, "turn"),
		Attempt: rapid.Int().Draw(t, "attempt"), At: drawTime(t, "at"), Reason: state.Reason(s.Draw(t, "reason")), Detail: s.Draw(t, "detail"),
		Version: rapid.Int64().Draw(t, "version"), Status: state.Status(s.Draw(t, "status")), Worker: s.Draw(t, "worker"),
		Messages: rapid.SliceOfN(rapid.Custom(drawMessage), 0, 3).Draw(t, "messages"),
		CallID:   s.Draw(t, "call"), IsError: rapid.Bool().Draw(t, "error"), MessageIDs: rapid.SliceOfN(s, 0, 3).Draw(t, "ids"),
		Requesters: rapid.SliceOfN(s, 0, 3).Draw(t, "asked"), Cache: s.Draw(t, "cache"),
		Step: rapid.Int().Draw(t, "step"), Action: s.Draw(t, "action"), Limit: s.Draw(t, "limit"), UsedFraction: f.Draw(t, "used"),
	}
	if rapid.Bool().Draw(t, "full") {
		m, u, text, confidence := drawMessage(t), drawUsage(t), s.Draw(t, "output"), f.Draw(t, "confidence")
		e.Message, e.Usage, e.Waiting, e.Output, e.Confidence = &m, &u, drawWait(t), &text, &confidence
		e.StructuredOutput = json.RawMessage(objects().Draw(t, "structured"))
		e.Approval = &state.Decided{
			Decision: state.Decision(s.Draw(t, "decision")), Hash: s.Draw(t, "hash"), Shown: json.RawMessage(objects().Draw(t, "shown")),
			Arguments: json.RawMessage(objects().Draw(t, "given")), Reason: s.Draw(t, "because"), Expired: rapid.Bool().Draw(t, "expired"),
		}
		e.Error = &state.Error{Code: s.Draw(t, "code"), Message: s.Draw(t, "why")}
	}
	return e
}

func drawState(t *rapid.T) state.State {
	s := rapid.String()
	st := state.State{
		Format: state.Format, ID: state.RunID(s.Draw(t, "id")), Agent: s.Draw(t, "agent"), AgentVersion: rapid.Int().Draw(t, "agent version"),
		Loop: s.Draw(t, "loop"), Tenant: s.Draw(t, "tenant"), Priority: state.Priority(s.Draw(t, "priority")),
		Metadata: rapid.MapOfN(s, s, 0, 3).Draw(t, "metadata"), Status: state.Status(s.Draw(t, "status")),
		Transition: state.Transition{Reason: state.Reason(s.Draw(t, "reason")), Turn: rapid.Int().Draw(t, "at turn"), At: drawTime(t, "at")},
		Turn:       rapid.Int().Draw(t, "turn"), Version: rapid.Int64().Draw(t, "version"), NeedsDetermined: rapid.Bool().Draw(t, "cleared"),
		ResumeAt: drawTime(t, "resume"), Usage: drawUsage(t), Warned: rapid.SliceOfN(s, 0, 3).Draw(t, "warned"),
		Limits: state.Limits{
			MaxTurns: rapid.Int().Draw(t, "max turns"), CostUSD: state.MicroUSD(rapid.Int64Range(-9e18, 9e18).Draw(t, "cost")),
			DeadlineAt: drawTime(t, "deadline"), WaitMS: rapid.Int64().Draw(t, "wait"), WarnAt: rapid.Float64Range(0, 1).Draw(t, "warn"),
		},
		ContinueTurn: rapid.Bool().Draw(t, "reenter"), Failures: rapid.Int().Draw(t, "failures"), CreatedAt: drawTime(t, "created"),
		StartedAt: drawTime(t, "started"), UpdatedAt: drawTime(t, "updated"), FinishedAt: drawTime(t, "finished"), IdleMS: rapid.Int64Range(0, 1<<40).Draw(t, "idle"),
		Open: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.OpenCall {
			return state.OpenCall{ID: s.Draw(t, "id"), Name: s.Draw(t, "name"), Arguments: arguments().Draw(t, "arguments"), Needs: state.Need(s.Draw(t, "needs"))}
		}), 0, 3).Draw(t, "open"),
	}
	if rapid.Bool().Draw(t, "full") {
		text := s.Draw(t, "output")
		st.Waiting, st.Output, st.Error = drawWait(t), &text, &state.Error{Code: s.Draw(t, "code")}
		st.Parent = &state.Parent{RunID: state.RunID(s.Draw(t, "parent")), Depth: rapid.Int().Draw(t, "depth")}
		st.Webhook = &state.Webhook{URL: s.Draw(t, "url"), Events: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.EntryType { return state.EntryType(s.Draw(t, "event")) }), 0, 2).Draw(t, "events"), Secret: rapid.SliceOfN(s, 1, 2).Draw(t, "secret")}
		st.OutputSchema = json.RawMessage(objects().Draw(t, "schema"))
		st.Variables = json.RawMessage(objects().Draw(t, "variables"))
		confidence := rapid.Float64Range(0, 1).Draw(t, "confidence")
		st.Facts.Confidence = &confidence
		st.LoopState = state.LoopState{Version: rapid.IntRange(0, 3).Draw(t, "loop version"), Data: json.RawMessage(objects().Draw(t, "loop state"))}
	}
	if rapid.Bool().Draw(t, "settled") { // as it is after each transition
		st.Transition.Turn, st.Transition.Version, st.Transition.At = st.Turn, st.Version, st.UpdatedAt
	}
	return st
}

// Encoded states and entries decode to the same values.
func TestCodecIsIdentity(t *testing.T) {
	t.Parallel()
	t.Run("entry", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) { checkEntry(t, drawEntry(t)) })
	})
	t.Run("state", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) { checkState(t, drawState(t)) })
	})
}

func TestEncodeStateLeavesOutTheLog(t *testing.T) {
	t.Parallel()
	b, err := state.EncodeState(state.State{Log: []state.Entry{{Detail: "not in the header"}}})
	if err != nil || strings.Contains(string(b), "not in the header") {
		t.Errorf("EncodeState = %s, %v", b, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), state.Format+1)
	for _, text := range []string{string(newer), string(newer) + "nothing that this build can read"} {
		s, err := state.DecodeState(text)
		if d := equal(state.State{Format: state.Format + 1}, s); !errors.Is(err, state.ErrFormat) || d != "" {
			t.Errorf("DecodeState of a newer format = %v, want ErrFormat and nothing but the format: %s", err, d)
		}
	}
	for _, text := range []string{
		"", "{", "null", "\x08", "\x08\x00", "\x10\x01", "\x08\x01\x07", "\x08\x01\x10\x63", "\x08\x01\x1a\x01x", "\x18\x01\x08\x01", "\x08\x01\x08\x64", "\x08\x01\x6a\x05out", "\x08\x01\x8a\x01\x01{",
		"\x08\x01\x30\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x08\x81\x80\x80\x80\x80\x80\x80\x80\x80\x02",
	} {
		if s, err := state.DecodeState(text); err == nil || errors.Is(err, state.ErrFormat) {
			t.Errorf("DecodeState(%q) = %+v, %v, want another error", text, s, err)
		}
	}
	for _, text := range []string{"x", "{}", "\x00", "\x62\x7f", "\x0a\x01x\x0a", "\x62\x02\x10\x63", "\x8a\x01\x01{", "\x20\xff\xff\xff\xff\xff\xff\xff\xff\x7f"} {
		if e, err := state.DecodeEntry(1, text); err == nil {
			t.Errorf("DecodeEntry(%q) = %+v, want an error", text, e)
		}
	}
}

func TestTimeCodec(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`null`:                             `null`,
		`"2026-11-20T15:04:05Z"`:           `"2026-11-20T15:04:05.000Z"`,
		`"2026-11-20T15:04:05.123987Z"`:    `"2026-11-20T15:04:05.123Z"`,
		`"2026-11-20T15:04:05.5+02:00"`:    `"2026-11-20T13:04:05.500Z"`,
		`"9999-12-31T23:59:59Z"`:           `"9999-12-31T23:59:59.000Z"`,
		`"9999-12-31T23:59:59-01:00"`:      "", // a year that RFC 3339 cannot express in UTC
		`"0000-01-01T00:00:00+01:00"`:      "",
		`"20 November"`:                    "",
		`1700000000`:                       "",
		`"2026-11-20T15:04:05+02:00:00.0"`: "",
	} {
		var got state.Time
		err := json.Unmarshal([]byte(text), &got)
		if want == "" {
			if err == nil {
				t.Errorf("%s is read as %s, want an error", text, got)
			}
			continue
		}
		if b, err2 := json.Marshal(got); err != nil || err2 != nil || string(b) != want {
			t.Errorf("%s is written as %s, %v, %v; want %s", text, b, err, err2, want)
		}
	}
	// The encoder writes nothing that cannot be read.
	if b, err := json.Marshal(state.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))); err == nil {
		t.Errorf("the year 10000 is written as %s, want an error", b)
	}
}

func TestMicroUSDCodec(t *testing.T) {
	t.Parallel()
	for m, want := range map[state.MicroUSD]string{
		0: "0", 1: "0.000001", -1: "-0.000001", 500_000: "0.5", 10_000_000: "10", -1_250_000: "-1.25",
		math.MaxInt64: "9223372036854.775807", math.MinInt64: "-9223372036854.775808",
	} {
		if b, err := json.Marshal(m); err != nil || string(b) != want {
			t.Errorf("%d is written as %s, %v; want %s", int64(m), b, err, want)
		}
	}
	for text, want := range map[string]state.MicroUSD{
		"0.1": 100_000, "5e-7": 1, "-5e-7": -1, "4e-7": 0, "1e3": 1_000_000_000, "1e-999999999": 0, "1e-646456993": 0, "9007199254740.993": 9_007_199_254_740_993_000,
	} {
		var got state.MicroUSD
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is read as %d, %v; want %d", text, int64(got), err, int64(want))
		}
	}
	for _, text := range []string{`"1"`, "1e13", "-1e13", "1e999999999", "1e600000000", "true", "{}"} {
		var got state.MicroUSD
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %d, want an error", text, int64(got))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := state.MicroUSD(rapid.Int64().Draw(t, "amount"))
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got state.MicroUSD
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Fatalf("%d is written as %s and read as %d, %v", int64(want), b, int64(got), err)
		}
	})
}

// The arguments that a model produced are kept byte for byte.
func TestArgumentsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":1}`, `{"a": 1}`, "{\n}", `{"html":"<b>&</b>"}`, `{"a":1`, "", "null", `"x"`, `{"a":1.0,"a":2}`, "{\"\u2028\":1}"} {
		b, err := state.EncodeEntry(&state.Entry{Message: &state.Message{Parts: []state.Part{{Type: state.PartToolCall, Arguments: text}}}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := state.DecodeEntry(1, b)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Message.Parts[0].Arguments; got != text {
			t.Errorf("arguments %q decode as %q", text, got)
		}
	}
}

// Decoding any stored bytes neither panics nor produces a value that cannot be written and read again.
func FuzzDecodeState(f *testing.F) {
	var all state.State
	fill(reflect.ValueOf(&all).Elem())
	all.Format = state.Format
	for _, s := range []state.State{header(), all, {}} {
		b, err := state.EncodeState(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := state.DecodeState(b)
		if err != nil {
			return
		}
		again, err := state.EncodeState(s)
		if err != nil {
			t.Fatalf("EncodeState of what %q decodes to: %v", b, err)
		}
		if _, err := state.DecodeState(again); err != nil {
			t.Fatalf("DecodeState(%q): %v", again, err)
		}
		_, _ = s.Awaits(), s.Due()
	})
}

// Like FuzzDecodeState, for entries; the functions that read a log accept any entry as well.
func FuzzDecodeEntry(f *testing.F) {
	var all state.Entry
	fill(reflect.ValueOf(&all).Elem())
	for _, e := range []state.Entry{sample(), all, said("a", "call_1"), {Type: state.EntryTombstoned, MessageIDs: []string{"a"}}} {
		b, err := state.EncodeEntry(&e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := state.DecodeEntry(1, b)
		if err != nil {
			return
		}
		again, err := state.EncodeEntry(&e)
		if err != nil {
			t.Fatalf("EncodeEntry of what %q decodes to: %v", b, err)
		}
		if _, err := state.DecodeEntry(1, again); err != nil {
			t.Fatalf("DecodeEntry(%q): %v", again, err)
		}
		log := state.State{}.Append(e).Append(e).Log
		_, _, _ = state.View(log), state.FullView(log), state.Audit(log)
	})
}
