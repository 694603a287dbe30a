package turn_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A turn continues from the journal of an earlier attempt. The results in it reach the log with all that they have: the
// origin, which decides what the run may still do, the images and files, and what the call was.
func TestJournaledResultsAreKept(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.submit(agent.Definition{Tools: []agent.Tool{{Name: "pay"}}}, model.Scripted{Text: "end"})
	if d, err := s.queue.Next(t.Context()); err != nil || d.Ack() != nil {
		t.Fatal(err)
	}
	c, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: s.id, Version: 1, Token: "lost", Worker: "lost", Lease: time.Minute, RedeliveryDelay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	at := state.At(time.Now().Add(-time.Minute))
	response := state.Message{ID: "msg_2_0", Role: state.RoleAssistant, At: at, Parts: []state.Part{
		{Type: state.PartToolCall, ID: "c1", Name: "pay", Arguments: "{}"},
		{Type: state.PartToolCall, ID: "c2", Name: "pay", Arguments: "{}"},
		{Type: state.PartToolCall, ID: "c3", Name: "pay", Arguments: "{}"},
	}}
	kept := state.ToolResult("c1", "PAID", true, state.Image{MediaType: "image/png", Data: "aQ=="})
	kept.At = at
	kept.Parts[0].Files = []state.Part{{Type: state.PartFile, Name: "bill.pdf", MediaType: "application/pdf", URL: "https://example.com/bill.pdf"}}
	kept.Parts[0].Origin = state.OriginWeb
	reused := state.ToolResult("c2", "the same", false)
	reused.At = at
	results := []state.Entry{
		{Type: state.EntryTool, At: at, Message: &kept, CallID: "c1", Name: "pay", IsError: true, DurationMS: 1500},
		{Type: state.EntryReused, At: at, Message: &reused, CallID: "c2", Name: "pay"},
	}
	_, err = s.store.Record(t.Context(), c.Lease, state.Record{
		From: c.LogLen, Started: []string{"c1", "c3"}, Results: results,
		Entries: []state.Entry{{Seq: c.LogLen + 1, Type: state.EntryModel, Turn: 1, Attempt: 1, At: at, Message: &response}},
	})
	if err == nil {
		err = s.store.Release(t.Context(), c.Lease, 0)
	}
	if err == nil {
		err = s.bus.PublishTurn(t.Context(), bus.Turn{Run: s.id, Version: 1, Priority: state.Normal}, "again")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.next(t.Context(), "w2")
	log, err := s.store.Snapshot().Log(s.id)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]state.Entry{}
	for _, e := range log {
		if e.CallID == "" {
			continue
		}
		e.Seq, e.Turn, e.Attempt = 0, 0, 0 // as the log numbers it
		e.Message.ID, e.Message.Turn = "", 0
		got[e.CallID] = e
	}
	for _, want := range results {
		if diff := cmp.Diff(want, got[want.CallID]); diff != "" {
			t.Errorf("the entry of the result (-journal +log):\n%s", diff)
		}
	}
	if e := got["c3"]; e.Message == nil || !e.IsError || !e.Message.Synthetic {
		t.Errorf("the call that was only started has the entry %+v; want an unknown outcome", e)
	}
}
