package natsbus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// A message that arrives just when its caller has stopped waiting goes to the next caller.
func TestTakePassesOnALateMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &puller{quit: make(chan struct{}), paused: time.Now(), ahead: 1} // paused: it sends no requests
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := p.take(ctx); done <- err }()
		synctest.Wait()
		m := &nats.Msg{Subject: "late"}
		p.mu.Lock()
		cancel()
		used := p.hand(m)
		p.mu.Unlock()
		if err := <-done; !used || err == nil {
			t.Fatalf("the message was handed over: %t; the caller got %v, want the error of its context", used, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := p.take(ctx); got != m {
			t.Errorf("the next caller got %v, %v; want the message", got, err)
		}
	})
}
