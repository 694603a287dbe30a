package state_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

var noon = state.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

func must(tb testing.TB, s state.State, r state.Reason, e state.Entry) state.State {
	tb.Helper()
	if e.At.IsZero() {
		e.At = noon
	}
	next, err := s.Move(r, e)
	if err != nil {
		tb.Fatal(err)
	}
	return next
}

// A state is a value: deriving another state from it changes neither it nor other derived states.
func TestAppendSharesNoMemory(t *testing.T) {
	t.Parallel()
	entry := rapid.Custom(func(t *rapid.T) state.Entry {
		e := state.Entry{
			Type: rapid.SampledFrom([]state.EntryType{state.EntryModel, state.EntryTool, state.EntryReused, state.EntryWarning, state.EntryReflect, state.EntryProgress}).Draw(t, "type"),
			At:   noon, Detail: rapid.StringN(0, 4, -1).Draw(t, "detail"), Limit: rapid.StringN(0, 4, -1).Draw(t, "limit"),
			CallID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "call"),
		}
		if e.Type == state.EntryModel {
			m := state.Message{Role: state.RoleAssistant}
			for _, id := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, "calls") {
				m.Parts = append(m.Parts, state.Part{Type: state.PartToolCall, ID: id, Arguments: "{}"})
			}
			cost := state.MicroUSD(rapid.Int64Range(0, 9).Draw(t, "cost"))
			e.Message, e.Usage = &m, &state.Usage{CostUSD: &cost}
		}
		return e
	})
	picture := func(t *rapid.T, s state.State) string {
		b, err := state.EncodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, e := range s.Log {
			b, err := state.EncodeEntry(&e)
			if err != nil {
				t.Fatal(err)
			}
			text += "\n" + string(b)
		}
		return text
	}
	rapid.Check(t, func(t *rapid.T) {
		states := []state.State{{Status: state.Queued}}
		pictures := []string{picture(t, states[0])}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			from := states[rapid.IntRange(0, len(states)-1).Draw(t, "from")]
			next := from.Append(entry.Draw(t, "entry"))
			if rapid.Bool().Draw(t, "move") {
				var err error
				if next, err = next.Move(state.NextTurn, state.Entry{At: noon}); err != nil {
					t.Fatal(err)
				}
			}
			states, pictures = append(states, next), append(pictures, picture(t, next))
			for i, s := range states {
				if got := picture(t, s); got != pictures[i] {
					t.Fatalf("state %d changed from\n%s\nto\n%s", i, pictures[i], got)
				}
			}
		}
	})
}

// The entries of a log are numbered from 1 without gap or duplicate (I9).
func TestAppendNumbers(t *testing.T) {
	t.Parallel()
	s := must(t, state.State{}, state.Submitted, state.Entry{})
	for range 5 {
		s = must(t, s.Append(state.Entry{Type: state.EntryProgress, Seq: 99}), state.NextTurn, state.Entry{})
	}
	for i, e := range s.Log {
		if e.Seq != int64(i+1) {
			t.Errorf("entry %d has number %d", i+1, e.Seq)
		}
	}
}

// Appending a journaled response updates the header: turn, usage, open calls (I3).
func TestAppendFolds(t *testing.T) {
	t.Parallel()
	cost := state.MicroUSD(5)
	s := state.State{Status: state.Queued, ContinueTurn: true, Failures: 2, NeedsDetermined: true}
	s = s.Append(state.Entry{
		Type: state.EntryModel, Turn: 3, FailedCalls: 1, Usage: &state.Usage{ModelCalls: 1, OutputTokens: 7, CostUSD: &cost},
		Message: &state.Message{Parts: []state.Part{{Type: state.PartToolCall, ID: "a", Name: "t", Arguments: "{}"}, {Type: state.PartToolCall, ID: "b"}}},
	})
	if s.Turn != 3 || s.ContinueTurn || s.NeedsDetermined || s.Failures != 0 || s.ModelRequests != 2 || s.Usage.OutputTokens != 7 || *s.Usage.CostUSD != 5 || len(s.Open) != 2 {
		t.Errorf("after a response: %+v", s)
	}
	s = s.Append(state.Entry{Type: state.EntryTool, CallID: "a"}).Append(state.Entry{Type: state.EntryWarning, Limit: "cost_usd"})
	if len(s.Open) != 1 || s.Open[0].ID != "b" || s.Usage.ToolCalls != 1 || !slices.Equal(s.Warned, []string{"cost_usd"}) {
		t.Errorf("after a result: open %+v, warned %v", s.Open, s.Warned)
	}
}

