package state_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// headerV1 is a header as the builds of format 1 knew it. It is never changed.
type headerV1 struct {
	Format           int                `json:"format"`
	ID               state.RunID        `json:"id"`
	Agent            string             `json:"agent"`
	AgentVersion     int                `json:"agent_version"`
	Loop             string             `json:"loop"`
	Tenant           string             `json:"tenant"`
	Priority         state.Priority     `json:"priority"`
	Metadata         map[string]string  `json:"metadata,omitempty"`
	Parent           *state.Parent      `json:"parent,omitempty"`
	Batch            *state.Batch       `json:"batch,omitempty"`
	Status           state.Status       `json:"status"`
	Transition       state.Transition   `json:"transition"`
	Turn             int                `json:"turn"`
	Version          int64              `json:"version"`
	Output           *string            `json:"output,omitempty"`
	StructuredOutput json.RawMessage    `json:"structured_output,omitempty"`
	OutputSchema     json.RawMessage    `json:"output_schema,omitempty"`
	Error            *state.Error       `json:"error,omitempty"`
	Confidence       *float64           `json:"confidence,omitempty"`
	Waiting          *state.Wait        `json:"waiting,omitempty"`
	Open             []state.OpenCall   `json:"open,omitempty"`
	Cleared          bool               `json:"cleared,omitempty"`
	Undecided        bool               `json:"undecided,omitempty"`
	Phase            string             `json:"phase,omitempty"`
	ResumeAt         state.Time         `json:"resume_at,omitzero"`
	Reservation      *state.Reservation `json:"place,omitempty"`
	Usage            state.Usage        `json:"usage"`
	Limits           state.Limits       `json:"limits"`
	Warned           []string           `json:"warned,omitempty"`
	TurnBase         int                `json:"turn_base,omitempty"`
	Reenter          bool               `json:"reenter,omitempty"`
	Failures         int                `json:"failures,omitempty"`
	Recoveries       int                `json:"recoveries,omitempty"`
	Compacted        bool               `json:"compacted,omitempty"`
	StopBlocks       int                `json:"stop_blocks,omitempty"`
	Fallback         int                `json:"fallback,omitempty"`
	FallbackBase     int                `json:"fallback_base,omitempty"`
	Nudges           state.Nudges       `json:"nudges,omitzero"`
	Poison           *state.Poison      `json:"poison,omitempty"`
	Asked            int                `json:"asked,omitempty"`
	Stream           string             `json:"stream,omitempty"`
	ReplyTo          string             `json:"reply_to,omitempty"`
	Webhook          *state.Webhook     `json:"webhook,omitempty"`
	TraceSpan        string             `json:"trace_parent,omitempty"`
	CreatedAt        state.Time         `json:"created_at"`
	StartedAt        state.Time         `json:"started_at"`
	UpdatedAt        state.Time         `json:"updated_at"`
	FinishedAt       state.Time         `json:"finished_at"`
}

// stateV1 returns s as those builds had it.
func stateV1(s state.State) headerV1 {
	var own struct {
		Phase string `json:"phase"`
	}
	_ = json.Unmarshal(s.LoopState.Data, &own) // nothing is no phase
	return headerV1{
		1, s.ID, s.Agent, s.AgentVersion, s.Loop, s.Tenant, s.Priority, s.Metadata, s.Parent, s.Batch, s.Status, s.Transition, s.Turn, s.Version,
		s.Output, s.StructuredOutput, s.OutputSchema, s.Error, s.Facts.Confidence, s.Waiting, s.Open, s.Cleared, s.Undecided, own.Phase, s.ResumeAt,
		s.Reservation, s.Usage, s.Limits, s.Warned, s.TurnBase, s.Reenter, s.Failures, s.Recoveries, s.Compacted, s.StopBlocks, s.Fallback, s.FallbackBase,
		s.Nudges, s.Poison, s.Asked, s.Stream, s.ReplyTo, s.Webhook, s.TraceSpan, s.CreatedAt, s.StartedAt, s.UpdatedAt, s.FinishedAt,
	}
}

