package bus_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// What is written is what everybody can read who is heard, from when it is heard on.
func TestFormats(t *testing.T) {
	t.Parallel()
	written := 0
	f := bus.NewFormats(func(format int) { written = format })
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	want := func(what string, format int) {
		t.Helper()
		if written != format {
			t.Errorf("%s: format %d is written, want %d", what, written, format)
		}
	}
	own := bus.Heartbeat{Worker: "w1", Format: state.Format}
	f.Hear(own, now)
	f.Decide(now, false)
	want("nobody knows yet who else there is", 0)
	f.Decide(now, true)
	want("gateways may be there that send no heartbeats", 0)
	front := bus.Heartbeat{Worker: "gateway", Gateway: true, Format: state.Format}
	f.Hear(front, now)
	f.Decide(now, true)
	want("all are new", state.Format)

	old := bus.Heartbeat{Worker: "old"}
	f.Hear(old, now)
	want("an older worker is heard", state.OldFormat)
	for range 5 {
		now = now.Add(5 * time.Second)
		f.Hear(own, now)
		f.Hear(front, now)
		f.Hear(old, now)
		f.Decide(now, true)
		want("an older worker is there", state.OldFormat)
	}
	old.Leaving = true
	f.Hear(old, now)
	f.Decide(now, false)
	want("it has left, and others may be there", state.OldFormat)
	f.Decide(now, true)
	want("it has left", state.Format)

	f.Hear(bus.Heartbeat{Worker: "gateway-2", Gateway: true, Format: state.OldFormat}, now)
	want("an older gateway is heard", state.OldFormat)
	now = now.Add(9 * time.Second)
	f.Hear(own, now)
	f.Hear(front, now)
	f.Decide(now, true)
	want("it may only be slow", state.OldFormat)
	now = now.Add(2 * time.Second)
	f.Decide(now, true)
	want("it is dead", state.Format)

	f.Hear(bus.Heartbeat{Worker: "newer", Format: state.Format + 1}, now)
	f.Decide(now, true)
	want("a newer one is there", state.Format)
}

// A store that takes its time holds up nobody who tells of a heartbeat, and the last word is
// what was decided last.
func TestFormatsOfSlowStore(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan int), make(chan struct{})
	f := bus.NewFormats(func(format int) {
		asked <- format
		<-answer
	})
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f.Hear(bus.Heartbeat{Worker: "gateway", Gateway: true, Format: state.Format}, now)
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		f.Decide(now, true)
	}()
	if got := <-asked; got != state.Format {
		t.Errorf("format %d is written, want %d", got, state.Format)
	}
	f.Hear(bus.Heartbeat{Worker: "old"}, now) // returns, although the store has not
	answer <- struct{}{}
	if got := <-asked; got != state.OldFormat {
		t.Errorf("format %d is written last, want %d", got, state.OldFormat)
	}
	answer <- struct{}{}
	<-decided
}

// Aborts are taken from whoever may publish them, however they look; a server's answer is none.
func TestParseAbort(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bus.Abort{
		"": {}, "{}": {}, "null": {}, "stop it": {}, "[1]": {}, `"enough"`: {}, `{"reason": 7}`: {},
		`{"reason": "enough"}`:           {Reason: "enough"},
		`{"reason": "x", "stream": "y"}`: {Reason: "x"},
		`{"reason": "", "version": 3}`:   {Version: 3},
	} {
		if got, ok := bus.ParseAbort([]byte(body), ""); !ok || got != want {
			t.Errorf("ParseAbort(%s) = %+v, %v", body, got, ok)
		}
	}
	for _, body := range []string{`{"stream":"TURNPIKE_SUBMIT","seq":7}`, `{"type":"io.nats.jetstream.api.v1.account_info_response"}`, `{"error":{"code":503}}`} {
		if got, ok := bus.ParseAbort([]byte(body), ""); ok {
			t.Errorf("ParseAbort(%s) = %+v", body, got)
		}
	}
	if got, ok := bus.ParseAbort(nil, "404"); ok {
		t.Errorf("ParseAbort of a server's 404 = %+v", got)
	}
}
