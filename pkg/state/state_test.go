package state_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

var at = state.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

func entry() *rapid.Generator[state.Entry] {
	return rapid.Custom(func(t *rapid.T) state.Entry {
		text := rapid.String()
		part := rapid.SampledFrom([]state.Part{
			{Type: state.PartText, Text: text.Draw(t, "text")},
			{Type: state.PartThinking, Text: "t", Opaque: json.RawMessage(`{"s":1}`), OpaqueBy: "p"},
			{Type: state.PartToolCall, ID: "c", Name: "n", Arguments: rapid.SampledFrom([]string{`{"a":1}`, `{"a": 1}`, `"x"`, `{`, ``, `[1]`}).Draw(t, "arguments")},
			{Type: state.PartToolResult, CallID: "c", Content: text.Draw(t, "content"), IsError: rapid.Bool().Draw(t, "error")},
			{Type: state.PartImage, MediaType: "image/png", Data: "AA=="},
		})
		m := state.Message{ID: "m", Role: state.RoleAssistant, At: at, Parts: rapid.SliceOfN(part, 1, 4).Draw(t, "parts")}
		cost := state.MicroUSD(rapid.Int64Range(-5e9, 5e9).Draw(t, "cost"))
		return state.Entry{
			Seq: 1, Type: state.EntryModel, Turn: rapid.IntRange(0, 200).Draw(t, "turn"), At: at, Message: &m,
			Usage: &state.Usage{OutputTokens: rapid.Int64Range(0, 1e9).Draw(t, "tokens"), CostUSD: &cost},
		}
	})
}

// What is decoded is what was encoded, whatever a model has said.
func TestCodecIsIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := entry().Draw(t, "entry")
		b, err := state.EncodeEntry(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := state.DecodeEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", b, diff)
		}
	})
}

// A2: a state is a value. Two states that share a prefix never write into each
// other, and no method changes its receiver.
func TestStatesShareNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := state.State{Status: state.Queued}
		for range rapid.IntRange(0, 5).Draw(t, "prefix") {
			base = base.Append(entry().Draw(t, "e"))
		}
		before := slices.Clone(base.Log)
		a := base.Append(state.Entry{Type: state.EntryProgress, Target: "a"})
		b := base.Append(state.Entry{Type: state.EntryProgress, Target: "b"})
		if a.Log[len(a.Log)-1].Target != "a" || b.Log[len(b.Log)-1].Target != "b" {
			t.Fatal("two successors share their last entry")
		}
		if _, err := base.Move(state.NextTurn, state.Entry{At: at}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, base.Log); diff != "" || base.Version != 0 {
			t.Fatalf("the receiver changed:\n%s", diff)
		}
		for i, e := range a.Log {
			if e.Seq != int64(i+1) {
				t.Fatalf("entry %d has number %d (I9)", i+1, e.Seq)
			}
		}
	})
}

// A move that is not in the table cannot be made.
func TestMoveRefusesIllegal(t *testing.T) {
	t.Parallel()
	for _, s := range []state.State{{Status: state.Completed}, {Status: state.Queued}} {
		_, err := s.Move(state.Submitted, state.Entry{})
		var illegal *state.TransitionError
		if !errors.As(err, &illegal) || illegal.From != s.Status {
			t.Errorf("Move(submitted) from %s = %v", s.Status, err)
		}
	}
	if _, err := (state.State{Status: state.Completed}).Move(state.NextTurn, state.Entry{}); err == nil {
		t.Error("an ended run takes a turn")
	}
	if _, err := (state.State{Status: state.Queued}).Move("nonsense", state.Entry{}); err == nil {
		t.Error("an unknown reason moves a run")
	}
}

// A12: a tombstoned message is neither sent nor shown, but kept.
func TestViewHidesTombstones(t *testing.T) {
	t.Parallel()
	partial := state.Message{ID: "m2", Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: "half"}}}
	var s state.State
	s = s.Append(state.Entry{Type: state.EntrySubmitted, Messages: []state.Message{{ID: "m1", Role: state.RoleUser}}})
	s = s.Append(state.Entry{Type: state.EntryModel, Message: &partial})
	s = s.Append(state.Entry{Type: state.EntryTombstoned, MessageIDs: []string{"m2"}})
	if got := state.View(s.Log); len(got) != 1 || got[0].ID != "m1" {
		t.Errorf("View = %+v", got)
	}
	if got := state.FullView(s.Log); len(got) != 2 || !got[1].Tombstoned || s.Log[1].Message.Tombstoned {
		t.Errorf("FullView = %+v", got)
	}
}

func TestMoney(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]state.MicroUSD{"0.5": 500_000, "0": 0, "12": 12_000_000, "0.000001": 1, "-1.25": -1_250_000} {
		var got state.MicroUSD
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("decode %s = %d, %v; want %d", text, got, err, want)
		}
		if b, err := json.Marshal(want); err != nil || string(b) != text {
			t.Errorf("encode %d = %s, %v; want %s", want, b, err, text)
		}
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := state.DecodeState([]byte(`{"format":99}`)); !errors.Is(err, state.ErrFormat) {
		t.Errorf("DecodeState = %v, want ErrFormat", err)
	}
}

func TestRunIDs(t *testing.T) {
	t.Parallel()
	if _, err := state.ParseRunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "run_", "01JD3X9K3W8Q4V5N6M7P8R9S0T", "run_01JD3X9K3W8Q4V5N6M7P8R9S0", "run_81JD3X9K3W8Q4V5N6M7P8R9S0T", "run_01JD3X9K3W8Q4V5N6M7P8R9SIL", "run_01jd3x9k3w8q4v5n6m7p8r9s0t"} {
		if _, err := state.ParseRunID(bad); err == nil {
			t.Errorf("ParseRunID(%q) accepts it", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":1,"id":"run_x","status":"queued","usage":{"cost_usd":0.1}}`))
	f.Add([]byte(`{"seq":1,"type":"model.message","at":"2026-01-01T00:00:00Z","message":{"parts":[{"type":"tool_call","arguments":"{"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := state.DecodeState(data); err == nil {
			if _, err := state.EncodeState(s); err != nil {
				t.Fatalf("decodes but does not encode: %v", err)
			}
		}
		if e, err := state.DecodeEntry(data); err == nil {
			if _, err := state.EncodeEntry(e); err != nil {
				t.Fatalf("decodes but does not encode: %v", err)
			}
			state.View([]state.Entry{e})
			state.Audit([]state.Entry{e})
		}
	})
}