func TestMoveRecords(t *testing.T) {
	t.Parallel()
	text := "done"
	later := state.At(noon.Add(time.Minute))
	s := must(t, state.State{}, state.Submitted, state.Entry{})
	if e := s.Log[0]; e.Type != state.EntrySubmitted || e.Version != 1 || e.Status != state.Queued || !s.CreatedAt.Equal(noon.Time) {
		t.Errorf("submitted: %+v", e)
	}
	s = must(t, s, state.WaitingHumanInput, state.Entry{Waiting: &state.Wait{Question: "?"}})
	if e := s.Log[1]; e.Type != state.EntryWaiting || s.Waiting == nil || s.Waiting.Question != "?" {
		t.Errorf("waiting: %+v", e)
	}
	s = must(t, s, state.Answered, state.Entry{})
	if e := s.Log[2]; e.Type != state.EntryTransition || s.Waiting != nil {
		t.Errorf("answered: %+v, waiting %v", e, s.Waiting)
	}
	s = must(t, s, state.EndCompleted, state.Entry{At: later, Output: &text, Detail: "why"})
	if e := s.Log[3]; e.Type != state.EntryFinished || *s.Output != text || !s.FinishedAt.Equal(later.Time) || s.Transition.Detail != "why" || s.Transition.Version != 4 {
		t.Errorf("finished: %+v", e)
	}
	s = must(t, s, state.UserMessage, state.Entry{})
	if s.Status != state.Queued || s.Output != nil || !s.FinishedAt.IsZero() {
		t.Errorf("continued: status %s, output %v, finished %s", s.Status, s.Output, s.FinishedAt)
	}
}

// The time between an end and the continuation of the run is idle time, each time that it happens.
func TestIdle(t *testing.T) {
	t.Parallel()
	at := func(after time.Duration) state.Time { return state.At(noon.Add(after)) }
	s := must(t, state.State{}, state.Submitted, state.Entry{At: at(0)})
	s = must(t, s, state.EndModelError, state.Entry{At: at(time.Second)})
	if got := s.Idle(noon.Add(time.Hour)); got != 0 {
		t.Errorf("of an ended run: %s", got)
	}
	queued := s.As(state.Queued, noon)
	if got := queued.Idle(noon.Add(time.Minute + time.Second)); got != time.Minute {
		t.Errorf("of a run that waits for its first turn after an end: %s", got)
	}
	s = must(t, s, state.UserMessage, state.Entry{At: at(time.Hour + time.Second)})
	if got := s.Idle(noon.Add(2 * time.Hour)); got != time.Hour {
		t.Errorf("of a continued run: %s", got)
	}
	s = must(t, s, state.EndPoisoned, state.Entry{At: at(time.Hour + 2*time.Second)})
	s = must(t, s, state.Replayed, state.Entry{At: at(2*time.Hour + 2*time.Second)})
	s = must(t, s, state.EndCompleted, state.Entry{At: at(2*time.Hour + 3*time.Second)})
	if got := s.Idle(noon.Add(9 * time.Hour)); got != 2*time.Hour {
		t.Errorf("of a run that was continued twice: %s", got)
	}
}

// A reader sees the scheduler's status, and nothing that held only before it.
func TestAs(t *testing.T) {
	t.Parallel()
	text := "done"
	waiting := must(t, state.State{Status: state.Queued}, state.WaitingHumanInput, state.Entry{Waiting: &state.Wait{}})
	ended := must(t, state.State{Status: state.Queued}, state.EndModelError, state.Entry{Output: &text, Error: &state.Error{Code: "x"}})
	if got := waiting.As(state.Waiting, noon); got.Status != state.Waiting || got.Waiting == nil || !got.StartedAt.Equal(noon.Time) {
		t.Errorf("a waiting run as waiting: %+v", got)
	}
	if got := waiting.As(state.Queued, noon); got.Status != state.Queued || got.Waiting != nil {
		t.Errorf("a woken run: status %s, waiting %v", got.Status, got.Waiting)
	}
	if got := ended.As(state.Failed, state.Time{}); got.Output == nil || got.Error == nil || got.FinishedAt.IsZero() {
		t.Errorf("an ended run: %+v", got)
	}
	if got := ended.As(state.Running, state.Time{}); got.Output != nil || got.Error != nil || !got.FinishedAt.IsZero() {
		t.Errorf("a continued run: %+v", got)
	}
	started := state.At(noon.Add(-time.Hour))
	if got := (state.State{StartedAt: started}).As("", noon); !got.StartedAt.Equal(started.Time) {
		t.Errorf("a run that started before: %s", got.StartedAt)
	}
	if waiting.Status != state.Waiting || waiting.Waiting == nil || ended.Output == nil {
		t.Error("As changed its receiver")
	}
}

