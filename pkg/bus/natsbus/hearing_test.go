package natsbus

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// hears returns a hearing with a key, and a function that signs a message of a sender whose clock differs by off.
func hears(t *testing.T) (h *hearing, message func(sender string, off time.Duration) *nats.Msg) {
	t.Helper()
	k, err := ParseKeys("0123456789abcdef-key")
	if err != nil {
		t.Fatal(err)
	}
	var s atomic.Pointer[signer]
	s.Store(newSigner(k))
	return &hearing{signer: &s}, func(sender string, off time.Duration) *nats.Msg {
		const subject, data = "p.live.run", "text"
		mac := s.Load().sign(sender, time.Now().Add(off).UnixNano(), subject, []byte(data))
		return &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{headerMAC: {mac}}}
	}
}

// A message is accepted once, however late it is replayed and whoever was heard in between: while a message is young
// enough, the receiver remembers the latest one of its sender.
func TestReplaysAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, message := hears(t)
		for _, off := range []time.Duration{-signatureAge + time.Second, 0, signatureAge - time.Second} {
			sender := fmt.Sprint("s", off)
			before, m := message(sender, off-time.Millisecond), message(sender, off)
			if !h.believe(m) {
				t.Fatalf("a message of a clock that differs by %s is refused", off)
			}
			for i := range 140 { // longer than any message is young enough
				if h.believe(m) || h.believe(before) {
					t.Errorf("%d s later a message of a clock that differs by %s is accepted again, or one before it", i, off)
				}
				if !h.believe(message(fmt.Sprint("new", off, i), 0)) {
					t.Fatal("a message of another sender is refused")
				}
				time.Sleep(time.Second)
			}
			if !h.believe(message(sender, off)) {
				t.Error("a later message of the sender is refused")
			}
		}
	})
}

// A message is refused if its time differs too much from that of the receiver, in both directions.
func TestTimesOfMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for off, want := range map[time.Duration]bool{
			-signatureAge - 1: false, -signatureAge: true, 0: true, signatureAge: true, signatureAge + 1: false,
		} {
			h, message := hears(t)
			if got := h.believe(message("s", off)); got != want {
				t.Errorf("a message whose clock differs by %s is accepted: %t, want %t", off, got, want)
			}
		}
	})
}

// The memory of the receiver has a bound: it forgets senders whose messages are all too old.
func TestOldSendersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, message := hears(t)
		for i := range 1000 {
			if !h.believe(message(fmt.Sprint(i), 0)) {
				t.Fatal("a message of a new sender is refused")
			}
			time.Sleep(time.Second)
		}
		if n := len(h.last); n > 200 {
			t.Errorf("after 1000 s with 1000 senders, the receiver remembers %d", n)
		}
	})
}
