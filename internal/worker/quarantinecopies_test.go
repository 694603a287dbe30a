package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// lines counts log records by message.
type lines struct {
	slog.Handler

	mu sync.Mutex
	n  map[string]int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	message, _, _ := strings.Cut(r.Message, ":")
	l.n[message]++
	return nil
}

// Crashes leave several messages of a turn. While it waits in quarantine, the worker keeps one of them, logs the
// deferral once, and reports the turn in its heartbeats.
func TestQuarantinedTurnHasOneMessage(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	release, started := make(chan struct{}), make(chan bool, 2)
	s.tools["risky"] = tool.Func(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		started <- true
		select {
		case <-release:
			return tool.Result{Content: "survived"}, nil
		case <-ctx.Done():
			return tool.Result{}, context.Cause(ctx)
		}
	})
	lost := func() state.RunID {
		id := s.create(state.Limits{}, []agent.Tool{{Name: "risky", Idempotent: true}}, call("risky", "c1"), model.Scripted{Text: "done"})
		for i := range 3 {
			if _, err := s.store.Claim(t.Context(), state.ClaimRequest{Run: id, Version: 1, Token: fmt.Sprint(i), Worker: "gone", Lease: time.Hour, RedeliveryDelay: time.Second}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.Evict(t.Context(), "gone", 100, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		return s.start(id)
	}
	var mu sync.Mutex
	quarantined := 0
	stop, err := s.bus.Heartbeats(t.Context(), func(h bus.Heartbeat) {
		mu.Lock()
		defer mu.Unlock()
		quarantined = max(quarantined, h.Quarantined)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	cfg, logged := s.config(), &lines{Handler: slog.DiscardHandler, n: map[string]int{}}
	cfg.Without.Quarantine = false
	cfg.Logger = slog.New(logged)
	first := lost()
	s.work(cfg)
	<-started
	second := lost()
	for i := range 8 {
		if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: second, Version: 1, Priority: state.Normal, Tenant: state.DefaultTenant}, fmt.Sprintf("%s:1:e%d", second, i)); err != nil {
			t.Fatal(err)
		}
	}
	testbed.Eventually(t, "the messages of two turns", func() error {
		mu.Lock()
		defer mu.Unlock()
		lag, err := s.bus.Lag(t.Context())
		if err == nil && (lag != 2 || quarantined != 1) {
			err = fmt.Errorf("%d messages, %d turns in quarantine, want 2 and 1", lag, quarantined)
		}
		return err
	})
	close(release)
	for _, id := range []state.RunID{first, second} {
		s.awaitReason(id, state.EndCompleted)
	}
	logged.mu.Lock()
	defer logged.mu.Unlock()
	if n := logged.n["turn deferred"]; n != 1 {
		t.Errorf("%d lines of a deferred turn, want 1", n)
	}
}
