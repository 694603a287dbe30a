package chaos

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// acked is a request that was acknowledged at once, some seconds after the noon.
func acked(s int) Ack { return Ack{Sent: at(s), At: at(s)} }

// nonce is the n-th nonce of a model server.
func nonce(n int) string { return fmt.Sprintf("%0*d", len(nonceMark), n) }

// sound is the evidence of one run with one tool call and no violation.
func sound() Evidence {
	said := &api.Message{Role: state.RoleAssistant, Parts: []state.Part{
		{Type: state.PartText, Text: nonce(1)}, {Type: state.PartToolCall, ID: "call_0_0", Name: "once"},
	}}
	result := &api.Message{Role: state.RoleTool, Parts: []state.Part{{Type: state.PartToolResult, CallID: "call_0_0", Content: "done"}}}
	last := &api.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartText, Text: nonce(2) + " is all."}}}
	log := []state.Entry{
		{Seq: 1, Type: state.EntrySubmitted, Version: 1},
		{Seq: 2, Type: state.EntryModel, Message: said},
		{Seq: 3, Type: state.EntryTool, Name: "once", Message: result},
		{Seq: 4, Type: state.EntryTransition, Version: 2},
		{Seq: 5, Type: state.EntryTransition, Version: 2, Reason: state.Recovered},
		{Seq: 6, Type: state.EntryModel, Message: last},
		{Seq: 7, Type: state.EntryFinished, Version: 3},
	}
	w := Witness{
		Submitted: Submitted{ID: "run_1", Kind: "leaf", Key: "k", Accepted: acked(0)},
		Found:     true, Log: log, Messages: []api.Message{*said, *result, *last},
		Run: api.Run{
			ID: "run_1", Status: string(state.Completed), Version: 3, FinishedAt: state.At(at(5)), Usage: state.Usage{OutputTokens: 2 * answerTokens},
			Transition: api.Transition{Reason: state.EndCompleted},
		},
	}
	e := Evidence{
		Answers:   []Answer{{Run: "run_1", Nonce: nonce(1)}, {Run: "run_1", Nonce: nonce(2)}},
		Effects:   []Effect{{At: at(2), Worker: "w1-7", Run: "run_1", Call: "call_0_0", Tool: "once", Key: "x", Nonce: nonce(1), Result: "done"}},
		Published: map[string]map[int64]json.RawMessage{"run_1": {}},
	}
	for i := range log {
		data := json.RawMessage(fmt.Sprint(i))
		w.Events, w.Seen = append(w.Events, data), append(w.Seen, data)
		e.Published["run_1"][int64(i+1)] = data
	}
	e.Runs = []Witness{w}
	return e
}

