package membership_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/membership"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// air passes heartbeats to a gateway, unless it is out of order.
type air struct {
	hear   func(bus.Heartbeat)
	broken atomic.Bool
	sent   []bus.Heartbeat
}

func (a *air) SendHeartbeat(b bus.Heartbeat) {
	a.sent = append(a.sent, b)
	if !a.broken.Load() && a.hear != nil {
		a.hear(b)
	}
}

func (a *air) Heartbeats(_ context.Context, fn func(bus.Heartbeat)) (stop func(), err error) {
	a.hear = fn
	return func() { a.hear = nil }, nil
}

type fleet struct{}

func (fleet) Hear(bus.Heartbeat, time.Time) {}

// A gateway announces when it leaves. It decides about the format of runs only while heartbeats arrive: without its
// own, those of an older process may be missing too.
func TestMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &air{}
		a.broken.Store(true)
		var format atomic.Int64
		m := membership.New(a, func(decided int) { format.Store(int64(decided)) }, fleet{}, strings.NewReader("random"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(time.Minute) // the bubble's clock
		synctest.Wait()
		if f := format.Load(); f != 0 {
			t.Errorf("it decided for the format %d without hearing anything", f)
		}
		a.broken.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if f := format.Load(); f != state.Format {
			t.Errorf("it decided for the format %d, want %d", f, state.Format)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i, b := range a.sent {
			if last := i == len(a.sent)-1; !b.Gateway || b.Worker != a.sent[0].Worker || b.Leaving != last {
				t.Errorf("heartbeat %d of %d: %+v", i, len(a.sent), b)
			}
		}
	})
}
