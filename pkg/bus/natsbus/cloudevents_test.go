package natsbus_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A message of the event feed is a CloudEvent in binary mode: its data is the event, and its attributes are
// headers.
func TestFeedOfCloudEvents(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	run := newRun()
	sub, err := nc.SubscribeSync("turnpike.events." + string(run))
	if err != nil {
		t.Fatal(err)
	}
	at := state.At(time.Date(2026, 11, 27, 8, 0, 0, 123e6, time.UTC))
	event := bus.Event{Seq: 7, Type: state.EntryFinished, At: at, Data: []byte(`{"type":"run.finished"}`)}
	if err := b.PublishEvents(t.Context(), state.DefaultTenant, run, []bus.Event{event}); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsgWithContext(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": string(run) + ":7", "ce-type": "dev.turnpike.run.finished", "ce-source": "/turnpike/default",
		"ce-subject": string(run), "ce-time": "2026-11-27T08:00:00.123Z", "content-type": "application/json", "Turnpike-Seq": "7",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if string(m.Data) != string(event.Data) {
		t.Errorf("the data is %s", m.Data)
	}
}
