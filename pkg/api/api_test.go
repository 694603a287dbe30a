package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var at = state.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// The run object has every field of the contract, in every state.
func TestRunHasEveryField(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(api.RunOf(state.State{Status: state.Queued, CreatedAt: at}, at.Time))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	fields := "id agent agent_version loop tenant priority metadata parent status reason transition turn_count version output structured_output " +
		"waiting usage budget confidence error created_at started_at updated_at finished_at"
	for _, f := range strings.Fields(fields) {
		if _, ok := got[f]; !ok {
			t.Errorf("field %s is missing", f)
		}
	}
	for _, f := range strings.Fields("reason waiting output structured_output error parent finished_at") {
		if got[f] != nil {
			t.Errorf("%s = %v, want null", f, got[f])
		}
	}
}

// The used fraction of a deadline grows until the run ends, not after it.
func TestUsedFractionOfAnEndedRun(t *testing.T) {
	t.Parallel()
	later := func(minutes int) state.Time { return state.At(at.Add(time.Duration(minutes) * time.Minute)) }
	st := state.State{CreatedAt: at, Limits: state.Limits{DeadlineAt: later(8)}, Transition: state.Transition{Reason: state.EndCompleted}}
	for _, c := range []struct {
		status   state.Status
		finished state.Time
		want     float64
	}{{state.Running, state.Time{}, 0.5}, {state.Completed, later(2), 0.25}} {
		st.Status, st.FinishedAt = c.status, c.finished
		if got := api.RunOf(st, later(4).Time).Budget.UsedFraction; got != c.want {
			t.Errorf("%s after half of the time: used fraction %v, want %v", c.status, got, c.want)
		}
	}
}

// A run shows the hash of a call that it wants approved, and of no other; risk and child run only where there is one.
func TestWaitingCalls(t *testing.T) {
	t.Parallel()
	r := api.RunOf(state.State{Status: state.Waiting, Waiting: &state.Wait{Reason: state.WaitingApproval, Question: "Why?", Calls: []state.WaitCall{
		{ID: "a", Hash: "h1", Needs: state.NeedApproval, Risk: "high"}, {ID: "b", Hash: "h2", Needs: state.NeedResult, RunID: "run_x"},
	}}}, at.Time)
	want := &api.Waiting{Reason: "waiting_approval", Question: new("Why?"), Calls: []api.WaitCall{
		{ID: "a", Hash: "h1", Needs: "approval", Risk: new("high"), Sources: []state.ArgumentSource{}},
		{ID: "b", Needs: "result", RunID: new("run_x"), Sources: []state.ArgumentSource{}},
	}}
	if diff := cmp.Diff(want, r.Waiting); diff != "" || r.Reason == nil || *r.Reason != want.Reason {
		t.Errorf("waiting with the reason %v:\n%s", r.Reason, diff)
	}
}

