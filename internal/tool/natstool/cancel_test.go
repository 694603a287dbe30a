package natstool_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// A service that subscribes to the cancellation of a call after the caller has sent it receives it at its first
// heartbeat.
func TestEarlyCancellation(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	sent, err := nc.SubscribeSync("_INBOX.*" + toolkit.CancelSuffix)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan struct{}, 10)
	instances(t, nc, "slow", func(m *nats.Msg) {
		cancel()
		if _, err := sent.NextMsg(testbed.Patience); err != nil {
			t.Errorf("no cancellation: %v", err)
		}
		if _, err := nc.Subscribe(m.Reply+toolkit.CancelSuffix, func(*nats.Msg) { cancelled <- struct{}{} }); err != nil {
			t.Error(err)
		}
		sign(m)
	})
	if _, err := natstool.New(nc, prefix).WithHeartbeat(time.Hour).Call(ctx, tool.Call{Name: "slow"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Call = %v", err)
	}
	<-cancelled
}

// A service without heartbeats receives the cancellation several times. The caller stops repeating it when the service
// replies.
func TestCancellationIsRepeated(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	sent, err := nc.SubscribeSync("_INBOX.*" + toolkit.CancelSuffix)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		beat time.Duration
		next func(m *nats.Msg)
		want int
	}{
		"silent":  {time.Millisecond, func(*nats.Msg) {}, 4},
		"beats":   {time.Hour, sign, 4},
		"answers": {time.Hour, answer, 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var request *nats.Msg
		instances(t, nc, name, func(m *nats.Msg) { request = m; cancel() })
		subs := nc.NumSubscriptions()
		if _, err := natstool.New(nc, prefix).WithHeartbeat(tt.beat).Call(ctx, tool.Call{Name: name}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Call = %v", name, err)
		}
		for range tt.want {
			if _, err := sent.NextMsg(testbed.Patience); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			tt.next(request)
		}
		testbed.Eventually(t, "the caller has unsubscribed", func() error {
			if n := nc.NumSubscriptions(); n > subs {
				return fmt.Errorf("%s: %d subscriptions, want %d", name, n, subs)
			}
			return nil
		})
		if n, _, _ := sent.Pending(); n > 0 {
			t.Errorf("%s: %d more cancellations", name, n)
		}
	}
}