func TestAwaits(t *testing.T) {
	t.Parallel()
	open := []state.OpenCall{
		{ID: "a", Needs: state.NeedApproval},
		{ID: "r", Needs: state.NeedResult},
		{ID: "s", Needs: state.NeedAsync}, // its result arrives as any other
		{ID: "c", Needs: state.NeedChild},
		{ID: "free"},
	}
	all := []string{"approval:a", "result:r", "result:s", "child:c"}
	question := &state.Wait{Reason: state.WaitingHumanInput}
	tests := []struct {
		name string
		s    state.State
		want []string
	}{
		{"calls", state.State{Status: state.Waiting, Waiting: &state.Wait{Reason: state.WaitingApproval}, Open: open}, all},
		{"partly decided", state.State{Status: state.Queued, Open: open}, all},
		{"question", state.State{Status: state.Waiting, Waiting: question}, []string{"answer"}},
		{"question of a call", state.State{Status: state.Waiting, Waiting: question, Open: []state.OpenCall{{ID: "q", Needs: state.NeedAnswer}}}, []string{"answer"}},
		{"schedule", state.State{Status: state.Waiting, Waiting: &state.Wait{Reason: state.WaitingSchedule}}, nil},
		{"ended", state.State{Status: state.Failed, Open: open}, nil},
	}
	for _, tt := range tests {
		if got := tt.s.Awaits(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: Awaits() = %v, want %v", tt.name, got, tt.want)
		}
	}
	// The name of a signal's answer is that of the run's wait.
	sig := state.Signal{
		Approvals: []state.Approval{{CallID: "a"}}, ToolResults: []state.SignalResult{{CallID: "r"}, {CallID: "s"}}, Child: &state.ChildResult{CallID: "c"},
	}
	if got, want := sig.Names(), slices.Insert(slices.Clone(all), 1, state.AwaitUnhashed("a")); !slices.Equal(got, want) {
		t.Errorf("Names() = %v, want %v", got, want)
	}
	if got := (state.Signal{Message: &state.Message{}}).Names(); len(got) != 0 {
		t.Errorf("Names() of a user message = %v, want none", got)
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	at := func(minutes int) state.Time { return state.At(noon.Add(time.Duration(minutes) * time.Minute)) }
	tests := []struct {
		s    state.State
		want state.Time
	}{
		{state.State{Status: state.Waiting}, state.Time{}},
		{state.State{Status: state.Waiting, ResumeAt: at(3), Waiting: &state.Wait{ExpiresAt: at(2)}}, at(2)},
		{state.State{Status: state.Waiting, ResumeAt: at(3), Waiting: &state.Wait{Reason: state.WaitingSchedule}}, at(3)},
		{state.State{Status: state.Waiting, ResumeAt: at(3), Waiting: &state.Wait{Reason: state.WaitingApproval}}, state.Time{}},
		{state.State{Status: state.Waiting, ResumeAt: at(3), Waiting: &state.Wait{}, Limits: state.Limits{DeadlineAt: at(1)}}, at(1)},
		{state.State{Status: state.Queued, ResumeAt: at(3), Limits: state.Limits{DeadlineAt: at(1)}}, state.Time{}},
	}
	for _, tt := range tests {
		if got := tt.s.Due(); !got.Equal(tt.want.Time) {
			t.Errorf("Due() = %s, want %s", got, tt.want)
		}
	}
}

func TestUsageAdd(t *testing.T) {
	t.Parallel()
	one := state.MicroUSD(1)
	a := state.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, ModelCalls: 5, ToolCalls: 6, CostUSD: &one}
	sum := a.Add(a)
	if *sum.CostUSD != 2 || sum.InputTokens != 2 || sum.OutputTokens != 4 || sum.CacheReadTokens != 6 || sum.CacheWriteTokens != 8 || sum.ModelCalls != 10 || sum.ToolCalls != 12 {
		t.Errorf("sum = %+v", sum)
	}
	if one != 1 {
		t.Error("Add wrote into its operand")
	}
	if got := (state.Usage{}).Add(a); *got.CostUSD != 1 {
		t.Errorf("unknown + 1 = %d", *got.CostUSD)
	}
	if got := (state.Usage{}).Add(state.Usage{}); got.CostUSD != nil {
		t.Errorf("unknown + unknown = %d", *got.CostUSD)
	}
}

func TestParseRunID(t *testing.T) {
	t.Parallel()
	const good = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T"
	if id, err := state.ParseRunID(good); err != nil || string(id) != good {
		t.Errorf("ParseRunID(%q) = %s, %v", good, id, err)
	}
	for _, text := range []string{"", "run_", "01JD3X9K3W8Q4V5N6M7P8R9S0T", strings.ToLower(good), good + "0", good[:len(good)-1] + "U", "run_81JD3X9K3W8Q4V5N6M7P8R9S0T", good[:len(good)-1] + "\n"} {
		if _, err := state.ParseRunID(text); err == nil {
			t.Errorf("ParseRunID(%q) succeeds", text)
		}
	}
	shards := map[int]int{}
	for i := range 64 * state.Shards {
		s := state.RunID(good[:len(good)-4] + string([]byte{'A' + byte(i>>12), 'A' + byte(i>>8&15), 'A' + byte(i>>4&15), 'A' + byte(i&15)})).Shard()
		if s < 0 || s >= state.Shards {
			t.Fatalf("shard %d", s)
		}
		shards[s]++
	}
	for s, n := range shards {
		if n > 64*3 {
			t.Errorf("shard %d has %d of %d runs", s, n, 64*state.Shards)
		}
	}
	if len(shards) != state.Shards {
		t.Errorf("runs fall on %d shards, want %d", len(shards), state.Shards)
	}
}
