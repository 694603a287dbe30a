package bus_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

const older, newest = 1, 2

// The format to write is the newest that every process can read. It falls with the first heartbeat of a process
// that reads less.
func TestFormats(t *testing.T) {
	t.Parallel()
	written := 0
	f := bus.NewFormats(newest, func(format int) { written = format })
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	want := func(what string, format int) {
		t.Helper()
		if written != format {
			t.Errorf("%s: format %d is written, want %d", what, written, format)
		}
	}
	own := bus.Heartbeat{Worker: "w1", Format: newest}
	f.Hear(own, now)
	f.Decide(now, false)
	want("other processes may be there", 0)
	f.Decide(now, true)
	want("all are new", newest)

	old := bus.Heartbeat{Worker: "old", Format: older}
	f.Hear(old, now)
	want("an older worker is heard", older)
	for range 5 {
		now = now.Add(5 * time.Second)
		f.Hear(own, now)
		f.Hear(old, now)
		f.Decide(now, true)
		want("an older worker is there", older)
	}
	old.Leaving = true
	f.Hear(old, now)
	f.Decide(now, false)
	want("it has left, and others may be there", older)
	f.Decide(now, true)
	want("it has left", newest)

	f.Hear(bus.Heartbeat{Worker: "gateway-2", Gateway: true, Format: older}, now)
	want("an older gateway is heard", older)
	now = now.Add(9 * time.Second)
	f.Hear(own, now)
	f.Decide(now, true)
	want("it may only be slow", older)
	now = now.Add(2 * time.Second)
	f.Decide(now, true)
	want("it is dead", newest)

	f.Hear(bus.Heartbeat{Worker: "newer", Format: newest + 1}, now)
	f.Decide(now, true)
	want("a newer one is there", newest)
}

// A heartbeat of one process does not raise the format above what another can read.
func TestFormatsOfThreeGenerations(t *testing.T) {
	t.Parallel()
	written := 0
	f := bus.NewFormats(3, func(format int) { written = format })
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f.Hear(bus.Heartbeat{Worker: "oldest", Format: 1}, now)
	for _, h := range []bus.Heartbeat{{Worker: "newcomer", Format: 2}, {Worker: "newcomer", Format: 1}, {Worker: "newcomer", Format: 2}} {
		f.Hear(h, now)
		if written != 1 {
			t.Errorf("after a heartbeat of format %d, format %d is written, and a process reads only 1", h.Format, written)
		}
	}
	f.Hear(bus.Heartbeat{Worker: "another", Format: 2}, now.Add(time.Minute))
	if written != 2 {
		t.Errorf("format %d is written after the oldest process has died, want 2", written)
	}
}

// A slow store does not block heartbeats, and the latest decision is written last.
func TestFormatsOfSlowStore(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan int), make(chan struct{})
	f := bus.NewFormats(newest, func(format int) {
		asked <- format
		<-answer
	})
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f.Hear(bus.Heartbeat{Worker: "gateway", Gateway: true, Format: newest}, now)
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		f.Decide(now, true)
	}()
	if got := <-asked; got != newest {
		t.Errorf("format %d is written, want %d", got, newest)
	}
	f.Hear(bus.Heartbeat{Worker: "old", Format: older}, now) // returns, although the store has not
	answer <- struct{}{}
	if got := <-asked; got != older {
		t.Errorf("format %d is written last, want %d", got, older)
	}
	answer <- struct{}{}
	<-decided
}

// ParseAbort accepts abort messages of any form from clients, but no response of a server.
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