// The checker finds each planted violation. Without this, finding nothing would prove nothing.
func TestCheckFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	again := func(e *Evidence, tool string) {
		twice := e.Effects[0]
		twice.At, twice.Tool = at(3), tool
		e.Effects[0].Tool = tool
		e.Effects = append(e.Effects, twice)
	}
	late := func(e *Evidence) {
		effect := e.Effects[0]
		effect.At, effect.Key, effect.Result = at(6), "another", "that nobody heard"
		e.Effects = append(e.Effects, effect)
	}
	note := func(e *Evidence) { // in place of the effect
		w := &e.Runs[0]
		w.Kind, e.Effects = "noted", nil
		w.Log[1].Message.Parts[1].Name, w.Log[2].Name, w.Log[2].CallID = "note", "note", "call_0_0"
		w.Log[1].Message.Parts[1].Arguments = fmt.Sprintf(`{"path":"/memories/%s","insert_text":"%s\n"}`, sharedNote, nonce(1))
		e.Notes = map[string]string{sharedNote: nonce(1) + "\n"}
	}
	handed := func(e *Evidence) {
		w := &e.Runs[0]
		w.Kind, w.Run.ActiveAgent, w.Log[4].Type = "handed", &state.AgentRef{Name: "taker"}, state.EntryTransition
		w.Log[3] = state.Entry{Seq: 4, Type: state.EntryHandoff}
		w.Log[4].Version, w.Log[4].Reason = 2, ""
	}
	called := func(e *Evidence, all ...Delivery) {
		e.Runs[0].Called = true
		e.Deliveries = map[string][]Delivery{"run_1": all}
	}
	lost := []Rollback{{From: at(-1), To: at(10)}}
	tests := map[string]struct {
		plant func(*Evidence)
		want  string // comma-separated invariants
	}{
		"nothing":              {func(*Evidence) {}, ""},
		"the run is gone":      {func(e *Evidence) { e.Runs[0].Found = false }, "I1"},
		"gone with a failover": {func(e *Evidence) { e.Runs[0].Found = false; e.Rollbacks = lost }, ""},
		"gone before its late response": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Accepted = false, Ack{Sent: at(-20), At: at(20)}
			e.Rollbacks = []Rollback{{From: at(-5), To: at(-4)}}
		}, ""},
		"changed before its late response": {func(e *Evidence) {
			e.Published["run_1"][2] = json.RawMessage(`"other"`)
			e.Runs[0].Accepted = Ack{Sent: at(0), At: at(20)}
			e.Rollbacks = []Rollback{{From: at(1), To: at(3)}}
		}, ""},
		"changed before it was submitted": {func(e *Evidence) {
			e.Published["run_1"][2] = json.RawMessage(`"other"`)
			e.Rollbacks = []Rollback{{From: at(-9), To: at(-8)}}
		}, "I9"},
		"aborted before the late response": {func(e *Evidence) {
			e.Runs[0].Aborting, e.Runs[0].Aborted = true, Ack{Sent: at(-20), At: at(1)}
			e.Runs[0].Run.FinishedAt, e.Rollbacks = state.At(at(9)), []Rollback{{From: at(-18), To: at(-17)}}
		}, ""},
		"deleted before the late response": {func(e *Evidence) {
			e.Runs[0].Deleted, e.Rollbacks = Ack{Sent: at(6), At: at(30)}, []Rollback{{From: at(7), To: at(9)}}
		}, ""},
		"gone since its message": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Accepted = false, Ack{Sent: at(-20), At: at(20)}
			e.Rollbacks = []Rollback{{From: at(-5), To: at(-4)}}
		}, ""},
		"gone before any failover": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Accepted = false, Ack{Sent: at(-20), At: at(0)}
			e.Rollbacks = []Rollback{{From: at(5), To: at(6)}}
		}, "I1"},
		"a key made two runs":         {func(e *Evidence) { e.Runs[0].Again = []string{"run_2"} }, "I1"},
		"a version is missing":        {func(e *Evidence) { e.Runs[0].Log[6].Version = 4; e.Runs[0].Run.Version = 4 }, "I1"},
		"the header is behind":        {func(e *Evidence) { e.Runs[0].Run.Version = 2 }, "I1"},
		"the run stands still":        {func(e *Evidence) { e.Runs[0].Run.Status = string(state.Queued) }, "I2,I9"},
		"the run failed":              {func(e *Evidence) { e.Runs[0].Run.Transition.Reason = state.EndModelError }, "I2"},
		"a batch lost a run":          {func(e *Evidence) { e.Batches = []api.Batch{{ID: "b", Done: true, Total: 1}} }, "I1"},
		"another run's answer":        {func(e *Evidence) { e.Answers[1].Run = "run_2" }, "I3"},
		"an answer twice":             {func(e *Evidence) { e.Runs[0].Log[5].Message = e.Runs[0].Log[1].Message }, "I3"},
		"a tool of a lost answer ran": {func(e *Evidence) { e.Effects[0].Nonce = nonce(9) }, "I3"},
		"a result nobody gave":        {func(e *Evidence) { e.Effects[0].Result = "other" }, "I3"},
		"an effect twice":             {func(e *Evidence) { again(e, "once") }, "I4"},
		"an effect that may be twice": {func(e *Evidence) { again(e, "read") }, ""},
		"twice after a failover":      {func(e *Evidence) { again(e, "once"); e.Rollbacks = lost }, ""},
		"a call without a result":     {func(e *Evidence) { e.Runs[0].Messages = e.Runs[0].Messages[:1] }, "I5"},
		"a result without a call":     {func(e *Evidence) { e.Runs[0].Messages = append(e.Runs[0].Messages[:2], e.Runs[0].Messages[1:]...) }, "I5"},
		"nothing left of a deleted run": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Deleted, e.Published = false, acked(8), nil
		}, ""},
		"a deleted run is there": {func(e *Evidence) { e.Runs[0].Deleted, e.Published = acked(8), nil }, "I1"},
		"a run below a deleted one": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Deleted, e.Runs[0].Below, e.Remaining, e.Published = false, acked(8), []string{"run_2"}, []string{"run_2"}, nil
		}, "I1"},
		"events of a deleted run": {func(e *Evidence) { e.Runs[0].Found, e.Runs[0].Deleted = false, acked(8) }, "I9"},
		"a dead letter of a deleted run": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Deleted, e.Published, e.Letters = false, acked(8), nil, []string{"run_1"}
		}, "I2"},
		"a tool of a deleted run": {func(e *Evidence) {
			e.Runs[0].Found, e.Runs[0].Deleted, e.Published = false, acked(-8), nil
		}, "I7"},
		"a run without its file":         {func(e *Evidence) { e.Runs[0].File, e.Runs[0].FileMissing = "file_1", true }, "I1"},
		"a note":                         {func(e *Evidence) { note(e) }, ""},
		"a note is lost":                 {func(e *Evidence) { note(e); e.Notes = nil }, "I3"},
		"a note is lost with a failover": {func(e *Evidence) { note(e); e.Notes, e.Rollbacks = nil, lost }, ""},
		"a note twice":                   {func(e *Evidence) { note(e); e.Notes[sharedNote] += e.Notes[sharedNote] }, "I4"},
		"a handoff":                      {func(e *Evidence) { handed(e) }, ""},
		"a handoff that the header does not know": {func(e *Evidence) { handed(e); e.Runs[0].Run.ActiveAgent = nil }, "I1"},
		"two handoffs": {func(e *Evidence) {
			handed(e)
			e.Runs[0].Log[4].Type, e.Runs[0].Log[4].Reason, e.Runs[0].Log[4].Version = state.EntryHandoff, "", 0
		}, "I1"},
		"no handoff":                    {func(e *Evidence) { e.Runs[0].Kind = "handed" }, "I1"},
		"no handoff after an interrupt": {func(e *Evidence) { e.Runs[0].Kind, e.Runs[0].Mode = "handed", state.Interrupt }, ""},
		"a hook of a response":          {func(e *Evidence) { e.Effects = append(e.Effects, Effect{Run: "run_1", Hook: "stop", Nonce: nonce(2)}) }, ""},
		"a hook of no response":         {func(e *Evidence) { e.Effects = append(e.Effects, Effect{Run: "run_1", Hook: "stop", Nonce: nonce(9)}) }, "I3"},
		"a webhook": {func(e *Evidence) {
			called(e, Delivery{ID: "a", Sequence: 1}, Delivery{ID: "a", Sequence: 1, Taken: true})
		}, ""},
		"a webhook that never came":    {func(e *Evidence) { called(e) }, "I9"},
		"a webhook that was not taken": {func(e *Evidence) { called(e, Delivery{ID: "a", Sequence: 1}) }, "I9"},
		"a webhook of two ids": {func(e *Evidence) {
			called(e, Delivery{ID: "a", Sequence: 1}, Delivery{ID: "b", Sequence: 1, Taken: true})
		}, "I9"},
		"a webhook out of order": {func(e *Evidence) {
			called(e, Delivery{ID: "b", Sequence: 2, Taken: true}, Delivery{ID: "a", Sequence: 1, Taken: true})
		}, "I9"},
		"a webhook of no end": {func(e *Evidence) {
			called(e, Delivery{ID: "a", Sequence: 1, Taken: true}, Delivery{ID: "b", Sequence: 2, Taken: true})
		}, "I9"},
		"a webhook that is forged":  {func(e *Evidence) { called(e, Delivery{ID: "a", Sequence: 1, Taken: true, Forged: true}) }, "I9"},
		"a webhook with a failover": {func(e *Evidence) { called(e); e.Rollbacks = lost }, ""},
		"two runs for one instant":  {func(e *Evidence) { e.Firings = []Firing{{"run_1", noon}, {"run_2", noon}} }, "I1"},
		"an instant without a run":  {func(e *Evidence) { e.Firings = []Firing{{"run_1", noon}, {"run_2", noon.Add(4 * time.Minute)}} }, "I1"},
		"a worker panics":           {func(e *Evidence) { e.Cries = []string{"w1.log: panic: "} }, "I2"},
		"messages are left":         {func(e *Evidence) { e.Left = 1 }, "I6"},
		"an abort was ignored": {func(e *Evidence) {
			e.Runs[0].Aborting, e.Runs[0].Aborted = true, acked(1)
			e.Runs[0].Run.FinishedAt = state.At(at(9))
		}, "I7"},
		"an abort that a worker slept through": {func(e *Evidence) {
			e.Runs[0].Aborting, e.Runs[0].Aborted = true, acked(1)
			e.Runs[0].Run.FinishedAt = state.At(at(9))
			end := &e.Runs[0].Log[len(e.Runs[0].Log)-1]
			end.Worker, end.At = "w1-7", state.At(at(9))
			e.Faults = []Fault{{Kind: "worker paused", Name: "w1", From: at(2), To: at(9)}}
		}, ""},
		"an abort that a worker heard after its sleep": {func(e *Evidence) {
			e.Runs[0].Aborting, e.Runs[0].Aborted = true, acked(1)
			e.Runs[0].Run.FinishedAt = state.At(at(9))
			end := &e.Runs[0].Log[len(e.Runs[0].Log)-1]
			end.Worker, end.At = "w1-7", state.At(at(9))
			e.Faults = []Fault{{Kind: "worker paused", Name: "w1", From: at(2), To: at(5)}}
		}, "I7"},
		"a tool after the end":                {late, "I7"},
		"a result of before by another clock": {func(e *Evidence) { e.Effects[0].At = at(6) }, ""},
		"by a worker asleep": {func(e *Evidence) {
			late(e)
			e.Faults = []Fault{{Kind: "worker paused", Name: "w1", From: at(4), To: at(6)}}
		}, ""},
		"what was said is lost":    {func(e *Evidence) { e.Runs[0].Said, e.Runs[0].Heard = "x", acked(2) }, "I5"},
		"said, and not heard":      {func(e *Evidence) { e.Runs[0].Said = "x" }, ""},
		"said before the failover": {func(e *Evidence) { e.Runs[0].Said, e.Runs[0].Heard, e.Rollbacks = "x", acked(2), lost }, ""},
		"what was said comes twice": {func(e *Evidence) {
			x := api.Message{Role: state.RoleUser, Parts: []state.Part{{Type: state.PartText, Text: "x"}}}
			e.Runs[0].Said, e.Runs[0].Messages = "x", append(e.Runs[0].Messages, x, x)
		}, "I5"},
		"it goes on after its end": {func(e *Evidence) {
			e.Runs[0].Said = "x"
			e.Runs[0].Log[3].Type = state.EntryFinished
		}, ""},
		"a number is missing":   {func(e *Evidence) { e.Runs[0].Log[3].Seq = 5 }, "I9"},
		"it finished twice":     {func(e *Evidence) { e.Runs[0].Log[4].Type = state.EntryFinished }, "I9"},
		"a reader missed one":   {func(e *Evidence) { e.Runs[0].Seen = e.Runs[0].Seen[:6] }, "I9"},
		"a reader saw one anew": {func(e *Evidence) { e.Runs[0].Seen[3] = e.Runs[0].Seen[2] }, "I9"},
		"one was not published": {func(e *Evidence) { delete(e.Published["run_1"], 1) }, "I9"},
		"too much was spent": {func(e *Evidence) {
			e.Runs[0].Kind = "budget"
			e.Runs[0].Run.Usage.OutputTokens = budgetTokens + answerTokens + 1
		}, "I10"},
		"it went on beyond its limit": {func(e *Evidence) {
			e.Runs[0].Kind = "budget"
			e.Runs[0].Log[4].Usage = &state.Usage{OutputTokens: budgetTokens, Estimated: true}
			e.Runs[0].Run.Usage.OutputTokens += budgetTokens
		}, "I10"},
		"a lost answer was counted": {func(e *Evidence) {
			e.Runs[0].Log[4].Usage = &state.Usage{OutputTokens: 512, Estimated: true}
			e.Runs[0].Run.Usage.OutputTokens += 512
		}, ""},
		"a lost answer was not counted": {func(e *Evidence) {
			e.Runs[0].Log[4].Usage = &state.Usage{OutputTokens: 512, Estimated: true}
		}, "I10"},
		"a cost was counted twice": {func(e *Evidence) { e.Runs[0].Run.Usage.OutputTokens += answerTokens }, "I10"},
		"it compacted twice": {func(e *Evidence) {
			e.Runs[0].Log[1].Reason, e.Runs[0].Log[5].Reason = state.ReactiveCompactRetry, state.ReactiveCompactRetry
		}, "I11"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			tt.plant(&e)
			found := Check(e)
			for _, want := range strings.Split(tt.want, ",") {
				if n := count(found, want); want != "" && n == 0 {
					t.Errorf("%s was not found; found: %v", want, found)
				}
			}
			for _, v := range found {
				if !strings.Contains(","+tt.want+",", ","+v.Invariant+",") {
					t.Errorf("found %s, too: %s", v.Invariant, v.Detail)
				}
			}
		})
	}
}

func count(found []Violation, invariant string) (n int) {
	for _, v := range found {
		if v.Invariant == invariant {
			n++
		}
	}
	return n
}

func TestLedgerKeepsWhatIsWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	for range 2 { // two processes
		l, err := OpenLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := l.Append(Effect{Run: "r", Tool: "once"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := ReadLedger(path); err != nil || len(all) != 6 || all[5].Tool != "once" {
		t.Errorf("%d effects, %v: %v", len(all), err, all)
	}
}

// The model server accepts every agent's script, and every called tool is one of the agent's.
func TestKindsAreSound(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		for _, r := range k.script {
			for _, c := range r.ToolCalls {
				if !strings.Contains(k.tools, "name: "+c.Name) && !strings.Contains(k.tools, "allow: ["+c.Name+"]") {
					t.Errorf("%s calls %s, which it does not have", k.name, c.Name)
				}
			}
		}
		if last := k.script[len(k.script)-1]; last.Error != model.Class("") && k.name != "failing" || len(last.ToolCalls) > 0 {
			t.Errorf("%s does not end with an answer", k.name)
		}
	}
	if _, err := startModel(t.Context()); err != nil {
		t.Error(err)
	}
}