// A run goes from format 1 to 2 without a loss, and never back.
func TestFormats(t *testing.T) {
	t.Parallel()
	old := header1()
	b, err := state.EncodeState(old)
	if err != nil {
		t.Fatal(err)
	}
	read, err := state.DecodeState(b)
	if err != nil || read.Format != 1 || string(read.LoopState.Data) != `{"phase":"text"}` || *read.Facts.Confidence != *old.Facts.Confidence {
		t.Fatalf("read as format %d with %s and %v, %v", read.Format, read.LoopState.Data, read.Facts, err)
	}
	if got := read.Formatted(state.OldFormat); got.Format != 1 {
		t.Errorf("format %d is written, want 1: others may not know more", got.Format)
	}
	next := read.Formatted(state.Format)
	if next.Format != 2 {
		t.Errorf("format %d is written, want 2", next.Format)
	}
	if back := next.Formatted(state.OldFormat); back.Format != 2 {
		t.Errorf("a run of format 2 is written in format %d", back.Format)
	}
	fixed, changing, err := state.EncodeHeader(next)
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.DecodeHeader(string(fixed), changing)
	if err != nil {
		t.Fatal(err)
	}
	if diff := equal(next, got); diff != "" {
		t.Errorf("the run has changed on its way to format 2:\n%s", diff)
	}
}

// What format 1 cannot hold is written in format 2, whoever else there is: an older
// build would lose it.
func TestFormatHasCapacity(t *testing.T) {
	t.Parallel()
	for want, own := range map[int][]state.LoopState{
		1: {{}, {Data: json.RawMessage(`{"phase":"final"}`)}},
		2: {
			{Data: json.RawMessage(`{"phase":"final","n":1}`)}, {Data: json.RawMessage(`{"n":1}`)}, {Data: json.RawMessage(`{"phase":""}`)},
			{Data: json.RawMessage(`{"phase":1}`)}, {Version: 1, Data: json.RawMessage(`{"phase":"final"}`)}, {Data: json.RawMessage(`[1]`)}, {Version: 1},
		},
	} {
		for _, l := range own {
			s := state.State{ID: "run_1", LoopState: l}.Formatted(state.OldFormat)
			if s.Format != want {
				t.Errorf("%s of version %d is written in format %d, want %d", l.Data, l.Version, s.Format, want)
			}
			b, err := state.EncodeState(s)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := state.DecodeState(b); err != nil || equal(l, got.LoopState) != "" {
				t.Errorf("%s of version %d is read as %+v, %v", l.Data, l.Version, got.LoopState, err)
			}
		}
	}
}

// The part of a header that turns change has nothing of the other in it, and is short.
func TestHeaderParts(t *testing.T) {
	t.Parallel()
	s := header()
	s.Format, s.Metadata, s.OutputSchema = state.Format, map[string]string{"of": "the submission"}, json.RawMessage(`{"type":"object"}`)
	fixed, changing, err := state.EncodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(s.ID), "the submission", `"object"`, `"max_turns"`} {
		if !strings.Contains(string(fixed), text) || strings.Contains(string(changing), text) {
			t.Errorf("%s is not in %s only, but in %s", text, fixed, changing)
		}
	}
	alone, err := state.EncodeChanging(s)
	if err != nil || string(alone) != string(changing) {
		t.Errorf("EncodeChanging = %s, %v, want %s", alone, err, changing)
	}
	old := s
	old.Format = 1
	whole, err := state.EncodeState(old)
	if err != nil || len(changing) > len(whole)/2 {
		t.Errorf("%d bytes change of %d: %s", len(changing), len(whole), changing)
	}
}

// A later build of the same format may write fields that this one does not know.
func TestHeaderWithMore(t *testing.T) {
	t.Parallel()
	s := header()
	s.Format = state.Format
	fixed, changing, err := state.EncodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	more := func(b []byte) string { return strings.TrimSuffix(string(b), "}") + `,"more":{"than":1}}` }
	got, err := state.DecodeHeader(more(fixed), more(changing))
	if err != nil {
		t.Fatal(err)
	}
	if diff := equal(s, got); diff != "" {
		t.Errorf("read differently:\n%s", diff)
	}
	newer := strings.Replace(string(changing), `"format":2`, `"format":3`, 1)
	for _, text := range []string{newer, `{"format":3,"status":[1]}`, `{"format":3,"id":"run_1","status":[1]}`} {
		if _, err := state.DecodeHeader(string(fixed), text); !errors.Is(err, state.ErrFormat) {
			t.Errorf("DecodeHeader of %s = %v, want ErrFormat", text, err)
		}
	}
}
