package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A subscriber to a run's subject from before its submission receives every event in order, including the
// first, also after a signal woke the run (I9).
func TestEventsOnTheBus(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, 2, "TURNPIKE_EVENT_FEED=on")
	if _, err := s.client.PutAgent(t.Context(), "asks", []byte(`{model: {provider: scripted, responses: [
		{tool_calls: [{name: pick, id: c1}]}, {text: done}]}, tools: [{name: pick, kind: client, schema: {type: object}}]}`)); err != nil {
		t.Fatal(err)
	}
	events, err := s.nats.SubscribeSync(s.prefix() + ".events.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.nats.Flush(); err != nil {
		t.Fatal(err)
	}
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "asks", Input: json.RawMessage(`"go"`)}, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	var seqs []string
	for ended := false; !ended; {
		m := nextEvent(t, events, seqs)
		var e api.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		seq := m.Header.Get("Turnpike-Seq")
		if seq != "" && slices.Contains(seqs, seq) {
			continue // a duplicate
		}
		if e.Type == "run.waiting" {
			if _, err := s.client.Signal(t.Context(), run.ID, api.SignalRequest{ToolResults: []api.ToolResult{{CallID: "c1", Content: json.RawMessage(`"it"`)}}}); err != nil {
				t.Fatal(err)
			}
		}
		if seq != "" {
			seqs = append(seqs, seq)
		}
		ended = e.Type == "run.finished"
	}
	for i, seq := range seqs {
		if seq != fmt.Sprint(i+1) {
			t.Fatalf("events come as %v", seqs)
		}
	}
}

func nextEvent(t *testing.T, sub *nats.Subscription, before []string) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatalf("next event after %v: %v", before, err)
	}
	return m
}
