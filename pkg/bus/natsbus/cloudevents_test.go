package natsbus_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

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
	// In binary mode, the NATS and HTTP bindings use the same header names.
	header := http.Header{}
	for name, values := range m.Header {
		for _, value := range values {
			header.Add(name, value)
		}
	}
	ce, err := binding.ToEvent(t.Context(), cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(m.Data))))
	if err != nil {
		t.Fatal(err)
	}
	if err := ce.Validate(); err != nil || ce.ID() != string(run)+":7" || ce.Subject() != string(run) || !ce.Time().Equal(at.Time) || !bytes.Equal(ce.Data(), m.Data) {
		t.Errorf("the CloudEvents SDK reads %s, %v", ce, err)
	}
}