func TestEventsCarryTheRun(t *testing.T) {
	t.Parallel()
	e := state.Entry{Seq: 3, Type: state.EntryTransition, Turn: 1, At: at, Reason: state.NextTurn, Version: 2, Status: state.Queued}
	b, err := api.EncodeEvent("run_x", e)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"seq":3,"run_id":"run_x","type":"transition","turn":1,"attempt":0,"at":"2026-11-20T12:00:00.000Z","reason":"next_turn","version":2,"status":"queued"}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("EncodeEvent:\n%s", diff)
	}
	got, err := api.DecodeEvent(b)
	if err != nil || got.RunID != "run_x" || got.Seq != 3 || got.Reason != state.NextTurn {
		t.Errorf("DecodeEvent = %+v, %v", got, err)
	}
	live := api.EncodeLive("run_x", api.Live{Type: state.LiveTurnStarted, Turn: 1, Attempt: 2, At: at})
	if !strings.HasPrefix(string(live), `{"seq":null,"run_id":"run_x","type":"turn.started","turn":1,"attempt":2`) {
		t.Errorf("EncodeLive = %s", live)
	}
	// Types with hand-written encoders are encoded like encoding/json does.
	for _, l := range []api.Live{
		{Type: state.LiveTurnStarted, Turn: 1, Attempt: 2, At: at, Worker: "w"},
		{Type: state.LiveToolStarted, Turn: 0, At: at, Worker: "w", CallID: "c\"1", Name: "né"},
		{Type: state.LiveToolProgress, Turn: 1, At: at, CallID: "c", Progress: "half"},
		{Type: state.LiveModelDelta, Turn: 1, At: at, Delta: &model.Delta{Text: "t"}},
	} {
		got := string(api.EncodeLive("run_x", l))
		l.RunID = "run_x"
		want, err := json.Marshal(l)
		if err != nil || got != string(want) {
			t.Errorf("EncodeLive = %s, want %s, %v", got, want, err)
		}
	}
}

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ body, want string }{
		{``, "empty"},
		{`{"agent":`, "incomplete"},
		{`{"agent":"a"} {}`, "there is more text after the JSON document"},
		{`{"agnet":"a"}`, `"agnet"`},
		{`{"Agent":"a"}`, `"Agent"`},
		{`{"limits":{"max_tuns":1}}`, `"limits.max_tuns"`},
		{`{"":1}`, `unknown field ""`},
		{`{"limits":{"":1}}`, `unknown field "limits."`},
		{`{"input":[{"":{"a":1,"a":2}}]}`, `"input[0]..a" is given twice`},
		{`{"agent":"a","start_at":"tomorrow"}`, `field "start_at": time "tomorrow" is not in the format of RFC 3339: write one such as`},
		{`{"limits":{"wait":"soon"}}`, `field "limits.wait": duration "soon" is not valid: write one such as`},
		{`{"agent":"a","agent":"b"}`, `"agent" is given twice`},
		{`{"metadata":{"k":"v","k":"w"}}`, `"metadata.k" is given twice`},
		{`{"webhook":{"uri":"x"}}`, `"webhook.uri"`},
		{`{"input":[{"a":1},[{"b":{"c":2,"c":3}}]]}`, `"input[1][0].b.c" is given twice`},
		{`{"input":[` + strings.Repeat("1,", 4<<20) + `1]}`, "more than 262144 values"},
		{`{"input":[` + strings.Repeat("[],", 1<<20) + `1]}`, "more than 262144 values"},
		{`{"metadata":{"k":1}}`, "must be a string"},
		{`[]`, "must be an object"},
		{`"x"`, "must be an object"},
		{`{"limits":{"max_turns":1.5}}`, "a whole number"},
		{`{"agent":1}`, `"agent" must be a string`},
		{`{"limits":{"max_turns":"x"}}`, "max_turns"},
		{`{"limits":{"deadline":"soon"}}`, "10m"},
		{`{"start_at":"tomorrow"}`, "RFC 3339"},
		{strings.Repeat("[", 100), "levels deep"},
		{`nonsense`, "not JSON"},
	}
	for _, tt := range tests {
		var r api.SubmitRequest
		if err := api.Decode([]byte(tt.body), &r); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Decode(%.40s) = %v, want an error with %q", tt.body, err, tt.want)
		}
	}
}

func TestDecodeNamesPlacesInLists(t *testing.T) {
	t.Parallel()
	var r api.SignalRequest
	err := api.Decode([]byte(`{"approvals":[{"call_id":"a","decision":"deny"},{"callid":"b"}]}`), &r)
	if err == nil || !strings.Contains(err.Error(), `"approvals[1].callid"`) {
		t.Errorf("Decode = %v", err)
	}
	// Free-form fields accept any names.
	if err := api.Decode([]byte(`{"approvals":[{"call_id":"a","decision":"approve","arguments":{"Any":{"thing":[{"x":1}]}}}]}`), &r); err != nil {
		t.Errorf("Decode = %v", err)
	}
}

// A message and a wait have every field of the contract, whatever they contain.
func TestMessagesHaveEveryField(t *testing.T) {
	t.Parallel()
	by := state.Message{ID: "m", Role: state.RoleAssistant, Model: "gpt", Synthetic: true}
	b, err := json.Marshal(api.MessagesOf([]state.Message{state.UserText("<hi>"), by}))
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields("id role turn at model synthetic tombstoned compacted parts") {
		for i := range got {
			if _, ok := got[i][f]; !ok {
				t.Errorf("message %d: field %s is missing: %s", i, f, b)
			}
		}
	}
	if got[0]["model"] != nil || got[1]["model"] != "gpt" || got[1]["synthetic"] != true {
		t.Errorf("messages = %s", b)
	}
	// They read back as the plain types.
	var plain []api.Message
	if err := json.Unmarshal(b, &plain); err != nil || plain[1].Model != "gpt" || plain[0].Text() != "<hi>" {
		t.Errorf("as plain messages: %+v, %v", plain, err)
	}
	r := api.RunOf(state.State{Status: state.Waiting, Waiting: &state.Wait{Reason: state.WaitingApproval, Calls: []state.WaitCall{{ID: "c"}}}}, at.Time)
	if b, err := json.Marshal(r.Waiting); err != nil || !strings.Contains(string(b), `"message":""`) || !strings.Contains(string(b), `"question":null`) {
		t.Errorf("waiting = %s, %v", b, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"agent":"a","input":"x","limits":{"deadline":"10m","cost_usd":0.5}}`))
	f.Add([]byte(`{"answer":"x","approvals":[{"call_id":"c","decision":"approve"}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var s api.SubmitRequest
		_ = api.Decode(data, &s)
		var g api.SignalRequest
		_ = api.Decode(data, &g)
		_, _ = api.DecodeEvent(data)
	})
}
